"""Puts a task's file system in the place of the machine's, for the whole process, and takes it away again.

What is replaced are the functions of `os` and the openers of `builtins` and `io`, where they stand in their own modules and
where other modules have copied them to. `pathlib`, `shutil`, `tempfile`, `glob` and the rest of the library call those, and so
see the task's files without being touched. The functions stay replaced until the last patcher has gone; each call asks which
patcher is the innermost, and goes to the machine if there is none, or if the calling thread has asked for that.

Descriptors of the task are numbered from `FD_BASE` on, far above what the kernel gives out: a call with a lower one, such
as a pipe's or the standard output's, goes to the machine.
"""

from __future__ import annotations

import builtins
import contextlib
import fcntl
import io
import itertools
import os
import stat
import sys
import sysconfig
import tempfile
import threading
import types

from ._io import FileIO, open_file
from ._rcuwalk import DirEntry

FD_BASE = 1 << 28

_real: dict[str, object] = {}
_stack: list["Patcher"] = []
_lock = threading.RLock()


class _Thread(threading.local):
    """What one thread has asked for."""

    real = 0
    tasks: tuple = ()


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

# Modules that go on seeing the machine: they look at the source of the program, not at its data.
_KEPT = frozenset(
    "importlib _frozen_importlib _frozen_importlib_external _io posix zipimport inspect linecache tokenize traceback pdb bdb "
    "doctest pkgutil _pytest pytest pluggy coverage xdist execnet rcuwalk".split()
)

# Modules of the library whose classes and default arguments hold copies, too.
_DEEP = frozenset(["pathlib", "glob", "shutil", "tempfile"])

# Devices that stand for the machine's own when they are opened.
_DEVICES = {os.makedev(1, minor): path for minor, path in [(3, "/dev/null"), (5, "/dev/zero"), (7, "/dev/full")]}
_DEVICES |= {os.makedev(1, 8): "/dev/random", os.makedev(1, 9): "/dev/urandom", os.makedev(5, 0): "/dev/tty"}


def _task():
    """The task that the calling thread acts as; `None` for the machine itself."""
    if _thread.real or not _stack:
        return None
    tasks = _thread.tasks
    for patcher, task in reversed(tasks):
        if patcher is _stack[-1]:
            return task
    return _stack[-1].task


def _is_fake(fd):
    return isinstance(fd, int) and fd >= FD_BASE


def _of_path(name, real):
    def call(*args, **kwargs):
        task = _task()
        return real(*args, **kwargs) if task is None else getattr(task, name)(*args, **kwargs)

    return call


def _of_either(name, real):
    def call(*args, **kwargs):
        task = _task()
        if task is None or (args and isinstance(args[0], int) and args[0] < FD_BASE):
            return real(*args, **kwargs)
        return getattr(task, name)(*args, **kwargs)

    return call


def _fd_of(value):
    if isinstance(value, int):
        return value
    fileno = getattr(value, "fileno", None)
    return fileno() if callable(fileno) else value


def _of_fd(name, real):
    def call(fd, *args, **kwargs):
        number = fd if isinstance(fd, int) else _fd_of(fd)
        if not _is_fake(number):
            return real(fd, *args, **kwargs)
        # A descriptor outlives a block that sees the machine.
        owner = _task() or _owner()
        return getattr(owner, name)(number, *args, **kwargs)

    return call


def _owner():
    return _stack[-1].task if _stack else _last[0]


# The task whose descriptors may still be open after the last patcher has gone.
_last: list = [None]


def _open(path, flags, mode=0o777, *, dir_fd=None):
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


def _device(task, path, dir_fd=None):
    """The device of the machine that a device of the task stands for."""
    try:
        status = task.stat(path, dir_fd=dir_fd)
    except (OSError, ValueError):
        return None
    return _DEVICES.get(status.st_rdev) if stat.S_ISCHR(status.st_mode) else None


def _builtin_open(
    file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, closefd=True, opener=None
):
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


