"""What tests of programs usually do with a fake file system, in our own words; one idea a test."""

import csv
import filecmp
import fileinput
import gzip
import io
import json
import logging
import os
import pathlib
import shutil
import stat
import tempfile
import time
import zipfile

import pytest


@pytest.fixture
def fs(rcuwalk_fs):
    return rcuwalk_fs


def test_a_created_file_can_be_read(fs):
    fs.create_file("/foo/bar.txt", contents="some text")
    assert os.path.isfile("/foo/bar.txt") and os.path.isdir("/foo")
    with open("/foo/bar.txt") as file:
        assert file.read() == "some text"


def test_creating_a_file_twice_fails(fs):
    fs.create_file("/foo/bar")
    with pytest.raises(FileExistsError):
        fs.create_file("/foo/bar")


def test_creating_a_file_without_its_directory_fails_on_request(fs):
    with pytest.raises(FileNotFoundError):
        fs.create_file("/foo/bar", create_missing_dirs=False)


def test_encoding_of_contents(fs):
    fs.create_file("/latin", "Ünïcode", encoding="latin-1")
    assert open("/latin", encoding="latin-1").read() == "Ünïcode"
    with pytest.raises(UnicodeDecodeError):
        open("/latin", encoding="utf-8").read()
    assert open("/latin", encoding="utf-8", errors="ignore").read() == "ncode"


def test_large_files_need_no_memory(fs):
    fs.create_file("/huge", size=5 * 2**40)
    assert os.path.getsize("/huge") == 5 * 2**40
    with open("/huge", "rb") as file:
        file.seek(-3, os.SEEK_END)
        assert file.read() == b"\0\0\0"


def test_a_full_disk(rcuwalk_fs):
    from rcuwalk._fixture import FakeFilesystem

    with FakeFilesystem(size=64 * 1024) as fs:
        fs.create_file("/a", b"x" * 32 * 1024)
        with pytest.raises(OSError) as raised:
            fs.create_file("/b", b"x" * 64 * 1024)
        assert raised.value.errno == 28 and not os.path.exists("/b")
        os.remove("/a")
        fs.create_file("/b", b"x" * 48 * 1024)


def test_append_and_update_modes(fs):
    fs.create_file("/log", "one\n")
    with open("/log", "a") as file:
        assert file.tell() == 4
        file.write("two\n")
    with open("/log", "r+") as file:
        assert file.readline() == "one\n"
        file.seek(0)
        file.write("ONE")
    assert open("/log").read() == "ONE\ntwo\n"
    with open("/log", "a+") as file:
        file.seek(0)
        assert file.read() == "ONE\ntwo\n"
        file.write("three")
    assert open("/log").read().endswith("three")


def test_exclusive_creation(fs):
    with open("/new", "x") as file:
        file.write("first")
    with pytest.raises(FileExistsError):
        open("/new", "x")


def test_wrong_directions(fs):
    fs.create_file("/f", "data")
    with open("/f") as file, pytest.raises(io.UnsupportedOperation):
        file.write("x")
    with open("/f", "w") as file, pytest.raises(io.UnsupportedOperation):
        file.read()


def test_opening_a_directory_fails(fs):
    fs.create_dir("/dir")
    for mode in ("r", "w", "rb"):
        with pytest.raises(IsADirectoryError) as raised:
            open("/dir", mode)
        assert raised.value.filename == "/dir"


def test_closed_files_say_so(fs):
    fs.create_file("/f", "data")
    file = open("/f")
    file.close()
    for use in (file.read, file.fileno, file.__enter__, lambda: file.seek(0)):
        with pytest.raises(ValueError):
            use()
    file.close()


def test_newlines(fs):
    fs.create_file("/dos", b"a\r\nb\r\n")
    assert open("/dos").read() == "a\nb\n"
    assert open("/dos", newline="").read() == "a\r\nb\r\n"
    with open("/out", "w", newline="\r\n") as file:
        print("x", file=file)
    assert open("/out", "rb").read() == b"x\r\n"


