"""Puts a task's file system in the place of the machine's, for the whole process, and takes it away again.

What is replaced are the functions of `os` and the openers of `builtins` and `io`, where they stand in their own modules and
where other modules have copied them to. `pathlib`, `shutil`, `tempfile`, `glob` and the rest of the library call those, and so
see the task's files without being touched. The functions stay replaced until the last patcher has gone; each call asks which
patcher is the innermost, and goes to the machine if there is none, or if the calling thread has asked for that.

Descriptors of the task are numbered from `FD_BASE` on, far above what the kernel gives out: a call with a lower one, such
as a pipe's or the standard output's, goes to the machine.
"""

from __future__ import annotations

import _posixsubprocess
import builtins
import contextlib
import errno
import fcntl
import io
import os
import select
import stat
import tempfile
import threading
import types

from collections.abc import Iterator
from typing import Any

from . import _copies, _escape
from ._io import FileIO, open_file
from ._rcuwalk import DirEntry

FD_BASE = 1 << 28

_real: dict[str, Any] = {}
_stack: list["Patcher"] = []
_lock = threading.RLock()


class _Thread(threading.local):
    """What one thread has asked for."""

    real = 0
    tasks: tuple[Any, ...] = ()


_thread = _Thread()

# Functions whose first argument is a path: never a descriptor.
_PATHS = (
    "chroot lchown link lstat mkdir mkfifo mknod readlink remove rename replace rmdir symlink unlink".split()
)
# Functions whose first argument is a path or a descriptor.
_EITHER = "access chdir chmod chown getxattr listdir listxattr removexattr scandir setxattr stat statvfs truncate utime".split()
# Functions whose first argument is a descriptor.
_FDS = (
    "close fchmod fchown fdatasync fstat fstatvfs fsync ftruncate get_blocking get_inheritable isatty lseek pread preadv pwrite "
    "posix_fadvise posix_fallocate pwritev read readv set_blocking set_inheritable write writev dup fchdir"
).split()
# Functions about the process.
_PROCESS = (
    "getcwd getcwdb getegid geteuid getgid getgroups getresgid getresuid getuid setegid seteuid setgid setgroups setregid "
    "setresgid setresuid setreuid setuid umask"
).split()

# Devices that stand for the machine's own when they are opened.
_DEVICES = {os.makedev(1, minor): path for minor, path in [(3, "/dev/null"), (5, "/dev/zero"), (7, "/dev/full")]}
_DEVICES |= {os.makedev(1, 8): "/dev/random", os.makedev(1, 9): "/dev/urandom", os.makedev(5, 0): "/dev/tty"}


def _task() -> Any:
    """The task that the calling thread acts as; `None` for the machine itself."""
    if _thread.real or not _stack:
        return None
    tasks = _thread.tasks
    for patcher, task in reversed(tasks):
        if patcher is _stack[-1]:
            return task
    return _stack[-1].task


def _is_fake(fd: Any) -> Any:
    return isinstance(fd, int) and fd >= FD_BASE