def _open_with(task, file, mode, buffering, encoding, errors, newline, closefd, opener):
    """With an opener, whose descriptor may be the machine's."""
    opened = []

    def remember(path, flags):
        fd = opener(path, flags)
        opened.append(fd)
        return fd

    class _Machine(Exception):
        pass

    def only_ours(path, flags):
        fd = remember(path, flags)
        if isinstance(fd, int) and 0 <= fd < FD_BASE:
            raise _Machine
        return fd

    try:
        return open_file(task, file, mode, buffering, encoding, errors, newline, closefd, only_ours)
    except _Machine:
        fd = opened[0]
        return _real["io.open"](file, mode, buffering, encoding, errors, newline, True, lambda _path, _flags: fd)


def _open_code(path):
    """Opens the provided file with the intent to import the contents."""
    return _builtin_open(path, "rb")


def _dup2(fd, fd2, inheritable=True):
    """Duplicate file descriptor."""
    if _is_fake(fd) and _is_fake(fd2):
        return (_task() or _owner()).dup2(fd, fd2, inheritable)
    return _real["os.dup2"](fd, fd2, inheritable)


def _closerange(fd_low, fd_high):
    """Closes all file descriptors in [fd_low, fd_high), ignoring errors."""
    _real["os.closerange"](fd_low, min(fd_high, FD_BASE))
    if fd_high > FD_BASE:
        (_task() or _owner()).closerange(max(fd_low, FD_BASE), fd_high)


def _between(name):
    def call(first, second, *args, **kwargs):
        real = _real[f"os.{name}"]
        ours = _is_fake(first), _is_fake(second)
        if not any(ours):
            return real(first, second, *args, **kwargs)
        task = _task() or _owner()
        if all(ours):
            return getattr(task, name)(first, second, *args, **kwargs)
        return _crossing(task, name, first, second, *args, **kwargs)

    return call


def _crossing(task, name, first, second, *args, **kwargs):
    """sendfile and copy_file_range between the machine and the task."""
    (out, source) = (first, second) if name == "sendfile" else (second, first)
    named = ("offset", "count") if name == "sendfile" else ("count", "offset_src", "offset_dst")
    given = dict(zip(named, args)) | kwargs
    offset, count = given.get("offset", given.get("offset_src")), given["count"]
    read, pread = (task.read, task.pread) if _is_fake(source) else (_real["os.read"], _real["os.pread"])
    write, pwrite = (task.write, task.pwrite) if _is_fake(out) else (_real["os.write"], _real["os.pwrite"])
    data = read(source, count) if offset is None else pread(source, count, offset)
    if not data:
        return 0
    return write(out, data) if given.get("offset_dst") is None else pwrite(out, data, given["offset_dst"])


class _FileIOType(type):
    """`io.FileIO` for both: the machine's files and the task's."""

    def __new__(cls, name, bases, names):
        if not bases:
            return super().__new__(cls, name, bases, names)
        # Who derives a class from it means the machine's.
        ours = tuple(_real["io.FileIO"] if base is _AnyFileIO else base for base in bases)
        return types.new_class(name, ours, exec_body=lambda into: into.update(names))

    def __call__(cls, file, mode="r", closefd=True, opener=None):
        task = _task()
        if task is None or (isinstance(file, int) and file < FD_BASE):
            return _real["io.FileIO"](file, mode, closefd, opener)
        return FileIO(task, file, mode, closefd, opener)

    def __instancecheck__(cls, instance):
        return isinstance(instance, (FileIO, _real["io.FileIO"]))

    def __subclasscheck__(cls, subclass):
        return issubclass(subclass, (FileIO, _real["io.FileIO"]))


class _AnyFileIO(metaclass=_FileIOType):
    """Stands in the place of `io.FileIO`."""


class _DirEntryType(type):
    """`os.DirEntry` for both: the machine's entries and the task's."""

    def __instancecheck__(cls, instance):
        return isinstance(instance, (DirEntry, _real["os.DirEntry"]))

    def __subclasscheck__(cls, subclass):
        return issubclass(subclass, (DirEntry, _real["os.DirEntry"]))


