"""`Vfs` and `Task`: the engine's, with what `os` and `glob` build on top of its calls."""

from __future__ import annotations

import fnmatch
import os
import re
import stat as _stat
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any, AnyStr

from . import _rcuwalk
from ._io import open_file
from ._rcuwalk import Cred

if TYPE_CHECKING:
    from ._rcuwalk import FdOrPath, ReadableBuffer, StrOrBytesPath

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class Vfs(_rcuwalk.Vfs):
    """A file system in memory, with Linux's rules for any user.

    Nothing in it is shared with the machine or with another `Vfs`. Settings are those of a mount and of `fs.protected_*`.
    """

    def task(self, cred: Cred | None = None, *, fd_base: int = 0) -> Task:
        """A new process: root with all capabilities unless a credential is given."""
        return Task(self, cred, fd_base=fd_base)

    def add_real_directory(
        self,
        source: StrOrBytesPath,
        at: StrOrBytesPath | None = None,
        *,
        contents: bool = True,
        one_file_system: bool = False,
        xattrs: bool = True,
        threads: int = 0,
    ) -> dict[str, Any]:
        """Copies a directory of this machine to `at`, which is made if it is missing; tells what was copied.

        Owners, modes, times, links, ACLs and capabilities come along; the caller need not be root.
        """
        target = os.fsdecode(source if at is None else at)
        target = os.path.abspath(target) if at is None else target
        root = self.task()
        if target.strip("/"):
            root.makedirs(target, 0o755, exist_ok=True)
        return self.import_tree(
            source, at=target, contents=contents, one_file_system=one_file_system, xattrs=xattrs, threads=threads
        )


