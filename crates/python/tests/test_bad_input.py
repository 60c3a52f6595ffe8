"""What the interface does with what makes no sense: an error, never a crash."""

import gc
import io
import os
import pickle
import subprocess
import sys
import textwrap
import threading

import pytest

from rcuwalk import Cred, FileIO, Task, Vfs, open_file


@pytest.fixture
def task():
    return Vfs(capacity=1 << 14).task()


PATH_CALLS = [
    ("stat", ()),
    ("lstat", ()),
    ("access", (0,)),
    ("open", (0,)),
    ("mkdir", ()),
    ("rmdir", ()),
    ("unlink", ()),
    ("remove", ()),
    ("readlink", ()),
    ("listdir", ()),
    ("scandir", ()),
    ("chmod", (0,)),
    ("chown", (0, 0)),
    ("lchown", (0, 0)),
    ("utime", ()),
    ("truncate", (0,)),
    ("chdir", ()),
    ("chroot", ()),
    ("rename", ("/x",)),
    ("link", ("/x",)),
    ("symlink", ("/x",)),
    ("getxattr", ("user.a",)),
    ("setxattr", ("user.a", b"")),
    ("listxattr", ()),
    ("removexattr", ("user.a",)),
    ("mkfifo", ()),
    ("mknod", ()),
    ("statx", ()),
    ("openat2", ()),
    ("execve", ([],)),
    ("mount", ("/x",)),
    ("umount2", ()),
]


@pytest.mark.parametrize("name, rest", PATH_CALLS, ids=[name for name, _ in PATH_CALLS])
def test_no_path_at_all(task, name, rest):
    call = getattr(task, name)
    for wrong in (3.5, [], {}, object(), ("/",)):
        with pytest.raises(TypeError):
            call(wrong, *rest)
    for nul in ("a\0b", b"a\0b", "\0"):
        with pytest.raises(ValueError):
            call(nul, *rest)
    if name not in ("listdir", "scandir", "listxattr"):
        with pytest.raises(TypeError):
            call()
    with pytest.raises((OSError, UnicodeEncodeError)):
        call("\ud800/nothing", *rest)


def test_type_errors_read_like_those_of_os(task):
    with pytest.raises(TypeError, match="stat: path should be string, bytes, os.PathLike or integer, not list"):
        task.stat([])
    with pytest.raises(TypeError, match="mkdir: path should be string, bytes or os.PathLike, not int"):
        task.mkdir(3)


def test_path_like_objects(task):
    class Path:
        def __init__(self, answer):
            self.answer = answer

        def __fspath__(self):
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

    task.mkdir(Path("/d"))
    assert task.listdir(Path(b"/")) == [b"d"]
    with pytest.raises(KeyError):
        task.stat(Path(KeyError("mine")))
    with pytest.raises(TypeError):
        task.stat(Path(5))
    nothing = Path("/nothing")
    with pytest.raises(FileNotFoundError) as raised:
        task.stat(nothing)
    assert raised.value.filename is nothing


def test_errors_are_those_of_os(task):
    for call, error in [
        (lambda: task.stat("/no"), FileNotFoundError),
        (lambda: task.mkdir("/"), FileExistsError),
        (lambda: task.rmdir("/"), OSError),
        (lambda: task.fork(Cred(1)).mkdir("/d"), PermissionError),
        (lambda: task.read(0, 1), OSError),
    ]:
        with pytest.raises(error) as raised:
            call()
        assert raised.value.strerror == os.strerror(raised.value.errno)


def test_every_message_is_the_c_librarys():
    import errno

    vfs = Vfs(capacity=64)
    wrong = {}
    for number in errno.errorcode:
        rule = vfs.inject(number, calls=["stat"])
        with pytest.raises(OSError) as raised:
            vfs.task().stat("/")
        vfs.clear_faults(rule)
        if raised.value.strerror != os.strerror(number):
            wrong[number] = raised.value.strerror
    assert not wrong


def test_numbers_out_of_range(task):
    task.write_bytes("/f", b"data")
    for call in [
        lambda: task.read(2**40, 1),
        lambda: task.read(-(2**40), 1),
        lambda: task.mkdir("/d", 2**70),
        lambda: task.chown("/f", 2**32, 0),
        lambda: task.chown("/f", -2, 0),
        lambda: task.truncate("/f", 2**63),
        lambda: task.utime("/f", (1e300, 0)),
        lambda: task.utime("/f", ns=(2**200, 0)),
        lambda: task.umask(2**40),
        lambda: Cred(-1),
        lambda: Cred(2**32),
        lambda: Vfs(capacity=-1),
    ]:
        with pytest.raises(OverflowError):
            call()
    for call in [lambda: task.truncate("/f", -1), lambda: task.fchmod(-1, 0), lambda: task.close(2**31 - 1), lambda: Cred(2**32 - 1)]:
        with pytest.raises(OSError):
            call()
    with pytest.raises(ValueError):
        task.read(0, -1)
    with pytest.raises(ValueError):
        task.utime("/f", (float("nan"), 0))


