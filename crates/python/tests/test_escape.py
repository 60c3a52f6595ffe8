"""Nothing under the fixture reaches the machine's files without being asked to."""

import functools
import io
import mmap
import os
import select
import socket
import sqlite3
import subprocess
import sys
import types
import warnings

import pytest
import rows
from rcuwalk import Cred, EscapeError, FakeFilesystem, Vfs

HERE = os.path.abspath(__file__)


class Reader:
    """Keeps copies of the functions as classes and instances do."""

    opener = open
    look = staticmethod(os.stat)

    def __init__(self):
        self.listing = os.listdir

    def read(self, path, opener=open, *, remove=os.unlink):
        with opener(path) as file:
            text = file.read()
        remove(path)
        return text


def _closure(function):
    return lambda path: function(path)


READER = Reader()
OPEN_TEXT = functools.partial(open, mode="r", encoding="utf-8")
KEPT_MKDIR = _closure(os.mkdir)
TABLE = {"stat": os.stat, "all": [1]}
LIST = [os.rmdir]
SIZE = types.SimpleNamespace(of=os.path.getsize, lstat=os.lstat)


def test_copies_are_found_wherever_they_are_kept(rcuwalk_fs):
    rcuwalk_fs.create_file("/tmp/f", "text")
    assert Reader.look("/tmp/f").st_size == READER.look("/tmp/f").st_size == 4
    with READER.opener("/tmp/f") as file:
        assert file.read() == "text"
    assert READER.listing("/tmp") == ["f"]
    with OPEN_TEXT("/tmp/f") as file:
        assert file.read() == "text"
    assert TABLE["stat"]("/tmp/f").st_size == SIZE.lstat("/tmp/f").st_size == SIZE.of("/tmp/f") == 4
    KEPT_MKDIR("/tmp/d")
    LIST[0]("/tmp/d")
    assert READER.read("/tmp/f") == "text"
    assert READER.listing("/tmp") == [] and not os.path.exists(HERE)


def test_copies_come_back():
    real = os.stat
    assert TABLE["stat"] is real and Reader.look is real and isinstance(vars(Reader)["look"], staticmethod)
    assert READER.listing is os.listdir and LIST == [os.rmdir] and OPEN_TEXT.func is open
    assert OPEN_TEXT.keywords == {"mode": "r", "encoding": "utf-8"}
    assert Reader.read.__defaults__ == (open,) and Reader.read.__kwdefaults__ == {"remove": os.unlink}
    with READER.opener(HERE) as file:
        assert file.readline().startswith('"""Nothing under')


def test_a_copy_that_nobody_could_find_is_refused():
    hidden = (os.listdir, open)  # a tuple cannot be changed
    with FakeFilesystem():
        with pytest.raises(EscapeError, match="os.listdir was called with '/'.*copy"):
            hidden[0]("/")
        with pytest.raises(EscapeError, match=r"the machine's open\(\)"):
            hidden[1](HERE)
    with FakeFilesystem() as fs, fs.real_files():
        assert hidden[0]("/")
    with FakeFilesystem(allow_escape=True):
        assert "proc" in hidden[0]("/")
    assert hidden[0]("/")


def test_child_processes_are_refused(rcuwalk_fs, tmp_path_factory):
    for run in [
        lambda: subprocess.run(["/bin/true"]),
        lambda: subprocess.run("true", shell=True),
        lambda: subprocess.Popen([sys.executable, "-c", ""], close_fds=False),
        lambda: os.system("true"),
        lambda: os.popen("true"),
        lambda: os.spawnv(os.P_WAIT, "/bin/true", ["true"]),
        lambda: os.posix_spawn("/bin/true", ["true"], {}),
        lambda: os.execv("/bin/true", ["true"]),
    ]:
        with pytest.raises(EscapeError, match="real_files"):
            run()
    with rcuwalk_fs.real_files():
        assert subprocess.run(["true"]).returncode == 0


@pytest.mark.rcuwalk_fs(allow_escape=True)
def test_child_processes_if_allowed(rcuwalk_fs):
    assert subprocess.run(["true"]).returncode == 0
    with open("/tmp/out", "w") as file, pytest.raises(EscapeError, match="subprocess.PIPE"):
        subprocess.run(["true"], stdout=file)


def test_sqlite_is_refused_but_in_memory(rcuwalk_fs):
    for name in ("/tmp/x.db", "file:/tmp/x.db"):
        with pytest.raises(EscapeError, match="SQLite opens files itself"):
            sqlite3.connect(name, uri=name.startswith("file:"))
    for name in (":memory:", "file::memory:", "file:any?mode=memory"):
        sqlite3.connect(name, uri=name.startswith("file:")).close()


def test_sockets_are_refused_where_they_are_files(rcuwalk_fs):
    with socket.socket(socket.AF_UNIX) as sock:
        for call in (sock.bind, sock.connect):
            with pytest.raises(EscapeError, match="/tmp/socket"):
                call("/tmp/socket")
        sock.bind("\0rcuwalk-test-%d" % os.getpid())
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
    a, b = socket.socketpair()
    a.close(), b.close()


def test_mmap_says_what_to_do(rcuwalk_fs):
    rcuwalk_fs.create_file("/tmp/f", "text")
    with open("/tmp/f", "rb") as file, pytest.raises(EscapeError, match="bytearray"):
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    mmap.mmap(-1, 4096).close()


