"""The file system that the pytest fixture hands out."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
import tempfile
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from . import _patch
from ._rcuwalk import Cred
from ._task import Vfs

if TYPE_CHECKING:
    from ._rcuwalk import CapSet, ReadableBuffer, StrOrBytesPath

_MS_RDONLY, _MS_REMOUNT, _MS_BIND = 1, 32, 4096
# The size of the disk, for programs that look whether there is room: 1 TiB.
_SIZE = 1 << 40
_ACL_TAGS = {"u": (0x01, 0x02), "g": (0x04, 0x08), "m": (0x10, None), "o": (0x20, None)}


def acl_value(text: str) -> bytes:
    """An ACL in the kernel's binary form, from text such as `"u::rw-,u:1000:r--,g::r--,m::r--,o::---"`."""
    entries = []
    for part in text.split(","):
        fields = part.strip().split(":")
        if len(fields) == 2:
            fields.insert(1, "")
        kind, who, rights = fields
        plain, named = _ACL_TAGS[kind[0]]
        if who and named is None:
            raise ValueError(f"no such ACL entry: {part!r}")
        rwx = sum(bit for bit, letter in zip((4, 2, 1), "rwx") if letter in rights)
        entries.append((named if who else plain, rwx, int(who) if who else 0xFFFFFFFF))
    entries.sort(key=lambda entry: (entry[0], entry[2]))
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


