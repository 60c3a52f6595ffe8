"""File objects over descriptors of a task: what `open` gives."""

from __future__ import annotations

import errno
import io
import os
import sys
import warnings
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from ._rcuwalk import FdOrPath
    from ._task import Task

# What is called when a file object that has written is closed, by device and number of the inode.
effects: dict[tuple[int, int], Callable[[], object]] = {}

_MODES: dict[str, tuple[str, int, bool, bool, bool, bool]] = {}


def parse_mode(mode: str) -> tuple[str, int, bool, bool, bool, bool]:
    """The raw mode, the flags for open(2), and whether `mode` reads, writes, is binary, appends."""
    parsed = _MODES.get(mode)
    if parsed is not None:
        return parsed
    if not isinstance(mode, str):
        raise TypeError(f"open() argument 'mode' must be str, not {type(mode).__name__}")
    letters = set(mode)
    if letters - set("axrwb+t") or len(mode) > len(letters):
        raise ValueError(f"invalid mode: {mode!r}")
    binary = "b" in letters
    if binary and "t" in letters:
        raise ValueError("can't have text and binary mode at once")
    kind = letters & set("axrw")
    if len(kind) != 1:
        raise ValueError("must have exactly one of create/read/write/append mode")
    both = "+" in letters
    access = os.O_RDWR if both else (os.O_RDONLY if "r" in kind else os.O_WRONLY)
    flags = access | {"r": 0, "w": os.O_CREAT | os.O_TRUNC, "x": os.O_CREAT | os.O_EXCL, "a": os.O_CREAT | os.O_APPEND}[
        next(iter(kind))
    ]
    reads, writes = both or "r" in kind, both or "r" not in kind
    # What a raw file says of its own mode: never that it truncates.
    shown = {"r": "rb+" if both else "rb", "w": "rb+" if both else "wb", "x": "xb+" if both else "xb"}
    raw = shown.get(next(iter(kind))) or ("ab+" if both else "ab")
    parsed = _MODES[mode] = (raw, flags, reads, writes, binary, "a" in kind)
    return parsed