def test_every_text_mode(rcuwalk_fs):
    for mode in ("wt", "tw", "w+t", "at", "rt", "r+t"):
        with open("/tmp/text", mode, encoding="utf-8") as file:
            assert isinstance(file, io.TextIOWrapper) and file.mode == mode
            if "w" in mode:
                file.write("grün")
            elif "r" in mode:
                assert file.read() == "grün"
    with open("/tmp/new", "xt"):
        pass
    for mode in ("rt", "wt"):
        with pytest.raises(ValueError, match=f"invalid mode: {mode}"):
            io.FileIO("/tmp/text", mode)


def test_open_code_takes_paths_alone(rcuwalk_fs):
    read, write = os.pipe()
    for wrong in (read, b"/tmp", None):
        with pytest.raises(TypeError, match="open_code.* must be str"):
            io.open_code(wrong)
    os.close(read), os.close(write)


def test_chmod_of_a_link(rcuwalk_fs):
    os.symlink("f", "/tmp/l")
    rcuwalk_fs.create_file("/tmp/f")
    os.chmod("/tmp/f", 0o600, follow_symlinks=False)
    with pytest.raises(NotImplementedError, match="follow_symlinks unavailable"):
        os.chmod("/tmp/l", 0o600, follow_symlinks=False)
    fd = os.open("/tmp", os.O_RDONLY)
    with pytest.raises(ValueError, match="cannot use dir_fd and follow_symlinks together"):
        os.chmod("l", 0o600, dir_fd=fd, follow_symlinks=False)
    os.close(fd)


def test_sendfile_splice_and_select(rcuwalk_fs):
    rcuwalk_fs.create_file("/tmp/from", "0123456789")
    source, out = os.open("/tmp/from", os.O_RDONLY), os.open("/tmp/to", os.O_RDWR | os.O_CREAT)
    assert os.sendfile(out_fd=out, in_fd=source, offset=2, count=3) == 3
    assert os.pread(out, 9, 0) == b"234"
    read, write = os.pipe()
    assert os.sendfile(out_fd=write, in_fd=source, offset=0, count=2) == 2
    assert os.read(read, 9) == b"01"
    if hasattr(os, "splice"):
        assert os.splice(source, write, 4, offset_src=6) == 4
        assert os.splice(read, out, 4, offset_dst=0) == 4 and os.pread(out, 9, 0) == b"6789"
        with pytest.raises(OSError):
            os.splice(source, out, 1)
    assert select.select([source, read], [out, write], [], 5) == ([source], [out, write], [])
    assert os.fpathconf(source, "PC_NAME_MAX") == os.pathconf("/tmp", "PC_NAME_MAX") == 255
    with pytest.raises(FileNotFoundError):
        os.pathconf("/none", "PC_NAME_MAX")
    os.lockf(out, os.F_LOCK, 0)
    os.lockf(out, os.F_ULOCK, 0)
    for fd in (source, out, read, write):
        os.close(fd)


def test_scandir_warns_if_it_is_left_open(rcuwalk_fs):
    rcuwalk_fs.create_file("/tmp/f")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        it = os.scandir("/tmp")
        list(it)
        del it
        with os.scandir("/tmp"):
            pass
        assert not caught
        it = os.scandir("/tmp")
        del it
    assert [(warning.category, str(warning.message)) for warning in caught] == [
        (ResourceWarning, "unclosed scandir iterator")
    ]


def test_an_environment_is_a_mapping():
    task = Vfs().task()
    task.mkdir("/bin")
    task.write_bytes("/bin/true", b"\x7fELF" + bytes(60), 0o755)
    with pytest.raises(OSError):
        task.execve("/bin/none", ["x"], {"A": "1"})
    with pytest.raises(ValueError, match="illegal environment variable name"):
        task.execve("/bin/true", ["x"], {"A=B": "1"})
    task.write_bytes("/bin/script", b"#!/bin/interp\n", 0o755)
    task.write_bytes("/bin/interp", rows.program(), 0o755)
    started = task.execve("/bin/script", ["x"], {"A": "1", "PATH": "/bin"})
    assert started["envp"] == [b"A=1", b"PATH=/bin"]
    other = task.fork(Cred(1000))
    assert other.execvpe("script", ["x"], {"PATH": "/none:/bin"})["filename"] == b"/bin/script"
    with pytest.raises(FileNotFoundError):
        task.execvpe("script", ["x"], {"PATH": "/none"})


def test_numpy_saves_and_loads(rcuwalk_fs):
    with rcuwalk_fs.real_files():
        numpy = pytest.importorskip("numpy")
    array = numpy.arange(1000)
    numpy.save("/tmp/a.npy", array)
    assert (numpy.load("/tmp/a.npy") == array).all()
    numpy.savez("/tmp/a.npz", array=array)
    with numpy.load("/tmp/a.npz") as loaded:
        assert (loaded["array"] == array).all()
    numpy.savetxt("/tmp/a.txt", array)
    assert (numpy.loadtxt("/tmp/a.txt") == array).all()
    with open("/tmp/raw", "wb") as file, pytest.raises((OSError, EscapeError)):
        array.tofile(file)