def test_line_iteration_and_seeking(fs):
    fs.create_file("/lines", "".join(f"line {n}\n" for n in range(1000)))
    with open("/lines") as file:
        assert sum(1 for _ in file) == 1000
        file.seek(0)
        assert next(file) == "line 0\n"
    with open("/lines", "rb") as file:
        file.seek(7)
        assert file.readline() == b"line 1\n" and file.tell() == 14


def test_unbuffered_and_buffered_layers(fs):
    with open("/f", "wb", buffering=0) as file:
        assert isinstance(file, io.RawIOBase) and isinstance(file, io.FileIO)
        assert file.write(b"abc") == 3
        assert os.path.getsize("/f") == 3
    with open("/f", "r+b") as file:
        assert isinstance(file, io.BufferedRandom)
    with open("/f", "rb") as file:
        assert isinstance(file, io.BufferedReader) and file.peek() == b"abc"
        assert file.mode == "rb" and file.name == "/f"


def test_what_is_buffered_is_not_yet_there(fs):
    with open("/f", "w") as file:
        file.write("pending")
        assert os.path.getsize("/f") == 0
        file.flush()
        assert os.path.getsize("/f") == 7


def test_truncation(fs):
    fs.create_file("/f", "0123456789")
    os.truncate("/f", 4)
    with open("/f", "r+") as file:
        assert file.read() == "0123"
        file.truncate(2)
        file.truncate(6)
    assert open("/f", "rb").read() == b"01\0\0\0\0"


def test_removed_files_stay_readable_through_descriptors(fs):
    fs.create_file("/f", "still here")
    with open("/f") as file:
        os.remove("/f")
        assert not os.path.exists("/f") and file.read() == "still here"
        assert os.fstat(file.fileno()).st_nlink == 0


def test_renaming(fs):
    fs.create_file("/a/file", "x")
    os.rename("/a", "/b")
    assert os.listdir("/b") == ["file"] and not os.path.exists("/a")
    fs.create_file("/c/file", "y")
    with pytest.raises(OSError) as raised:
        os.rename("/b", "/c")
    assert raised.value.errno == 39 and raised.value.filename == "/b" and raised.value.filename2 == "/c"
    os.replace("/b/file", "/c/file")
    assert open("/c/file").read() == "x"
    with pytest.raises(FileNotFoundError):
        os.rename("/nothing", "/d")


def test_directories(fs):
    os.makedirs("/a/b/c")
    os.makedirs("/a/b/c", exist_ok=True)
    with pytest.raises(FileExistsError):
        os.makedirs("/a/b/c")
    with pytest.raises(OSError) as raised:
        os.rmdir("/a")
    assert raised.value.errno == 39
    os.removedirs("/a/b/c")
    assert not os.path.exists("/a")
    fs.create_file("/file")
    with pytest.raises(NotADirectoryError):
        os.mkdir("/file/sub")
    with pytest.raises(NotADirectoryError):
        os.listdir("/file")


def test_walking(fs):
    for path in ("/top/one/1", "/top/one/2", "/top/two/3", "/top/4"):
        fs.create_file(path)
    fs.create_symlink("/top/link", "/top/one")
    seen = [(root, sorted(dirs), sorted(files)) for root, dirs, files in os.walk("/top")]
    assert sorted(seen) == [
        ("/top", ["link", "one", "two"], ["4"]),
        ("/top/one", [], ["1", "2"]),
        ("/top/two", [], ["3"]),
    ]
    assert [root for root, *_ in os.walk("/top", topdown=False)][-1] == "/top"
    assert ("/top/link", [], ["2", "1"]) in list(os.walk("/top", followlinks=True))
    assert {root for root, _d, _f, _fd in os.fwalk("/top")} == {"/top", "/top/one", "/top/two"}