def test_wrong_types_elsewhere(task):
    task.write_bytes("/f", b"data")
    fd = task.open("/f", os.O_RDWR)
    for call in [
        lambda: task.write(fd, "text"),
        lambda: task.write(fd, 5),
        lambda: task.readinto(fd, b"read-only"),
        lambda: task.readinto(fd, "text"),
        lambda: task.utime("/f", 5),
        lambda: task.utime("/f", (1, 2, 3)),
        lambda: task.utime("/f", ns=[1, 2]),
        lambda: task.fsync("fd"),
        lambda: task.dup("fd"),
        lambda: task.setxattr("/f", "user.a", "text"),
        lambda: Task(5),
        lambda: Task(task, how=5),
        lambda: Task(task, 5),
        lambda: Cred(caps=1.5),
        lambda: task.fork("root"),
        lambda: task.setgroups("ab"),
    ]:
        with pytest.raises(TypeError):
            call()
    for call in [
        lambda: Cred(caps="CAP_NONSENSE"),
        lambda: Task(task, how="spawn"),
        lambda: Task(task, fd_base=-1),
        lambda: task.utime("/f", (1, 1), ns=(1, 1)),
        lambda: task.vfs.inject(0),
        lambda: task.vfs.inject(5, path="relative"),
        lambda: task.vfs.inject(5, times=0),
        lambda: open_file(task, "/f", "q"),
        lambda: open_file(task, "/f", "rw"),
        lambda: open_file(task, "/f", "rb", encoding="utf-8"),
        lambda: open_file(task, "/f", "r", buffering=0),
        lambda: open_file(task, "/f", closefd=False),
        lambda: open_file(task, -1),
    ]:
        with pytest.raises(ValueError):
            call()


def test_surrogates_and_bytes_round_trip(task):
    names = ["plain", "ünï", "\udcff\udc80", "日本", " ", "a" * 255]
    for name in names:
        task.write_bytes(f"/{name}", name.encode("utf-8", "surrogateescape"))
    assert task.listdir("/") == names[::-1]
    assert task.listdir(b"/") == [os.fsencode(name) for name in names[::-1]]
    for name in names:
        assert task.read_bytes(os.fsencode(f"/{name}")) == os.fsencode(name)
        assert [entry.name for entry in task.scandir("/") if entry.name == name]


def test_use_after_close(task):
    file = open_file(task, "/f", "w")
    raw = file.buffer.raw
    file.close()
    for use in (file.read, file.flush, raw.fileno, raw.readall, raw.tell, lambda: raw.write(b"x"), raw.seekable):
        with pytest.raises(ValueError):
            use()
    raw.close()
    scan = task.scandir("/")
    scan.close()
    assert list(scan) == []


def test_a_descriptor_closed_behind_a_file(task):
    file = open_file(task, "/f", "wb")
    task.close(file.fileno())
    file.write(b"data")
    with pytest.raises(OSError) as raised:
        file.close()
    assert raised.value.errno == 9 and file.closed


def test_openers(task):
    def opener(path, flags):
        return task.open(path, flags, 0o600)

    with open_file(task, "/f", "w", opener=opener) as file:
        file.write("x")
    assert task.stat("/f").st_mode & 0o777 == 0o600
    with pytest.raises(RuntimeError):
        open_file(task, "/f", opener=lambda path, flags: (_ for _ in ()).throw(RuntimeError()))
    with pytest.raises(TypeError):
        open_file(task, "/f", opener=lambda path, flags: "fd")
    with pytest.raises(ValueError):
        open_file(task, "/f", opener=lambda path, flags: -1)


def test_exceptions_inside_callbacks(task):
    task.mkdir("/secret", 0)
    user = task.fork(Cred(1000))

    def onerror(error):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError):
        list(user.walk("/secret", onerror=onerror))
    errors = []
    assert list(user.walk("/secret", onerror=errors.append)) == [] and isinstance(errors[0], PermissionError)


