"""The fixture `rcuwalk_fs`: what it replaces, whom it lets in, and that everything comes back."""

import builtins
import fcntl
import glob
import io
import os
import pathlib
import shutil
import tempfile
import threading

import pytest

REAL = {"open": builtins.open, "stat": os.stat, "FileIO": io.FileIO, "scandir": os.scandir}
HERE = os.path.abspath(__file__)


def test_the_machine_is_out_of_sight(rcuwalk_fs):
    assert not os.path.exists(HERE)
    assert sorted(os.listdir("/")) == ["dev", "home", "root", "tmp"]
    with pytest.raises(FileNotFoundError):
        open(HERE)


def test_everything_comes_back():
    assert builtins.open is REAL["open"] and io.open is REAL["open"]
    assert os.stat is REAL["stat"] and io.FileIO is REAL["FileIO"] and os.scandir is REAL["scandir"]
    assert os.path.exists(HERE)


def test_open_and_pathlib(rcuwalk_fs):
    with open("/tmp/a", "w") as file:
        file.write("one\ntwo\n")
    assert pathlib.Path("/tmp/a").read_text().splitlines() == ["one", "two"]
    assert os.stat("/tmp/a").st_size == 8
    pathlib.Path("/tmp/deep/er").mkdir(parents=True)
    assert [p.name for p in pathlib.Path("/tmp").iterdir()] == ["deep", "a"]
    assert sorted(glob.glob("/tmp/*")) == ["/tmp/a", "/tmp/deep"]
    assert [str(p) for p in pathlib.Path("/tmp").rglob("e*")] == ["/tmp/deep/er"]


def test_shutil_and_tempfile(rcuwalk_fs):
    directory = tempfile.mkdtemp()
    with tempfile.NamedTemporaryFile("w", dir=directory, delete=False) as file:
        file.write("x" * 100_000)
    shutil.copytree(directory, "/tmp/copy")
    assert os.path.getsize(f"/tmp/copy/{os.path.basename(file.name)}") == 100_000
    shutil.rmtree(directory)
    assert not os.path.exists(directory)
    with tempfile.TemporaryFile() as file:
        file.write(b"hello")
        file.seek(0)
        assert file.read() == b"hello"
    with tempfile.TemporaryDirectory() as directory:
        assert os.path.isdir(directory)


def test_users_are_held_to_their_permissions(rcuwalk_fs):
    fs = rcuwalk_fs
    fs.create_file("/srv/report", "secret", 0o640, uid=0, gid=27)
    with fs.as_user(1000, groups=[27]):
        assert os.getuid() == 1000 and open("/srv/report").read() == "secret"
        with pytest.raises(PermissionError) as raised:
            open("/srv/report", "w")
        assert raised.value.filename == "/srv/report"
        with fs.as_user(1001):
            with pytest.raises(PermissionError):
                open("/srv/report")
        with fs.as_user(1001, caps="CAP_DAC_READ_SEARCH"):
            assert open("/srv/report").read() == "secret"
    assert os.getuid() == 0 and open("/srv/report").read() == "secret"


def test_faults(rcuwalk_fs):
    fs = rcuwalk_fs
    fs.create_file("/data", "x" * 10)
    with fs.failing("EIO", "/data", "read"):
        with open("/data") as file, pytest.raises(OSError) as raised:
            file.read()
        assert raised.value.errno == 5
        os.link("/data", "/other")
        with pytest.raises(OSError), open("/other") as file:
            file.read()
    assert open("/data").read() == "x" * 10
    fs.full_after(6)
    with pytest.raises(OSError) as raised:
        with open("/big", "wb", buffering=0) as file:
            assert file.write(b"123456789") == 6
            file.write(b"789")
    assert raised.value.errno == 28
    fs.clear_faults()
    with fs.failing("EACCES", "/new", "open", times=1):
        with pytest.raises(PermissionError):
            open("/new", "w")
        open("/new", "w").close()


def test_real_descriptors_stay_real(rcuwalk_fs):
    read, write = os.pipe()
    os.write(write, b"through")
    assert os.read(read, 10) == b"through"
    os.close(read)
    os.close(write)
    assert os.fstat(1) is not None