def test_scandir(fs):
    fs.create_file("/d/file", "abc")
    fs.create_dir("/d/dir")
    fs.create_symlink("/d/link", "file")
    with os.scandir("/d") as entries:
        found = {entry.name: entry for entry in entries}
    assert found["file"].is_file() and found["dir"].is_dir() and found["link"].is_symlink()
    assert found["link"].is_file() and not found["link"].is_file(follow_symlinks=False)
    assert found["file"].stat().st_size == 3 and found["file"].inode() == os.stat("/d/file").st_ino
    assert os.fspath(found["file"]) == "/d/file"


def test_symbolic_links(fs):
    fs.create_file("/target", "t")
    os.symlink("target", "/link")
    assert os.path.islink("/link") and os.readlink("/link") == "target" and open("/link").read() == "t"
    assert os.path.realpath("/link") == "/target"
    os.remove("/target")
    assert os.path.lexists("/link") and not os.path.exists("/link")
    os.symlink("/loop2", "/loop1")
    os.symlink("/loop1", "/loop2")
    with pytest.raises(OSError) as raised:
        open("/loop1")
    assert raised.value.errno == 40


def test_relative_links_and_dotdot(fs):
    fs.create_file("/a/b/file", "deep")
    fs.create_symlink("/x/link", "../a/b")
    assert open("/x/link/file").read() == "deep"
    assert open("/x/link/../../a/b/file").read() == "deep"


def test_hard_links(fs):
    fs.create_file("/one", "same")
    os.link("/one", "/two")
    assert os.stat("/one").st_nlink == 2 and os.path.samefile("/one", "/two")
    with open("/two", "w") as file:
        file.write("changed")
    assert open("/one").read() == "changed"
    os.unlink("/one")
    assert os.stat("/two").st_nlink == 1


def test_the_current_directory(fs):
    fs.create_file("/desk/file", "here")
    os.chdir("/desk")
    assert os.getcwd() == "/desk" and open("file").read() == "here"
    assert os.path.abspath("file") == "/desk/file" and pathlib.Path.cwd() == pathlib.Path("/desk")
    os.chdir("..")
    assert os.getcwd() == "/"


def test_times(fs):
    fs.create_file("/f")
    os.utime("/f", (10, 20.5))
    status = os.stat("/f")
    assert (status.st_atime, status.st_mtime, status.st_mtime_ns) == (10.0, 20.5, 20_500_000_000)
    os.utime("/f", ns=(1, 2))
    assert os.stat("/f").st_mtime_ns == 2
    before = time.time()
    os.utime("/f")
    assert before - 1 <= os.stat("/f").st_mtime <= time.time() + 1
    fs.set_time(10**18)
    fs.create_file("/g")
    assert os.stat("/g").st_mtime == 10**9


def test_modes_and_the_umask(fs):
    os.umask(0o027)
    with open("/f", "w"):
        pass
    os.mkdir("/d")
    assert stat.S_IMODE(os.stat("/f").st_mode) == 0o640 and stat.S_IMODE(os.stat("/d").st_mode) == 0o750
    os.chmod("/f", 0o4711)
    assert stat.S_IMODE(os.stat("/f").st_mode) == 0o4711
    assert stat.filemode(os.stat("/f").st_mode) == "-rws--x--x"


def test_pathlib(fs):
    path = pathlib.Path("/home/me/notes")
    path.mkdir(parents=True)
    (path / "a.txt").write_text("A")
    (path / "b.md").write_bytes(b"B")
    (path / "sub").mkdir()
    (path / "sub" / "c.txt").touch(mode=0o600)
    assert sorted(p.name for p in path.glob("*.txt")) == ["a.txt"]
    assert sorted(p.name for p in path.rglob("*.txt")) == ["a.txt", "c.txt"]
    assert (path / "a.txt").stat().st_size == 1 and (path / "a.txt").exists() and path.is_dir()
    (path / "a.txt").rename(path / "z.txt")
    (path / "z.txt").unlink()
    (path / "gone").unlink(missing_ok=True)
    (path / "link").symlink_to("b.md")
    assert (path / "link").resolve() == path / "b.md" and (path / "link").read_text() == "B"
    with pytest.raises(FileNotFoundError):
        (path / "nothing").read_text()
    (path / "b.md").chmod(0o400)
    assert (path / "b.md").stat().st_mode & 0o777 == 0o400