class FakeFilesystem:
    """A file system in the place of the machine's, and the means to fill it and to make it fail.

    Its own methods act as root, also while the code under test is another user; they raise what the calls raise.

    What would reach the machine instead is refused with `EscapeError`: child processes, SQLite files, sockets bound to a path,
    copies of the machine's functions that were not found. `allow_escape` lets them.
    """

    def __init__(
        self, *, cred: Cred | None = None, size: int | None = None, capacity: int = 1 << 20, tmpdir: bool = True, allow_escape: bool = False
    ) -> None:
        self.vfs = Vfs(capacity=capacity, size_limit=_SIZE if size is None else size)
        self.root = self.vfs.task()
        self.root.umask(0)
        self.task = self.vfs.task(cred, fd_base=_patch.FD_BASE)
        self._patcher = _patch.Patcher(self.task, allow_escape)
        self._lay_out(tmpdir)

    def _lay_out(self, tmpdir: Any) -> None:
        root = self.root
        for path, mode in [("/tmp", 0o1777), ("/home", 0o755), ("/root", 0o700), ("/dev", 0o755)]:
            root.mkdir(path, mode)
        for path, minor in [("null", 3), ("zero", 5), ("full", 7), ("random", 8), ("urandom", 9)]:
            root.mknod(f"/dev/{path}", stat.S_IFCHR | 0o666, os.makedev(1, minor))
        if tmpdir:
            place = tempfile.gettempdir()
            if not root.exists(place):
                self._make_above(place)
                root.mkdir(place, 0o1777)

    # Coming and going.

    def __enter__(self) -> Any:
        self._patcher.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._patcher.__exit__(*exception)

    def pause(self) -> None:
        """Shows the machine's files again, to every thread, until `resume`."""
        self._patcher.__exit__()

    def resume(self) -> None:
        """Ends `pause`."""
        self._patcher.__enter__()

    def real_files(self) -> contextlib.AbstractContextManager[None]:
        """A block in which the calling thread sees the files of the machine."""
        return _patch.real_files()

    # Who the code under test is.

    @contextlib.contextmanager
    def as_user(
        self, uid: int, gid: int | None = None, groups: Iterable[int] = (), caps: CapSet | None = None
    ) -> Iterator[FakeFilesystem]:
        """A block in which the code under test is this user, with these capabilities (usually none, for 0 all).

        Open files stay open and keep what they were opened for. Threads that the block starts are that user, too; in a
        thread of its own, the block changes that thread alone.
        """
        cred = Cred(uid, gid, list(groups), caps)
        with self._patcher.acting_as(self._current().thread(cred)):
            yield self

    def set_user(
        self, uid: int, gid: int | None = None, groups: Iterable[int] = (), caps: CapSet | None = None
    ) -> None:
        """From now on, the code under test is this user."""
        self._current().cred = Cred(uid, gid, list(groups), caps)

    def _current(self) -> Any:
        return _patch._task() or self._patcher.task

    def home(self, path: StrOrBytesPath, uid: int, gid: int | None = None) -> None:
        """Makes a home directory: mode 0700, owned by the user."""
        self.create_dir(path, 0o700)
        self.root.chown(path, uid, uid if gid is None else gid)

    # Filling it.

    def create_dir(
        self, path: StrOrBytesPath, mode: int = 0o777, uid: int | None = None, gid: int | None = None
    ) -> str:
        """Makes a directory, and those above it."""
        place = self._absolute(path)
        self._make_above(place)
        if place.strip("/"):
            self.root.mkdir(place, mode)
        return self._own(place, uid, gid, mode)

    def create_file(
        self,
        path: StrOrBytesPath,
        contents: str | ReadableBuffer = "",
        mode: int = 0o644,
        *,
        uid: int | None = None,
        gid: int | None = None,
        size: int | None = None,
        encoding: str = "utf-8",
        errors: str = "strict",
        create_missing_dirs: bool = True,
    ) -> str:
        """Makes a file, with the directories above it; `FileExistsError` if there is one. `size` makes a hole of that size."""
        path = self._absolute(path)
        if create_missing_dirs:
            self._make_above(path)
        fd = self.root.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        self.root.close(fd)
        if size is not None:
            self.root.truncate(path, size)
        data = contents.encode(encoding, errors) if isinstance(contents, str) else bytes(contents)
        if data:
            fd = self.root.open(path, os.O_WRONLY)
            try:
                if self.root.write(fd, data) < len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            except OSError:
                self.root.unlink(path)
                raise
            finally:
                self.root.close(fd)
        return self._own(path, uid, gid, mode)

    def _make_above(self, path: Any) -> None:
        """The directories above, each as root would make them with the usual umask."""
        missing, above = [], os.path.dirname(path)
        while not self.root.exists(above):
            missing.append(above)
            above = os.path.dirname(above)
        for directory in reversed(missing):
            self.root.mkdir(directory, 0o755)

    def _own(self, path: str, uid: int | None, gid: int | None, mode: int) -> str:
        if uid is not None or gid is not None:
            self.root.chown(path, -1 if uid is None else uid, -1 if gid is None else gid)
            # Root's chown took set-id bits away.
            self.root.chmod(path, mode)
        return path

    def create_symlink(self, path: StrOrBytesPath, target: StrOrBytesPath) -> str:
        """Makes a symbolic link, with the directories above it."""
        path = self._absolute(path)
        self._make_above(path)
        self.root.symlink(target, path)
        return path

    def create_link(self, old: StrOrBytesPath, new: StrOrBytesPath) -> str:
        """Makes a further name of a file."""
        place = self._absolute(new)
        self._make_above(place)
        self.root.link(self._absolute(old), place)
        return place

    def add_real_directory(
        self, source: StrOrBytesPath, read_only: bool = True, target_path: StrOrBytesPath | None = None
    ) -> dict[str, Any]:
        """Copies a directory of the machine, to the same path or to `target_path`; read-only is `EROFS`, for root, too."""
        source = os.fsdecode(source)
        with _patch.real_files():
            source = os.path.abspath(source)
        target = source if target_path is None else self._absolute(target_path)
        report = self.vfs.add_real_directory(source, target)
        if read_only:
            self._protect(target)
        return report

    def add_real_file(
        self, source: StrOrBytesPath, read_only: bool = True, target_path: StrOrBytesPath | None = None
    ) -> str:
        """Copies a file of the machine, with mode, owner and times; read-only is `EROFS`, for root, too."""
        with _patch.real_files():
            source = os.path.abspath(os.fsdecode(source))
            status = os.stat(source)
            with open(source, "rb") as file:
                data = file.read()
        target = source if target_path is None else self._absolute(target_path)
        mode = stat.S_IMODE(status.st_mode)
        FakeFilesystem.create_file(self, target, data, mode, uid=status.st_uid, gid=status.st_gid)
        self.root.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
        if read_only:
            self._protect(target)
        return target

    def add_real_paths(self, paths: Iterable[StrOrBytesPath], read_only: bool = True) -> None:
        """Copies files and directories of the machine."""
        for path in paths:
            with _patch.real_files():
                is_dir = os.path.isdir(path)
            (self.add_real_directory if is_dir else self.add_real_file)(path, read_only)

    def _protect(self, target: Any) -> None:
        self.root.mount(target, target, flags=_MS_BIND)
        self.root.mount("", target, flags=_MS_BIND | _MS_REMOUNT | _MS_RDONLY)

    def remove_object(self, path: StrOrBytesPath) -> None:
        """Removes a file, or a directory with all in it."""
        path = self._absolute(path)
        if self.root.isdir(path) and not self.root.islink(path):
            self.root.rmtree(path)
        else:
            self.root.unlink(path)

    def exists(self, path: StrOrBytesPath) -> bool:
        """Whether there is something, for root."""
        return self.root.exists(self._absolute(path))

    def read(self, path: StrOrBytesPath, encoding: str | None = "utf-8") -> Any:
        """The contents of a file, for root; as bytes if `encoding` is `None`."""
        data = self.root.read_bytes(self._absolute(path))
        return data if encoding is None else data.decode(encoding)

    def chmod(self, path: StrOrBytesPath, mode: int) -> None:
        """Changes permissions, as root."""
        self.root.chmod(self._absolute(path), mode)

    def chown(self, path: StrOrBytesPath, uid: int, gid: int = -1) -> None:
        """Changes the owner, as root."""
        self.root.chown(self._absolute(path), uid, gid)

    def set_acl(self, path: StrOrBytesPath, text: str, default: bool = False) -> None:
        """Sets an ACL, as setfacl(1) would: `"u::rw-,u:1000:r--,g::r--,m::r--,o::---"`."""
        name = "system.posix_acl_default" if default else "system.posix_acl_access"
        self.root.setxattr(self._absolute(path), name, acl_value(text))

    def _absolute(self, given: StrOrBytesPath) -> str:
        path = os.fsdecode(given)
        return path if path.startswith("/") else f"{self._current().getcwd().rstrip('/')}/{path}"

    # Making it fail.

    def fail(
        self,
        error: int | str,
        path: StrOrBytesPath | None = None,
        calls: str | Iterable[str] = (),
        *,
        after_bytes: int | None = None,
        after_calls: int = 0,
        times: int | None = None,
    ) -> int:
        """Makes calls fail with `error`, a number or a name such as `"EIO"`; gives the number of the rule.

        `path`: only calls on this file, whatever name or descriptor they use. `calls`: only these, such as `"open"`, `"read"`,
        `"write"`, `"stat"`, `"rename"`; `ValueError` names them all. `after_bytes`: writes succeed until this many bytes were written. `after_calls`: so
        many calls succeed first. `times`: it happens so often, and then no more. The methods of this object fail as well.
        """
        number = getattr(errno, error) if isinstance(error, str) else error
        path = None if path is None else self._absolute(path)
        calls = [calls] if isinstance(calls, str) else list(calls)
        return self.vfs.inject(
            number, path=path, calls=calls, after_bytes=after_bytes, after_calls=after_calls, times=times
        )

    def full_after(self, size: int) -> int:
        """Lets `size` more bytes be written, then fails with `ENOSPC`."""
        return self.fail(errno.ENOSPC, calls="write", after_bytes=size)

    def clear_faults(self, number: int | None = None) -> bool:
        """Ends one rule of `fail`, or all."""
        return self.vfs.clear_faults(number)

    @contextlib.contextmanager
    def failing(
        self,
        error: int | str,
        path: StrOrBytesPath | None = None,
        calls: str | Iterable[str] = (),
        **kwargs: Any,
    ) -> Iterator[FakeFilesystem]:
        """`fail`, for a block."""
        number = self.fail(error, path, calls, **kwargs)
        try:
            yield self
        finally:
            self.clear_faults(number)

    def set_time(self, ns: int | None) -> None:
        """Sets the time that files get, in nanoseconds since the epoch; `None` goes back to the system's clock."""
        self.vfs.set_time(ns)