class _AnyDirEntry(metaclass=_DirEntryType):
    """Stands in the place of `os.DirEntry`."""

    __class_getitem__ = classmethod(types.GenericAlias)


def _replacements():
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
        ("sendfile", _between("sendfile")),
        ("copy_file_range", _between("copy_file_range")),
    ]:
        if hasattr(os, name):
            yield os, name, fake
    for name, ours in (("flock", "flock"), ("lockf", "fcntl_lockf"), ("fcntl", "fcntl")):
        yield fcntl, name, _of_fd(ours, getattr(fcntl, name))
    yield os, "DirEntry", _AnyDirEntry
    yield builtins, "open", _builtin_open
    yield io, "open", _builtin_open
    yield io, "open_code", _open_code
    yield io, "FileIO", _AnyFileIO


_LIBRARY = tuple(
    os.path.join(path, "")
    for path in {*sysconfig.get_paths().values(), os.path.dirname(os.__file__)}
    if path and path not in (sys.prefix, sys.exec_prefix)
)


def _is_library(module):
    file = getattr(module, "__file__", None)
    return file is None or file.startswith(_LIBRARY)


class _Functions:
    """The functions that are replaced, and their replacements."""

    def __init__(self):
        self.fakes = {}
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


class _Copies:
    """What stands under some names of a module, and what is to: replaced at once, since `os` alone has eighty."""

    def __init__(self, module, places):
        self.names = vars(module)
        self.old = {name: old for name, old, _new in places}
        self.new = {name: new for name, _old, new in places}

    def install(self, undo):
        # The program may have put something else there.
        here = {name: old for name, old in self.old.items() if self.names.get(name) is old}
        self.names.update(self.new if len(here) == len(self.old) else {name: self.new[name] for name in here})
        undo.append((self.names, here))


class _Library:
    """The modules that do not belong to the program under test, and where copies of the functions stand in them.

    Nobody rebinds names of the library: as long as each module has as many, there is nothing new to find.
    """

    # What was found in a module that had so many names.
    found: dict[int, tuple[types.ModuleType, int, list[tuple]]] = {}

    def __init__(self, fakes):
        self.loaded = list(sys.modules.values())
        self.modules, self.program, self.places = [], [], []
        for name, module in list(sys.modules.items()):
            if not isinstance(module, types.ModuleType):
                continue
            top = name.partition(".")[0]
            if top in _KEPT:
                self.modules.append(module)
            elif _is_library(module):
                self.modules.append(module)
                self.places += self._places(fakes, module, top in _DEEP)
            else:
                self.program.append(module)
        copies: dict[int, tuple[types.ModuleType, list]] = {}
        for owner, *place in self.places:
            if isinstance(owner, types.ModuleType):
                copies.setdefault(id(owner), (owner, []))[1].append(place)
        self.copies = [_Copies(*found) for found in copies.values()]
        self.places = [place for place in self.places if not isinstance(place[0], types.ModuleType)]
        self.names = list(map(vars, self.modules))
        self.counts = list(map(len, self.names))

    def is_current(self):
        """Whether modules have neither come nor gone nor grown."""
        return list(sys.modules.values()) == self.loaded and list(map(len, self.names)) == self.counts

    def _places(self, fakes, module, deep):
        known = self.found.get(id(module))
        if known is None or known[0] is not module or known[1] != len(vars(module)):
            places = list(_find(fakes, module)) + (list(_find_below(fakes, module)) if deep else [])
            known = self.found[id(module)] = (module, len(vars(module)), places)
        return known[2]


# Made when it is first needed, and again when there are other modules.
_library: list[_Library] = []


def _fake_of(fakes, value):
    found = fakes.get(id(value))
    return found[1] if found is not None and found[0] is value else value


def _find(fakes, module):
    """In names of the module: owner, name, what stands there, what is to."""
    for name, value in list(vars(module).items()):
        fake = _fake_of(fakes, value)
        if fake is not value:
            yield module, name, value, fake