def test_shutil(fs):
    fs.create_file("/src/a", "A" * 300_000, 0o750)
    fs.create_file("/src/sub/b", "B")
    os.utime("/src/a", (1, 2))
    shutil.copy2("/src/a", "/copy")
    assert os.stat("/copy").st_mtime == 2 and os.stat("/copy").st_mode & 0o777 == 0o750
    assert filecmp.cmp("/src/a", "/copy", shallow=False)
    shutil.copytree("/src", "/dst")
    assert open("/dst/sub/b").read() == "B"
    shutil.move("/dst", "/moved")
    assert not os.path.exists("/dst") and os.path.exists("/moved/sub/b")
    shutil.rmtree("/moved")
    assert not os.path.exists("/moved")
    with pytest.raises(FileNotFoundError):
        shutil.rmtree("/moved")
    with pytest.raises(shutil.SameFileError):
        shutil.copyfile("/src/a", "/src/a")


def test_archives(fs):
    fs.create_file("/data/x", "X" * 1000)
    archive = shutil.make_archive("/out", "zip", "/data")
    assert zipfile.ZipFile(archive).namelist() == ["x"]
    shutil.unpack_archive(archive, "/unpacked")
    assert open("/unpacked/x").read() == "X" * 1000
    archive = shutil.make_archive("/out", "gztar", "/data")
    shutil.unpack_archive(archive, "/again")
    assert open("/again/x").read() == "X" * 1000
    with gzip.open("/z.gz", "wt") as file:
        file.write("zipped")
    assert gzip.open("/z.gz", "rt").read() == "zipped"


def test_temporary_files(fs):
    with tempfile.NamedTemporaryFile(mode="w+") as file:
        file.write("t")
        file.flush()
        assert open(file.name).read() == "t"
    assert not os.path.exists(file.name)
    directory = tempfile.mkdtemp(prefix="pre")
    assert os.path.basename(directory).startswith("pre") and os.stat(directory).st_mode & 0o777 == 0o700
    handle, name = tempfile.mkstemp()
    os.write(handle, b"raw")
    os.close(handle)
    assert open(name).read() == "raw"
    with tempfile.SpooledTemporaryFile(max_size=4) as file:
        file.write(b"more than four")
        file.seek(0)
        assert file.read() == b"more than four"


def test_modules_that_read_and_write(fs):
    with open("/table.csv", "w", newline="") as file:
        csv.writer(file).writerows([["a", 1], ["b", 2]])
    assert list(csv.reader(open("/table.csv", newline=""))) == [["a", "1"], ["b", "2"]]
    with open("/conf.json", "w") as file:
        json.dump({"key": [1, 2]}, file)
    assert json.load(open("/conf.json")) == {"key": [1, 2]}
    with fileinput.input("/table.csv", inplace=True) as lines:
        for line in lines:
            print(line.upper(), end="")
    assert open("/table.csv").read().startswith("A,1")


def test_logging_to_a_file(fs):
    handler = logging.FileHandler("/tmp/app.log")
    logger = logging.getLogger("test_logging_to_a_file")
    logger.addHandler(handler)
    logger.warning("something happened")
    logger.removeHandler(handler)
    handler.close()
    assert open("/tmp/app.log").read() == "something happened\n"


def test_how_full_the_disk_is():
    from rcuwalk import FakeFilesystem

    with FakeFilesystem(size=1 << 20) as fs:
        fs.create_file("/f", b"x" * 4096 * 3)
        total, used, free = shutil.disk_usage("/")
        assert (total, used, free) == (1 << 20, 4096 * 3, (1 << 20) - 4096 * 3)