class Task(_rcuwalk.Task):
    """A process in a file system, whose methods are the functions of `os`, with the same names, arguments and errors."""

    def fork(self, cred: Cred | None = None) -> Task:
        """A child process: copies of descriptors, current directory, umask and credential."""
        return type(self)(self, cred, how="fork")

    def thread(self, cred: Cred | None = None) -> Task:
        """Another thread of the process: descriptors, current directory and umask are shared; the credential is its own."""
        return type(self)(self, cred, how="thread")

    def clone(self, flags: int, cred: Cred | None = None) -> Task:
        """What clone(2) makes with `CLONE_*` flags: a process that shares what they say."""
        return type(self)(self, cred, how="clone", flags=flags)

    def open_file(
        self,
        file: FdOrPath,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Callable[[Any, int], int] | None = None,
    ) -> IO[Any]:
        """The built-in `open`."""
        return open_file(self, file, mode, buffering, encoding, errors, newline, closefd, opener)

    def fdopen(self, fd: int, mode: str = "r", *args: Any, **kwargs: Any) -> IO[Any]:
        """`os.fdopen`"""
        if not isinstance(fd, int):
            raise TypeError(f"invalid fd type ({type(fd)}, expected integer)")
        return open_file(self, fd, mode, *args, **kwargs)

    def exists(self, path: FdOrPath) -> bool:
        """`os.path.exists`"""
        try:
            self.stat(path)
        except (OSError, ValueError):
            return False
        return True

    def lexists(self, path: StrOrBytesPath) -> bool:
        """`os.path.lexists`"""
        try:
            self.lstat(path)
        except (OSError, ValueError):
            return False
        return True

    def _is(self, path: Any, kind: int, look: Any) -> bool:
        try:
            return bool(_stat.S_IFMT(look(path).st_mode) == kind)
        except (OSError, ValueError):
            return False

    def isfile(self, path: FdOrPath) -> bool:
        """`os.path.isfile`"""
        return self._is(path, _stat.S_IFREG, self.stat)

    def isdir(self, path: FdOrPath) -> bool:
        """`os.path.isdir`"""
        return self._is(path, _stat.S_IFDIR, self.stat)

    def islink(self, path: StrOrBytesPath) -> bool:
        """`os.path.islink`"""
        return self._is(path, _stat.S_IFLNK, self.lstat)

    def makedirs(self, name: StrOrBytesPath, mode: int = 0o777, exist_ok: bool = False) -> None:
        """`os.makedirs`"""
        name = os.fspath(name)
        above, last = os.path.split(name)
        if not last:
            above, last = os.path.split(above)
        if above and last and not self.exists(above):
            try:
                self.makedirs(above, exist_ok=exist_ok)
            except FileExistsError:
                pass
            if last in (".", b"."):
                return
        try:
            self.mkdir(name, mode)
        except OSError:
            if not exist_ok or not self.isdir(name):
                raise

    def removedirs(self, name: StrOrBytesPath) -> None:
        """`os.removedirs`"""
        self.rmdir(name)
        path: Any = os.fspath(name)
        above, last = os.path.split(path.rstrip("/" if isinstance(path, str) else b"/"))
        while above and last:
            try:
                self.rmdir(above)
            except OSError:
                break
            above, last = os.path.split(above)

    def renames(self, old: StrOrBytesPath, new: StrOrBytesPath) -> None:
        """`os.renames`"""
        above, last = os.path.split(os.fspath(new))
        if above and last and not self.exists(above):
            self.makedirs(above)
        self.rename(old, new)
        above, last = os.path.split(os.fspath(old))
        if above and last:
            try:
                self.removedirs(above)
            except OSError:
                pass

    def walk(
        self,
        top: AnyStr | os.PathLike[AnyStr],
        topdown: bool = True,
        onerror: Callable[[OSError], object] | None = None,
        followlinks: bool = False,
    ) -> Iterator[tuple[AnyStr, list[AnyStr], list[AnyStr]]]:
        """`os.walk`"""
        pending: list[Any] = [os.fspath(top)]
        while pending:
            item = pending.pop()
            if isinstance(item, tuple):
                yield item
                continue
            dirs: list[AnyStr] = []
            files: list[AnyStr] = []
            below = []
            try:
                with self.scandir(item) as entries:
                    for entry in entries:
                        try:
                            is_dir = entry.is_dir()
                        except OSError:
                            is_dir = False
                        (dirs if is_dir else files).append(entry.name)
                        if not topdown and is_dir and (followlinks or not entry.is_symlink()):
                            below.append(entry.path)
            except OSError as error:
                if onerror is not None:
                    onerror(error)
                continue
            if topdown:
                yield item, dirs, files
                paths = (os.path.join(item, name) for name in reversed(dirs))
                pending.extend(path for path in paths if followlinks or not self.islink(path))
            else:
                pending.append((item, dirs, files))
                pending.extend(reversed(below))

    def fwalk(
        self,
        top: Any = ".",
        topdown: bool = True,
        onerror: Callable[[OSError], object] | None = None,
        *,
        follow_symlinks: bool = False,
        dir_fd: int | None = None,
    ) -> Iterator[tuple[Any, list[Any], list[Any], int]]:
        """`os.fwalk`"""
        top = os.fspath(top)
        try:
            before = self.stat(top, follow_symlinks=False, dir_fd=dir_fd)
            fd = self.open(top, os.O_RDONLY | os.O_NONBLOCK, dir_fd=dir_fd)
        except OSError as error:
            if onerror is not None:
                onerror(error)
            return
        try:
            same = os.path.samestat(before, self.fstat(fd))
            if follow_symlinks or (_stat.S_ISDIR(before.st_mode) and same):
                yield from self._fwalk(fd, top, topdown, onerror, follow_symlinks)
        finally:
            self.close(fd)

    def _fwalk(self, fd: Any, top: Any, topdown: Any, onerror: Any, follow: Any) -> Iterator[Any]:
        dirs: list[Any] = []
        files: list[Any] = []
        as_bytes = isinstance(top, bytes)
        with self.scandir(fd) as entries:
            for entry in entries:
                name = os.fsencode(entry.name) if as_bytes else entry.name
                try:
                    (dirs if entry.is_dir() else files).append(name)
                except OSError:
                    files.append(name)
        if topdown:
            yield top, dirs, files, fd
        for name in dirs:
            try:
                before = self.stat(name, dir_fd=fd, follow_symlinks=follow)
                inner = self.open(name, os.O_RDONLY | os.O_NONBLOCK, dir_fd=fd)
            except OSError as error:
                if onerror is not None:
                    onerror(error)
                continue
            try:
                if follow or os.path.samestat(before, self.fstat(inner)):
                    yield from self._fwalk(inner, os.path.join(top, name), topdown, onerror, follow)
            finally:
                self.close(inner)
        if not topdown:
            yield top, dirs, files, fd

    def glob(
        self,
        pathname: AnyStr,
        *,
        root_dir: StrOrBytesPath | None = None,
        recursive: bool = False,
        include_hidden: bool = False,
    ) -> list[AnyStr]:
        """`glob.glob`"""
        return list(self.iglob(pathname, root_dir=root_dir, recursive=recursive, include_hidden=include_hidden))

    def iglob(
        self,
        pathname: AnyStr,
        *,
        root_dir: StrOrBytesPath | None = None,
        recursive: bool = False,
        include_hidden: bool = False,
    ) -> Iterator[AnyStr]:
        """`glob.iglob`"""
        text = os.fsdecode(pathname)
        root = os.fsdecode(root_dir) if root_dir is not None else ""
        absolute = text.startswith("/")
        parts = [part for part in text.split("/") if part]
        start = text[: len(text) - len(text.lstrip("/"))] if absolute else ""
        wants_dir = text.endswith("/") and bool(parts)
        for path in self._glob(root, start, parts, recursive, include_hidden):
            if wants_dir:
                if not self.isdir(os.path.join(root, path)):
                    continue
                path = path.rstrip("/") + "/"
            if path:
                yield os.fsencode(path) if isinstance(pathname, bytes) else path

    def _names(self, path: Any) -> Any:
        try:
            with self.scandir(path or ".") as entries:
                return [(entry.name, entry.is_symlink()) for entry in entries]
        except OSError:
            return []

    def _glob(self, root: Any, base: Any, parts: Any, recursive: Any, hidden: Any) -> Iterator[Any]:
        if not parts:
            yield base
            return
        part, rest = parts[0], parts[1:]
        join = (lambda name: base + name) if not base or base.endswith("/") else (lambda name: f"{base}/{name}")
        here = os.path.join(root, base)
        if recursive and part == "**":
            yield from self._glob(root, base, rest, recursive, hidden) if rest else ([base] if base else [])
            for name, _link in self._names(here):
                path = join(name)
                if name.startswith(".") and not hidden:
                    continue
                if self.isdir(os.path.join(root, path)):
                    yield from self._glob(root, path, parts, recursive, hidden)
                elif not rest:
                    yield path
        elif not re.search(r"[*?[]", part):
            path = join(part)
            if self.lexists(os.path.join(root, path)) and (not rest or self.isdir(os.path.join(root, path))):
                yield from self._glob(root, path, rest, recursive, hidden)
        else:
            matches = re.compile(fnmatch.translate(part)).match
            for name, _link in self._names(here):
                if matches(name) and (hidden or part.startswith(".") or not name.startswith(".")):
                    path = join(name)
                    if not rest or self.isdir(os.path.join(root, path)):
                        yield from self._glob(root, path, rest, recursive, hidden)

    def rmtree(self, path: StrOrBytesPath, ignore_errors: bool = False) -> None:
        """`shutil.rmtree`, relative to descriptors: a link is never followed, also while others change the tree."""
        try:
            if self.islink(path):
                raise OSError("Cannot call rmtree on a symbolic link")
            fd = self.open(path, _DIRECTORY)
            try:
                self._rmtree(fd)
            finally:
                self.close(fd)
            self.rmdir(path)
        except OSError:
            if not ignore_errors:
                raise

    def _rmtree(self, fd: Any) -> None:
        for entry in self.scandir(fd):
            if entry.is_dir(follow_symlinks=False):
                inner = self.open(entry.name, _DIRECTORY, dir_fd=fd)
                try:
                    self._rmtree(inner)
                finally:
                    self.close(inner)
                self.rmdir(entry.name, dir_fd=fd)
            else:
                self.unlink(entry.name, dir_fd=fd)

    def read_bytes(self, path: StrOrBytesPath) -> bytes:
        """The contents of a file."""
        fd = self.open(path, os.O_RDONLY)
        try:
            return self.readall(fd)
        finally:
            self.close(fd)

    def write_bytes(self, path: StrOrBytesPath, data: ReadableBuffer, mode: int = 0o666) -> None:
        """Creates a file, or replaces its contents."""
        fd = self.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        try:
            view = memoryview(data)
            while view:
                view = view[self.write(fd, view) :]
        finally:
            self.close(fd)