def _find_below(fakes, module):
    """In classes and default arguments."""
    values = list(vars(module).values())
    classes = [value for value in values if isinstance(value, type) and value.__module__ == module.__name__]
    for cls in classes:
        for name, value in list(vars(cls).items()):
            inner = value.__func__ if isinstance(value, staticmethod) else value
            fake = _fake_of(fakes, inner)
            if fake is not inner:
                # A function would become a method, which the machine's functions do not.
                yield cls, name, value, staticmethod(fake) if isinstance(fake, types.FunctionType) else fake
    for value in [value for owner in (module, *classes) for value in list(vars(owner).values())]:
        if isinstance(value, types.FunctionType) and value.__defaults__:
            ours = tuple(_fake_of(fakes, default) for default in value.__defaults__)
            if any(new is not old for new, old in zip(ours, value.__defaults__)):
                yield value, "__defaults__", value.__defaults__, ours


class _Installed:
    """Everywhere the functions were replaced."""

    def __init__(self):
        if not _functions:
            _functions.append(_Functions())
        functions = _functions[0]
        if not _library or not _library[0].is_current():
            _library[:] = [_Library(functions.fakes)]
        self.fakes, self.reals, self.supports = functions.fakes, functions.reals, functions.supports
        self.library = _library[0]
        self.undo: list[tuple[object, str, object]] = []
        self.undo_copies: list[tuple[dict, dict]] = []
        self.tempdir = tempfile.tempdir

    def install(self):
        for name, (_known, ours) in self.supports.items():
            setattr(os, name, ours)
        for copies in self.library.copies:
            copies.install(self.undo_copies)
        places = [self.library.places, *(_find(self.fakes, module) for module in self.library.program)]
        for owner, name, old, new in itertools.chain.from_iterable(places):
            # The program may have put something else there.
            if vars(owner).get(name, old) is old:
                setattr(owner, name, new)
                self.undo.append((owner, name, old))

    def remove(self):
        for owner, name, value in reversed(self.undo):
            setattr(owner, name, value)
        for names, old in self.undo_copies:
            names.update(old)
        for name, (known, _ours) in self.supports.items():
            setattr(os, name, known)
        # Modules that were imported or went on growing meanwhile have copied the replacements.
        changed = self.library.program
        if not self.library.is_current():
            counts = {id(module): count for module, count in zip(self.library.modules, self.library.counts)}
            changed = [
                module
                for name, module in list(sys.modules.items())
                if isinstance(module, types.ModuleType)
                and not name.startswith("rcuwalk")
                and counts.get(id(module)) != len(vars(module))
            ]
        for module in changed:
            for owner, name, _fake, real in _find(self.reals, module):
                setattr(owner, name, real)
        tempfile.tempdir = self.tempdir


_installed: list[_Installed] = []


class Patcher:
    """While it is entered, the process sees the file system of `task` in the place of the machine's.

    The task must have been made with `fd_base=FD_BASE`. Patchers may be nested; the innermost counts.
    """

    def __init__(self, task):
        self._tasks = [task]
        self._thread_id = None

    @property
    def task(self):
        """The task that threads act as which have not become another."""
        return self._tasks[-1]

    def __enter__(self):
        with _lock:
            if self in _stack:
                raise RuntimeError("this patcher is entered already")
            self._thread_id = threading.get_ident()
            if not _stack:
                installed = _Installed()
                _installed.append(installed)
                _stack.append(self)
                installed.install()
                tempfile.tempdir = None
            else:
                _stack.append(self)
        return self

    def __exit__(self, *exception):
        with _lock:
            if self not in _stack:
                return
            _stack.remove(self)
            if not _stack:
                _last[0] = self._tasks[0]
                _installed.pop().remove()

    @contextlib.contextmanager
    def acting_as(self, task):
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
def real_files():
    """In this block, the calling thread sees the files of the machine."""
    _thread.real += 1
    try:
        yield
    finally:
        _thread.real -= 1