def _of_path(name: Any, real: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        task = _task()
        return real(*args, **kwargs) if task is None else getattr(task, name)(*args, **kwargs)

    return call


def _of_either(name: Any, real: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        task = _task()
        if task is None or (args and isinstance(args[0], int) and args[0] < FD_BASE):
            return real(*args, **kwargs)
        return getattr(task, name)(*args, **kwargs)

    return call


def _fd_of(value: Any) -> Any:
    if isinstance(value, int):
        return value
    fileno = getattr(value, "fileno", None)
    return fileno() if callable(fileno) else value


def _of_fd(name: Any, real: Any) -> Any:
    def call(fd: Any, *args: Any, **kwargs: Any) -> Any:
        number = fd if isinstance(fd, int) else _fd_of(fd)
        if not _is_fake(number):
            return real(fd, *args, **kwargs)
        # A descriptor outlives a block that sees the machine.
        owner = _task() or _owner()
        return getattr(owner, name)(number, *args, **kwargs)

    return call


def _owner() -> Any:
    return _stack[-1].task if _stack else _last[0]


# The task whose descriptors may still be open after the last patcher has gone.
_last: list[Any] = [None]


def _open(path: Any, flags: Any, mode: Any = 0o777, *, dir_fd: Any = None) -> Any:
    """Open a file for low level IO.  Returns a file descriptor (integer)."""
    task = _task()
    if task is None:
        return _real["os.open"](path, flags, mode, dir_fd=dir_fd)
    try:
        return task.open(path, flags, mode, dir_fd=dir_fd)
    except OSError as error:
        device = _device(task, path, dir_fd) if error.errno == 6 else None
        if device is None:
            raise
        return _real["os.open"](device, flags & ~(os.O_CREAT | os.O_TRUNC | os.O_EXCL), mode)


def _device(task: Any, path: Any, dir_fd: Any = None) -> Any:
    """The device of the machine that a device of the task stands for."""
    try:
        status = task.stat(path, dir_fd=dir_fd)
    except (OSError, ValueError):
        return None
    return _DEVICES.get(status.st_rdev) if stat.S_ISCHR(status.st_mode) else None


def _builtin_open(
    file: Any, mode: Any = "r", buffering: Any = -1, encoding: Any = None, errors: Any = None, newline: Any = None, closefd: Any = True, opener: Any = None
) -> Any:
    """Open file and return a stream.  Raise OSError upon failure."""
    task = _task()
    if isinstance(file, int):
        if file < FD_BASE:
            task = None
        else:
            task = task or _owner()
    if task is None:
        return _real["io.open"](file, mode, buffering, encoding, errors, newline, closefd, opener)
    if opener is not None:
        return _open_with(task, file, mode, buffering, encoding, errors, newline, closefd, opener)
    try:
        return open_file(task, file, mode, buffering, encoding, errors, newline, closefd, None)
    except OSError as error:
        device = _device(task, file) if error.errno == 6 else None
        if device is None:
            raise
        return _real["io.open"](device, mode.replace("x", "w"), buffering, encoding, errors, newline)


def _open_with(task: Any, file: Any, mode: Any, buffering: Any, encoding: Any, errors: Any, newline: Any, closefd: Any, opener: Any) -> Any:
    """With an opener, whose descriptor may be the machine's."""
    opened = []

    def remember(path: Any, flags: Any) -> Any:
        fd = opener(path, flags)
        opened.append(fd)
        return fd

    class _Machine(Exception):
        pass

    def only_ours(path: Any, flags: Any) -> Any:
        fd = remember(path, flags)
        if isinstance(fd, int) and 0 <= fd < FD_BASE:
            raise _Machine
        return fd

    try:
        return open_file(task, file, mode, buffering, encoding, errors, newline, closefd, only_ours)
    except _Machine:
        fd = opened[0]
        return _real["io.open"](file, mode, buffering, encoding, errors, newline, True, lambda _path, _flags: fd)


def _open_code(path: Any) -> Any:
    """Opens the provided file with the intent to import the contents."""
    if not isinstance(path, str):
        raise TypeError(f"open_code() argument 'path' must be str, not {type(path).__name__}")
    return _builtin_open(path, "rb")


def _dup2(fd: Any, fd2: int, inheritable: bool = True) -> Any:
    """Duplicate file descriptor."""
    if _is_fake(fd) and _is_fake(fd2):
        return (_task() or _owner()).dup2(fd, fd2, inheritable)
    return _real["os.dup2"](fd, fd2, inheritable)


def _closerange(fd_low: Any, fd_high: Any) -> None:
    """Closes all file descriptors in [fd_low, fd_high), ignoring errors."""
    _real["os.closerange"](fd_low, min(fd_high, FD_BASE))
    if fd_high > FD_BASE:
        (_task() or _owner()).closerange(max(fd_low, FD_BASE), fd_high)


def _sendfile(out_fd: Any, in_fd: Any, offset: Any, count: int) -> Any:
    """Copy count bytes from file descriptor in_fd to file descriptor out_fd."""
    if not _is_fake(out_fd) and not _is_fake(in_fd):
        return _real["os.sendfile"](out_fd, in_fd, offset, count)
    task = _task() or _owner()
    if _is_fake(out_fd) and _is_fake(in_fd):
        return task.sendfile(out_fd, in_fd, offset, count)
    return _crossing(task, in_fd, out_fd, count, offset, None)


def _copy_file_range(src: Any, dst: Any, count: int, offset_src: int | None = None, offset_dst: int | None = None) -> Any:
    """Copy count bytes from one file descriptor to another."""
    if not _is_fake(src) and not _is_fake(dst):
        return _real["os.copy_file_range"](src, dst, count, offset_src, offset_dst)
    task = _task() or _owner()
    if _is_fake(src) and _is_fake(dst):
        return task.copy_file_range(src, dst, count, offset_src, offset_dst)
    return _crossing(task, src, dst, count, offset_src, offset_dst)


def _splice(src: Any, dst: Any, count: int, offset_src: int | None = None, offset_dst: int | None = None, flags: Any = 0) -> Any:
    """Transfer count bytes from one pipe to a descriptor or vice versa without copying."""
    if not _is_fake(src) and not _is_fake(dst):
        return _real["os.splice"](src, dst, count, offset_src, offset_dst, flags)
    machine = [fd for fd in (src, dst) if not _is_fake(fd)]
    if not machine or not stat.S_ISFIFO(_real["os.fstat"](machine[0]).st_mode):
        # One of them has to be a pipe, and the task has none.
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    return _crossing(_task() or _owner(), src, dst, count, offset_src, offset_dst)


def _crossing(task: Any, source: Any, out: Any, count: int, offset_src: int | None, offset_dst: int | None) -> Any:
    """Copies between the machine and the task."""
    read, pread = (task.read, task.pread) if _is_fake(source) else (_real["os.read"], _real["os.pread"])
    write, pwrite = (task.write, task.pwrite) if _is_fake(out) else (_real["os.write"], _real["os.pwrite"])
    data = read(source, count) if offset_src is None else pread(source, count, offset_src)
    if not data:
        return 0
    return write(out, data) if offset_dst is None else pwrite(out, data, offset_dst)


def _lockf(fd: Any, command: int, length: int) -> Any:
    """Apply, test or remove a POSIX lock on an open file descriptor."""
    if not _is_fake(fd):
        return _real["os.lockf"](fd, command, length)
    how = {os.F_ULOCK: fcntl.LOCK_UN, os.F_LOCK: fcntl.LOCK_EX, os.F_TLOCK: fcntl.LOCK_EX | fcntl.LOCK_NB}.get(command)
    if how is None:
        raise OSError(errno.EINVAL, "F_TEST is not there for files of rcuwalk; try F_TLOCK")
    (_task() or _owner()).fcntl_lockf(fd, how, length, 0, os.SEEK_CUR)


# What tmpfs answers, by the names of `os.pathconf_names`; others have no limit.
_PATHCONF = {"PC_LINK_MAX": 127, "PC_MAX_CANON": 255, "PC_MAX_INPUT": 255, "PC_NAME_MAX": 255, "PC_PATH_MAX": 4096}
_PATHCONF |= {"PC_PIPE_BUF": 4096, "PC_CHOWN_RESTRICTED": 1, "PC_NO_TRUNC": 1, "PC_VDISABLE": 0, "PC_FILESIZEBITS": 64}
_PATHCONF |= {"PC_REC_MIN_XFER_SIZE": 4096, "PC_REC_XFER_ALIGN": 4096, "PC_ALLOC_SIZE_MIN": 4096}


def _pathconf(path: Any, name: Any) -> Any:
    """Return the configuration limit name for the file or directory path."""
    task = _task() if not isinstance(path, int) else (_task() or _owner()) if _is_fake(path) else None
    if task is None:
        return _real["os.pathconf"](path, name)
    numbers = os.pathconf_names
    if isinstance(name, str) and name not in numbers:
        raise ValueError("unrecognized configuration name")
    task.stat(path)
    names = [known for known, number in numbers.items() if name in (known, number)]
    if not names:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    return _PATHCONF.get(names[0], -1)


def _select(rlist: Any, wlist: Any, xlist: Any, timeout: Any = None) -> Any:
    """Wait until one or more file descriptors are ready for some kind of I/O."""
    rlist, wlist, xlist = list(rlist), list(wlist), list(xlist)
    ours = [[item for item in items if _is_fake(_fd_of(item))] for items in (rlist, wlist)]
    if not any(ours):
        return _real["select.select"](rlist, wlist, xlist, timeout)
    # Regular files are always ready.
    rest = [[item for item in items if not _is_fake(_fd_of(item))] for items in (rlist, wlist, xlist)]
    ready = [set(map(id, items)) for items in _real["select.select"](*rest, 0)]
    ready[0].update(map(id, ours[0]))
    ready[1].update(map(id, ours[1]))
    return tuple([item for item in items if id(item) in ids] for items, ids in zip((rlist, wlist, xlist), ready))


def _fork_exec(args: Any, executables: Any, close_fds: Any, pass_fds: Any, cwd: Any, *rest: Any) -> Any:
    """Spawn a fresh new child process."""
    if _must_stay():
        _escape.refuse(f"a child process would run {args!r}, which sees the machine's files,")
    # The standard streams of the child, and the ends of the pipes to it.
    if any(map(_is_fake, (*pass_fds, *rest[1:7]))):
        _escape.refuse(
            f"the child process {args!r} cannot use a file that exists only in rcuwalk as its standard input or output",
            ": pass subprocess.PIPE, and read or write the file here",
        )
    return _real["_posixsubprocess.fork_exec"](args, executables, close_fds, pass_fds, cwd, *rest)


def _spawnvef(mode: Any, file: Any, args: Any, env: Any, func: Any) -> Any:
    if _must_stay():
        _escape.refuse(f"os.spawn would run {file!r}, which sees the machine's files,")
    return _real["os._spawnvef"](mode, file, args, env, func)


def _must_stay() -> Any:
    """Whether the calling thread sees a task's files, and may not leave them."""
    return _task() is not None and not _stack[-1].allow_escape


class _FileIOType(type):
    """`io.FileIO` for both: the machine's files and the task's."""

    def __new__(cls, name: Any, bases: Any, names: Any) -> Any:
        if not bases:
            return super().__new__(cls, name, bases, names)
        # Who derives a class from it means the machine's.
        ours = tuple(_real["io.FileIO"] if base is _AnyFileIO else base for base in bases)
        return types.new_class(name, ours, exec_body=lambda into: into.update(names))

    def __call__(cls, file: Any, mode: Any = "r", closefd: Any = True, opener: Any = None) -> Any:
        task = _task()
        if task is None or (isinstance(file, int) and file < FD_BASE):
            return _real["io.FileIO"](file, mode, closefd, opener)
        return FileIO(task, file, mode, closefd, opener)

    def __instancecheck__(cls, instance: Any) -> Any:
        return isinstance(instance, (FileIO, _real["io.FileIO"]))

    def __subclasscheck__(cls, subclass: Any) -> Any:
        return issubclass(subclass, (FileIO, _real["io.FileIO"]))


class _AnyFileIO(metaclass=_FileIOType):
    """Stands in the place of `io.FileIO`."""


class _DirEntryType(type):
    """`os.DirEntry` for both: the machine's entries and the task's."""

    def __instancecheck__(cls, instance: Any) -> Any:
        return isinstance(instance, (DirEntry, _real["os.DirEntry"]))

    def __subclasscheck__(cls, subclass: Any) -> Any:
        return issubclass(subclass, (DirEntry, _real["os.DirEntry"]))


class _AnyDirEntry(metaclass=_DirEntryType):
    """Stands in the place of `os.DirEntry`."""

    __class_getitem__: Any = classmethod(types.GenericAlias)


def _replacements() -> Iterator[Any]:
    """Every function that is replaced: module, name, replacement."""
    for names, make in ((_PATHS, _of_path), (_EITHER, _of_either), (_FDS, _of_fd), (_PROCESS, _of_path)):
        for name in names:
            real = getattr(os, name, None)
            if real is not None:
                yield os, name, make(name, real)
    for name, fake in [
        ("open", _open),
        ("dup2", _dup2),
        ("closerange", _closerange),
        ("sendfile", _sendfile),
        ("copy_file_range", _copy_file_range),
        ("splice", _splice),
        ("lockf", _lockf),
        ("pathconf", _pathconf),
        ("fpathconf", _pathconf),
        ("_spawnvef", _spawnvef),
    ]:
        if hasattr(os, name):
            yield os, name, fake
    for name, ours in (("flock", "flock"), ("lockf", "fcntl_lockf"), ("fcntl", "fcntl")):
        yield fcntl, name, _of_fd(ours, getattr(fcntl, name))
    yield select, "select", _select
    yield _posixsubprocess, "fork_exec", _fork_exec
    yield os, "DirEntry", _AnyDirEntry
    yield builtins, "open", _builtin_open
    yield io, "open", _builtin_open
    yield io, "open_code", _open_code
    yield io, "FileIO", _AnyFileIO


class _Functions:
    """The functions that are replaced, and their replacements."""

    def __init__(self) -> None:
        self.fakes: dict[int, tuple[Any, Any]] = {}
        for module, name, fake in _replacements():
            real = getattr(module, name)
            _real[f"{module.__name__}.{name}"] = real
            if isinstance(fake, types.FunctionType):
                fake.__name__ = fake.__qualname__ = name
                fake.__doc__ = getattr(real, "__doc__", None)
                fake.__module__ = module.__name__
            self.fakes.setdefault(id(real), (real, fake))
        self.reals = {id(fake): (fake, real) for real, fake in self.fakes.values()}
        # `os.supports_dir_fd` and its like: what they are, and what they are with the replacements.
        self.supports = {}
        for name in ("supports_dir_fd", "supports_effective_ids", "supports_fd", "supports_follow_symlinks"):
            known = getattr(os, name)
            self.supports[name] = known, known | {fake for real, fake in self.fakes.values() if real in known}


# Made when they are first needed; the machine's functions are looked up once.
_functions: list[_Functions] = []


_installed: list[_copies.Installed] = []


class Patcher:
    """While it is entered, the process sees the file system of `task` in the place of the machine's.

    The task must have been made with `fd_base=FD_BASE`. Patchers may be nested; the innermost counts.
    """

    def __init__(self, task: Any, allow_escape: Any = False) -> None:
        self._tasks = [task]
        self._thread_id: int | None = None
        self.allow_escape = allow_escape

    @property
    def task(self) -> Any:
        """The task that threads act as which have not become another."""
        return self._tasks[-1]

    def __enter__(self) -> Any:
        with _lock:
            if self in _stack:
                raise RuntimeError("this patcher is entered already")
            _escape.watch(_must_stay, _copies.KEPT)
            self._thread_id = threading.get_ident()
            if not _stack:
                if not _functions:
                    _functions.append(_Functions())
                found = _functions[0]
                installed = _copies.Installed(found.fakes, found.reals, found.supports)
                _installed.append(installed)
                _stack.append(self)
                installed.install()
                tempfile.tempdir = None
            else:
                _stack.append(self)
        return self

    def __exit__(self, *exception: Any) -> None:
        with _lock:
            if self not in _stack:
                return
            _stack.remove(self)
            if not _stack:
                _last[0] = self._tasks[0]
                _installed.pop().remove()

    @contextlib.contextmanager
    def acting_as(self, task: Any) -> Iterator[Any]:
        """For the calling thread, and for threads that have not become another if this is the thread of the patcher."""
        if threading.get_ident() == self._thread_id:
            self._tasks.append(task)
            try:
                yield task
            finally:
                self._tasks.remove(task)
        else:
            before = _thread.tasks
            _thread.tasks = (*before, (self, task))
            try:
                yield task
            finally:
                _thread.tasks = before


@contextlib.contextmanager
def real_files() -> Iterator[Any]:
    """In this block, the calling thread sees the files of the machine."""
    _thread.real += 1
    try:
        yield
    finally:
        _thread.real -= 1