def test_file_locks(fs):
    import fcntl

    with open("/lock", "w") as one, open("/lock", "w") as two:
        fcntl.flock(one, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError):
            fcntl.flock(two, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(one, fcntl.LOCK_UN)
        fcntl.flock(two.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_low_level_calls(fs):
    fd = os.open("/f", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    assert os.write(fd, b"hello world") == 11
    assert os.lseek(fd, 6, os.SEEK_SET) == 6 and os.read(fd, 100) == b"world"
    assert os.pread(fd, 5, 0) == b"hello" and os.pwrite(fd, b"J", 0) == 1
    room = bytearray(3)
    assert os.preadv(fd, [room], 0) == 3 and room == b"Jel"
    assert os.writev(fd, [b"a", b"bc"]) == 3
    os.ftruncate(fd, 4)
    os.fsync(fd)
    other = os.dup(fd)
    os.close(fd)
    assert os.fstat(other).st_size == 4
    with os.fdopen(other) as file:
        file.seek(0)
        assert file.read() == "Jell"
    with pytest.raises(OSError) as raised:
        os.fstat(other)
    assert raised.value.errno == 9


def test_calls_relative_to_a_directory(fs):
    fs.create_file("/dir/file", "x")
    fd = os.open("/dir", os.O_RDONLY | os.O_DIRECTORY)
    assert os.stat("file", dir_fd=fd).st_size == 1 and os.access("file", os.R_OK, dir_fd=fd)
    os.mkdir("sub", dir_fd=fd)
    os.rename("file", "sub/file", src_dir_fd=fd, dst_dir_fd=fd)
    os.symlink("sub", "link", dir_fd=fd)
    assert os.readlink("link", dir_fd=fd) == "sub" and sorted(os.listdir(fd)) == ["link", "sub"]
    os.unlink("link", dir_fd=fd)
    os.fchdir(fd)
    assert os.getcwd() == "/dir"
    os.close(fd)


def test_extended_attributes(fs):
    fs.create_file("/f")
    os.setxattr("/f", "user.note", b"text")
    assert os.getxattr("/f", "user.note") == b"text" and os.listxattr("/f") == ["user.note"]
    with pytest.raises(FileExistsError):
        os.setxattr("/f", "user.note", b"", os.XATTR_CREATE)
    os.removexattr("/f", b"user.note")
    with pytest.raises(OSError) as raised:
        os.getxattr("/f", "user.note")
    assert raised.value.errno == 61


def test_special_files(fs):
    os.mkfifo("/fifo", 0o600)
    assert stat.S_ISFIFO(os.stat("/fifo").st_mode)
    os.mknod("/node", stat.S_IFCHR | 0o600, os.makedev(4, 1))
    assert os.stat("/node").st_rdev == os.makedev(4, 1)


def test_bytes_paths(fs):
    fs.create_file("/dir/naïve")
    assert os.listdir(b"/dir") == ["naïve".encode()]
    assert os.path.exists("/dir/naïve".encode()) and open(b"/dir/na\xc3\xafve").read() == ""
    with open(b"/dir/\xff\xfe", "w"):
        pass
    assert "\udcff\udcfe" in os.listdir("/dir") and os.path.exists("/dir/\udcff\udcfe")


def test_pausing(fs):
    fs.create_file("/only/here")
    fs.pause()
    assert not os.path.exists("/only/here") and os.path.exists(__file__)
    fs.resume()
    assert os.path.exists("/only/here")


def test_real_files_come_in_when_asked(fs):
    fs.add_real_file(__file__)
    assert "test_real_files_come_in_when_asked" in open(__file__).read()
    fs.add_real_paths([os.path.dirname(os.__file__) + "/json"])
    assert os.path.exists(json.__file__)


def test_no_file_is_left_open(fs, recwarn):
    with open("/f", "w") as file:
        file.write("x")
    open("/f").close()
    assert not [w for w in recwarn if issubclass(w.category, ResourceWarning)]