def test_buffers_of_all_kinds(task):
    import array

    fd = task.open("/f", os.O_RDWR | os.O_CREAT)
    assert task.write(fd, array.array("I", [1, 2])) == 8
    assert task.pwrite(fd, memoryview(b"abcdef")[::1], 0) == 6
    room = array.array("H", [0, 0, 0])
    assert task.readinto(fd, room, 0) == 6 and room.tobytes() == b"abcdef"
    small = bytearray(100)
    assert task.readinto(fd, small, 4) == 4
    task.write(fd, memoryview(b"abcdefgh")[::2])
    assert task.pread(fd, 4, 8) == b"aceg"
    apart = bytearray(8)
    assert task.readinto(fd, memoryview(apart)[::2], 0) == 4 and apart == b"a\0b\0c\0d\0"
    with pytest.raises((TypeError, BufferError)):
        task.readinto(fd, memoryview(bytearray(80))[::2], 0)


def test_large_data_goes_through_whole(task):
    data = os.urandom(5_000_000)
    with open_file(task, "/big", "wb") as file:
        file.write(data)
    with open_file(task, "/big", "rb") as file:
        assert file.read() == data
        file.seek(1_000_000)
        assert file.read(123) == data[1_000_000:1_000_123]
    assert task.read(task.open("/big", os.O_RDONLY), 2**62)[:3] == data[:3]


def test_files_are_not_pickled(task):
    with pytest.raises(TypeError):
        pickle.dumps(FileIO(task, "/f", "w"))


def test_unclosed_files_warn_and_close(task):
    with pytest.warns(ResourceWarning):
        open_file(task, "/f", "w").write("kept")
        gc.collect()
    assert task.read_bytes("/f") == b"kept"


def test_a_file_outlives_its_task_and_file_system():
    file = Vfs(capacity=64).task().open_file("/f", "w+")
    gc.collect()
    file.write("x")
    file.seek(0)
    assert file.read() == "x"
    file.close()


def test_threads(task):
    task.mkdir("/d")
    stop, problems = threading.Event(), []

    def churn(n):
        try:
            while not stop.is_set():
                mine = task.thread(Cred(n))
                task.write_bytes(f"/d/{n}", b"x" * 20_000, 0o600)
                task.rename(f"/d/{n}", f"/d/{n}.new")
                task.chmod(f"/d/{n}.new", 0o644)
                mine.setresuid(-1, -1, -1)
                task.unlink(f"/d/{n}.new")
        except Exception as problem:
            problems.append(problem)

    def look():
        try:
            while not stop.is_set():
                for entry in task.scandir("/d"):
                    try:
                        entry.stat()
                    except FileNotFoundError:
                        pass
                with open_file(task, "/d", "r") as _:
                    pass
        except IsADirectoryError:
            pass
        except Exception as problem:
            problems.append(problem)

    threads = [threading.Thread(target=churn, args=(n,)) for n in (1, 2, 3)] + [threading.Thread(target=look) for _ in "ab"]
    [thread.start() for thread in threads]
    stop.wait(0.5)
    stop.set()
    [thread.join(20) for thread in threads]
    assert not any(thread.is_alive() for thread in threads) and not problems


def test_one_file_from_many_threads(task):
    fd = task.open("/log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    threads = [threading.Thread(target=lambda: [task.write(fd, b"line\n") for _ in range(500)]) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert task.read_bytes("/log") == b"line\n" * 2000


def run(program):
    """In an interpreter of its own: what is tested here may end it."""
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_after_fork():
    out = run(
        """
        import os, threading
        from rcuwalk import Vfs
        task = Vfs().task()
        task.mkdir("/d")
        stop = threading.Event()
        def churn():
            n = 0
            while not stop.is_set():
                task.write_bytes(f"/d/f{n % 50}", b"x" * 100_000)
                n += 1
        threads = [threading.Thread(target=churn) for _ in range(3)]
        [thread.start() for thread in threads]
        for n in range(20):
            pid = os.fork()
            if pid == 0:
                # The child has a copy: it works, and changes nothing for the parent.
                task.mkdir(f"/d/child")
                task.write_bytes("/d/child/f", b"mine")
                os._exit(0 if task.read_bytes("/d/child/f") == b"mine" else 1)
            assert os.waitpid(pid, 0)[1] == 0
        stop.set()
        [thread.join() for thread in threads]
        print(task.exists("/d/child"))
        """
    )
    assert out == "False\n"


def test_at_exit():
    run(
        """
        import builtins, threading, time
        from rcuwalk import Vfs
        task = Vfs().task()
        file = task.open_file("/f", "w")
        file.write("never closed")
        threading.Thread(target=lambda: [task.stat("/") for _ in iter(int, 1)], daemon=True).start()
        builtins.keep = task
        time.sleep(0.1)
        """
    )


def test_buffered_wrappers_close_what_they_hold(task):
    raw = FileIO(task, "/f", "w")
    with io.BufferedWriter(raw) as file:
        file.write(b"abc")
    assert raw.closed and task.read_bytes("/f") == b"abc"