class FileIO(io.RawIOBase):
    """An open file of a task, unbuffered: `io.FileIO` for descriptors of the engine.

    Reading and writing go to the task that opened the file, under the credential that it has then.
    """

    _fd = -1
    _closefd = True

    def __init__(self, task: Any, file: Any, mode: Any = "r", closefd: Any = True, opener: Any = None) -> None:
        if "t" in mode:
            raise ValueError(f"invalid mode: {mode}")
        self._mode, flags, self._reads, self._writes, _binary, appends = parse_mode(mode.replace("b", "") + "b")
        self._task = task
        if isinstance(file, int) and not isinstance(file, bool):
            if file < 0:
                raise ValueError("negative file descriptor")
            fd = file
        else:
            if not closefd:
                raise ValueError("Cannot use closefd=False with file name")
            if opener is None:
                fd = task.open(file, flags, 0o666)
            else:
                fd = opener(file, flags | os.O_CLOEXEC)
                if not isinstance(fd, int):
                    raise TypeError("expected integer from opener")
                if fd < 0:
                    raise ValueError(f"opener returned {fd}")
        self.name = file
        self._fd = fd
        self._closefd = closefd
        try:
            stat = task.fstat(fd)
            if stat.st_mode & 0o170000 == 0o040000:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), file)
            self._blksize = stat.st_blksize
            if appends:
                task.lseek(fd, 0, os.SEEK_END)
        except OSError:
            self._fd = -1
            if fd is not file:
                task.close(fd)
            raise

    def _open_fd(self) -> Any:
        fd = self._fd
        if fd < 0:
            raise ValueError("I/O operation on closed file")
        return fd

    def _dealloc_warn(self, source: Any) -> None:
        """Called by the buffered layers when nobody has closed them."""
        if self._fd >= 0 and self._closefd:
            warnings.warn(f"unclosed file {source!r}", ResourceWarning, stacklevel=2, source=source)

    def __del__(self) -> None:
        if self._fd >= 0 and self._closefd:
            self._dealloc_warn(self)
            self.close()

    def __getstate__(self) -> None:
        raise TypeError(f"cannot pickle {type(self).__name__!r} object")

    def __repr__(self) -> Any:
        if self._fd < 0:
            return "<rcuwalk.FileIO [closed]>"
        return f"<rcuwalk.FileIO name={self.name!r} mode={self.mode!r} closefd={self._closefd}>"

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        effect = None
        if effects and fd >= 0 and self._writes:
            status = self._task.fstat(fd)
            effect = effects.get((status.st_dev, status.st_ino))
        try:
            super().close()
        finally:
            if fd >= 0 and self._closefd:
                self._task.close(fd)
        if effect is not None:
            effect()

    def fileno(self) -> Any:
        # numpy asks this way whether C may have the descriptor, which is none of the machine's; if not, it calls read and write.
        if sys._getframe(1).f_code.co_name == "isfileobj":
            raise io.UnsupportedOperation("fileno")
        return self._open_fd()

    def isatty(self) -> Any:
        self._open_fd()
        return False

    def readable(self) -> Any:
        self._open_fd()
        return self._reads

    def writable(self) -> Any:
        self._open_fd()
        return self._writes

    def seekable(self) -> Any:
        fd = self._open_fd()
        try:
            self._task.lseek(fd, 0, os.SEEK_CUR)
        except OSError:
            return False
        return True

    def _readable_fd(self) -> Any:
        fd = self._open_fd()
        if not self._reads:
            raise io.UnsupportedOperation("File not open for reading")
        return fd

    def read(self, size: Any = -1) -> Any:
        fd = self._readable_fd()
        if size is None or size < 0:
            return self._task.readall(fd)
        return self._task.read(fd, size)

    def readall(self) -> Any:
        return self._task.readall(self._readable_fd())

    def readinto(self, buffer: Any) -> Any:
        return self._task.readinto(self._readable_fd(), buffer)

    def write(self, data: Any) -> Any:
        fd = self._open_fd()
        if not self._writes:
            raise io.UnsupportedOperation("File not open for writing")
        return self._task.write(fd, data)

    def seek(self, offset: Any, whence: int = os.SEEK_SET) -> Any:
        return self._task.lseek(self._open_fd(), offset, whence)

    def tell(self) -> Any:
        return self._task.lseek(self._open_fd(), 0, os.SEEK_CUR)

    def truncate(self, size: Any = None) -> Any:
        fd = self._open_fd()
        if not self._writes:
            raise io.UnsupportedOperation("File not open for writing")
        if size is None:
            size = self.tell()
        self._task.ftruncate(fd, size)
        return size

    @property
    def closefd(self) -> Any:
        """Whether closing this closes the descriptor."""
        return self._closefd

    @property
    def mode(self) -> Any:
        """As `io.FileIO` says it."""
        return self._mode


def open_file(
    task: Task,
    file: FdOrPath,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Callable[[Any, int], int] | None = None,
) -> IO[Any]:
    """`open`, of files that `task` can see."""
    _raw, _flags, reads, writes, binary, _appends = parse_mode(mode)
    if not isinstance(buffering, int):
        raise TypeError(f"open() argument 'buffering' must be int, not {type(buffering).__name__}")
    if binary:
        if encoding is not None:
            raise ValueError("binary mode doesn't take an encoding argument")
        if errors is not None:
            raise ValueError("binary mode doesn't take an errors argument")
        if newline is not None:
            raise ValueError("binary mode doesn't take a newline argument")
        if buffering == 1:
            warnings.warn(
                "line buffering (buffering=1) isn't supported in binary mode, the default buffer size will be used",
                RuntimeWarning,
                stacklevel=2,
            )
            buffering = -1
    elif buffering == 0:
        raise ValueError("can't have unbuffered text I/O")
    raw = FileIO(task, file, mode.replace("t", ""), closefd, opener)
    if buffering == 0:
        return cast("IO[Any]", raw)
    result: Any = raw
    try:
        size = max(min(raw._blksize, 8192), 4096) if buffering in (-1, 1) else buffering
        if reads and writes:
            result = io.BufferedRandom(raw, size)
        elif writes:
            result = io.BufferedWriter(raw, size)
        else:
            result = io.BufferedReader(raw, size)
        if not binary:
            text: Any = io.TextIOWrapper(result, encoding, errors, newline, buffering == 1)
            result = text
            text.mode = mode
    except BaseException:
        result.close()
        raise
    return cast("IO[Any]", result)