def test_threads_see_it_too(rcuwalk_fs):
    fs = rcuwalk_fs
    fs.create_file("/f", "data", 0o600)
    seen = {}

    def work(name, uid):
        with fs.as_user(uid):
            try:
                seen[name] = open("/f").read()
            except OSError as error:
                seen[name] = type(error)

    threads = [threading.Thread(target=work, args=args) for args in [("root", 0), ("user", 1000)]]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert seen == {"root": "data", "user": PermissionError}


def test_a_failing_block_restores(rcuwalk_fs):
    from rcuwalk._fixture import FakeFilesystem

    with pytest.raises(ZeroDivisionError):
        with FakeFilesystem() as inner:
            inner.create_file("/only/inside")
            assert os.path.exists("/only/inside")
            with inner.as_user(5):
                1 / 0
    assert not os.path.exists("/only/inside") and os.getuid() == 0


def test_real_directories(rcuwalk_fs):
    fs = rcuwalk_fs
    fs.add_real_directory(os.path.dirname(HERE))
    assert "test_the_machine_is_out_of_sight" in open(HERE).read()
    with pytest.raises(OSError) as raised:
        open(HERE, "w")
    assert raised.value.errno == 30
    fs.add_real_directory(os.path.dirname(HERE), read_only=False, target_path="/mine")
    with open("/mine/test_fixture.py", "w") as file:
        file.write("changed")
    with fs.real_files():
        assert open(HERE).read() != "changed"


def test_devices_are_the_machines(rcuwalk_fs):
    with open(os.devnull, "w") as null:
        null.write("gone")
    with open("/dev/zero", "rb") as zero:
        assert zero.read(3) == b"\0\0\0"
    assert os.path.exists(os.devnull)


def test_entries_are_of_the_type_that_programs_ask_for(rcuwalk_fs):
    rcuwalk_fs.create_file("/d/f")
    with os.scandir("/d") as entries:
        assert all(isinstance(entry, os.DirEntry) for entry in entries)
    with rcuwalk_fs.real_files(), os.scandir(os.path.dirname(HERE)) as entries:
        assert all(isinstance(entry, os.DirEntry) for entry in entries)
    assert not isinstance("/d/f", os.DirEntry)


def test_a_fault_of_no_call_is_refused(rcuwalk_fs):
    with pytest.raises(ValueError, match="raed.*read"):
        rcuwalk_fs.fail("EIO", calls="raed")


def test_the_disk_has_room(rcuwalk_fs):
    usage = shutil.disk_usage("/tmp")
    assert usage.total == 1 << 40 and usage.free > usage.total // 2


def test_locks(rcuwalk_fs):
    with open("/tmp/lock", "w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(file, fcntl.LOCK_EX)
        assert fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
        process = rcuwalk_fs.root.fork()
        with process.open_file("/tmp/lock", "r+") as other, pytest.raises(BlockingIOError):
            process.fcntl_lockf(other, fcntl.LOCK_EX)
        with pytest.raises(OSError):
            fcntl.lockf(file, fcntl.LOCK_SH)
        fcntl.lockf(file, fcntl.LOCK_UN)


class TestTemporaryDirectories:
    """pytest makes them on the machine, before the fixture or after it; here they are empty."""

    def test_before(self, tmp_path, rcuwalk_fs):
        (tmp_path / "file").write_text("here")
        with rcuwalk_fs.real_files():
            assert tmp_path.is_dir() and not (tmp_path / "file").exists()

    def test_after(self, rcuwalk_fs, tmp_path):
        (tmp_path / "file").write_text("here")
        with rcuwalk_fs.real_files():
            assert tmp_path.is_dir() and not (tmp_path / "file").exists()

    def test_made_by_the_test(self, rcuwalk_fs, tmp_path_factory):
        path = tmp_path_factory.mktemp("mine")
        (path / "file").write_text("here")
        with rcuwalk_fs.real_files():
            assert not path.exists()

    def test_elsewhere(self, tmp_path):
        (tmp_path / "file").write_text("on the machine")

    def test_nothing_else_is_there(self, rcuwalk_fs):
        assert os.listdir("/tmp") == []
