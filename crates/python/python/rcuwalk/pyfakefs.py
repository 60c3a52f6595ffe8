"""pyfakefs's interface over rcuwalk, so that a test suite moves by one line.

In `conftest.py`, instead of pyfakefs's own plugin::

    pytest_plugins = ["rcuwalk.pyfakefs"]

brings the fixtures `fs`, `fs_class`, `fs_module` and `fs_session`. For unittest, import `TestCase` or `TestCaseMixin` from here instead
of from `pyfakefs.fake_filesystem_unittest`; elsewhere `Patcher`, `Pause`, `set_uid`, `set_gid` and `reset_ids`. What answers differently
from pyfakefs is listed in `docs/pyfakefs.md` of the repository: permissions first.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.metadata
import os
import stat
import unittest
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self

import pytest

from . import _io, _patch
from ._fixture import FakeFilesystem as _FakeFilesystem
from ._rcuwalk import Cred

if TYPE_CHECKING:
    from ._rcuwalk import StrOrBytesPath

__all__ = ["FakeDirectory", "FakeFile", "FakeFilesystem", "Patcher", "Pause", "TestCase", "TestCaseMixin"]
__all__ += ["reset_ids", "set_gid", "set_uid"]

_MS_REMOUNT = 32
# Kernel: `MAXSYMLINKS`.
_MAXSYMLINKS = 40
# pyfakefs's modes of new files and directories, before the umask.
_FILE, _DIR = 0o666, 0o777


class _Usage(NamedTuple):
    total: int
    used: int
    free: int


class FakeFile:
    """A file, directory or link, as `FakeFilesystem.get_object` gives it: attributes are read, and set, as root."""

    def __init__(self, filesystem: FakeFilesystem, path: str) -> None:
        self.filesystem = filesystem
        self._path = path

    def _stat(self) -> os.stat_result:
        return self.filesystem.root.lstat(self._path)

    @property
    def path(self) -> str:
        """The path by which the object was asked for, absolute."""
        return self._path

    @property
    def name(self) -> str:
        """The last component of the path."""
        return os.path.basename(self._path) or "/"

    @property
    def st_mode(self) -> int:
        """Type and permissions; setting it sets the permissions."""
        return self._stat().st_mode

    @st_mode.setter
    def st_mode(self, mode: int) -> None:
        self.filesystem.root.chmod(self._path, stat.S_IMODE(mode))

    @property
    def st_uid(self) -> int:
        """The owner."""
        return self._stat().st_uid

    @st_uid.setter
    def st_uid(self, uid: int) -> None:
        self.filesystem.root.chown(self._path, uid, -1, follow_symlinks=False)

    @property
    def st_gid(self) -> int:
        """The group."""
        return self._stat().st_gid

    @st_gid.setter
    def st_gid(self, gid: int) -> None:
        self.filesystem.root.chown(self._path, -1, gid, follow_symlinks=False)

    @property
    def st_size(self) -> int:
        """Bytes; setting it truncates or extends the file."""
        return self._stat().st_size

    @st_size.setter
    def st_size(self, size: int) -> None:
        self.filesystem.root.truncate(self._path, size)

    @property
    def size(self) -> int:
        """Bytes of a file; of a directory, those of all files below it."""
        if not stat.S_ISDIR(self.st_mode):
            return self.st_size
        below = self.filesystem.root.walk(self._path)
        sizes = (self.filesystem.root.lstat(os.path.join(top, name)).st_size for top, _, names in below for name in names)
        return sum(sizes)

    @size.setter
    def size(self, size: int) -> None:
        self.st_size = size

    def _set_time(self, access: int | None, change: int | None) -> None:
        now = self._stat()
        times = now.st_atime_ns if access is None else access, now.st_mtime_ns if change is None else change
        self.filesystem.root.utime(self._path, ns=times, follow_symlinks=False)

    @property
    def st_atime(self) -> float:
        """When it was last read, in seconds."""
        return self._stat().st_atime

    @st_atime.setter
    def st_atime(self, seconds: float) -> None:
        self._set_time(int(seconds * 1e9), None)

    @property
    def st_mtime(self) -> float:
        """When its contents last changed, in seconds."""
        return self._stat().st_mtime

    @st_mtime.setter
    def st_mtime(self, seconds: float) -> None:
        self._set_time(None, int(seconds * 1e9))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("st_"):
            return getattr(self._stat(), name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def byte_contents(self) -> bytes | None:
        """The contents; `None` of what has none."""
        return self.filesystem.root.read_bytes(self._path) if stat.S_ISREG(self.st_mode) else None

    @property
    def contents(self) -> Any:
        """The contents as text; of a link, its target."""
        if stat.S_ISLNK(self.st_mode):
            return self.filesystem.root.readlink(self._path)
        data = self.byte_contents
        return None if data is None else data.decode("utf-8")

    def set_contents(self, contents: str | bytes, encoding: str | None = None) -> bool:
        """Replaces the contents; tells whether they changed."""
        data = contents.encode(encoding or "utf-8") if isinstance(contents, str) else contents
        changed = self.byte_contents != data
        self.filesystem.root.write_bytes(self._path, data)
        return changed

    set_initial_contents = set_contents

    def set_large_file_size(self, st_size: int) -> None:
        """Makes it a hole of that many bytes."""
        self.filesystem.root.truncate(self._path, 0)
        self.filesystem.root.truncate(self._path, st_size)

    def is_large_file(self) -> bool:
        """Whether it is a hole throughout."""
        status = self._stat()
        return status.st_size > 0 and status.st_blocks == 0

    def has_permission(self, permission_bits: int) -> bool:
        """Whether the code under test may read (4), write (2), execute (1) it: what access(2) answers it."""
        return bool(self.filesystem._current().access(self._path, permission_bits))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FakeFile) and (self.st_dev, self.st_ino) == (other.st_dev, other.st_ino)

    def __hash__(self) -> int:
        return hash(self._path)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._path!r})"


class FakeDirectory(FakeFile):
    """A directory."""

    @property
    def entries(self) -> dict[str, FakeFile]:
        """What is in it, by name."""
        names = self.filesystem.root.listdir(self._path)
        return {name: self.filesystem.lresolve(os.path.join(self._path, name)) for name in names}

    @property
    def contents(self) -> Any:
        """What is in it."""
        return list(self.entries.values())

    @property
    def ordered_dirs(self) -> list[str]:
        """The names of what is in it, in the order of their making."""
        found = self.entries
        return sorted(found, key=lambda name: found[name].st_ino)

    def get_entry(self, pathname_name: str) -> FakeFile:
        """What is in it under that name; `KeyError` if nothing is."""
        return self.entries[pathname_name]

    def remove_entry(self, pathname_name: str, recursive: bool = True) -> None:
        """Removes what is there under that name."""
        path = os.path.join(self._path, pathname_name)
        if recursive:
            self.filesystem.remove_object(path)
        else:
            self.filesystem.root.rmdir(path) if self.filesystem.root.isdir(path) else self.filesystem.root.unlink(path)


class FakeFilesystem(_FakeFilesystem):
    """pyfakefs's `FakeFilesystem`, of an engine with Linux's rules. The methods of `rcuwalk.FakeFilesystem` are there as well."""

    is_case_sensitive = True
    is_linux = True
    is_macos = is_windows_fs = False
    path_separator, alternative_path_separator, pathsep, line_separator = "/", None, ":", "\n"
    root_dir_name, devnull = "/", "/dev/null"

    def __init__(self, patcher: Patcher | None = None, total_size: int | None = None, **settings: Any) -> None:
        self.patcher = patcher
        self._settings = settings
        super().__init__(size=total_size, **settings)

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(FakeFilesystem, name) and isinstance(getattr(FakeFilesystem, name), (bool, str, type(None))):
            if value != getattr(FakeFilesystem, name):
                raise NotImplementedError(f"fs.{name} = {value!r}: rcuwalk answers as Linux does, and as nothing else")
            return
        super().__setattr__(name, value)

    def _lay_out(self, tmpdir: bool) -> None:
        super()._lay_out(tmpdir)
        for path in ("/home", "/root"):
            self.root.rmdir(path)

    def __exit__(self, *exception: object) -> None:
        _io.effects.clear()
        super().__exit__(*exception)

    @property
    def cwd(self) -> str:
        """The current directory of the code under test."""
        return str(self._current().getcwd())

    @cwd.setter
    def cwd(self, path: str) -> None:
        self._current().chdir(path)

    @property
    def umask(self) -> int:
        """The umask of the code under test."""
        mask: int = self._current().umask(0)
        self._current().umask(mask)
        return mask

    @umask.setter
    def umask(self, mask: int) -> None:
        self._current().umask(mask)

    @property
    def root_dir(self) -> FakeDirectory:
        """`/`"""
        return FakeDirectory(self, "/")

    def reset(self, total_size: int | None = None, init_pathlib: bool = True) -> None:
        """Removes everything, as if the test began now."""
        fresh = type(self)(self.patcher, total_size, **self._settings)
        self.vfs, self.root, self.task = fresh.vfs, fresh.root, fresh.task
        self._patcher._tasks[:] = [self.task]
        _io.effects.clear()

    # Objects.

    def resolve(self, file_path: StrOrBytesPath, follow_symlinks: bool = True, **_checks: Any) -> FakeFile:
        """The object at a path; `FileNotFoundError` if nothing is there."""
        path = self._absolute(file_path)
        if follow_symlinks and self.root.islink(path):
            path = self.resolve_path(path)
        kind = FakeDirectory if stat.S_ISDIR(self.root.lstat(path).st_mode) else FakeFile
        return kind(self, path)

    def lresolve(self, path: StrOrBytesPath) -> FakeFile:
        """The object at a path, a link itself if it is one."""
        return self.resolve(path, follow_symlinks=False)

    def get_object(self, file_path: StrOrBytesPath, **_checks: Any) -> FakeFile:
        """The object at a path."""
        return self.lresolve(file_path)

    def resolve_path(self, file_path: StrOrBytesPath, allow_fd: bool = False) -> str:
        """The path without links and `..`."""
        done, left, links = "/", self._absolute(file_path).split("/")[::-1], 0
        while left:
            name = left.pop()
            place = os.path.join(done, name)
            if name == "..":
                done = os.path.dirname(done)
            elif name not in ("", ".") and self.root.islink(place):
                links += 1
                if links > _MAXSYMLINKS:
                    self.raise_os_error(errno.ELOOP, os.fsdecode(file_path))
                target = self.root.readlink(place)
                done = "/" if target.startswith("/") else done
                left.extend(target.split("/")[::-1])
            elif name not in ("", "."):
                done = place
        return done

    def confirmdir(self, target_directory: StrOrBytesPath, **_checks: Any) -> FakeDirectory:
        """The directory at a path; `NotADirectoryError` if something else is there."""
        found = self.resolve(target_directory)
        if not isinstance(found, FakeDirectory):
            self.raise_os_error(errno.ENOTDIR, found.path)
        return found

    def raise_os_error(self, err_no: int, filename: Any = None, winerror: int | None = None) -> NoReturn:
        """Raises the subclass of `OSError` for a number."""
        raise OSError(err_no, os.strerror(err_no), filename)

    # Making things.

    def _make_missing(self, path: str, mode: int) -> None:
        above = os.path.dirname(path)
        if not self.root.exists(above):
            self._make_missing(above, mode)
            self.root.mkdir(above, mode)
            self._give(above)

    def _give(self, path: str) -> None:
        """What a test makes is the code's under test, as with pyfakefs."""
        task = self._current()
        self.root.chown(path, task.geteuid(), task.getegid(), follow_symlinks=False)

    def create_file(  # type: ignore[override]
        self,
        file_path: StrOrBytesPath,
        st_mode: int = stat.S_IFREG | _FILE,
        contents: Any = "",
        st_size: int | None = None,
        create_missing_dirs: bool = True,
        apply_umask: bool = True,
        encoding: str | None = None,
        errors: str | None = None,
        side_effect: Callable[[FakeFile], object] | None = None,
    ) -> FakeFile:
        """Makes a file; `side_effect` is called with it whenever a file object that has written to it is closed."""
        path = self._absolute(file_path)
        if create_missing_dirs:
            self._make_missing(path, _DIR & ~self.umask)
        mode = stat.S_IMODE(st_mode) & ~(self.umask if apply_umask else 0)
        if stat.S_IFMT(st_mode) in (0, stat.S_IFREG):
            data = "" if contents is None else contents
            super().create_file(
                path, data, mode, size=st_size, encoding=encoding or "utf-8", errors=errors or "strict",
                create_missing_dirs=False,
            )  # fmt: skip
        elif stat.S_ISLNK(st_mode):
            self.root.symlink(contents, path)
        else:
            self.root.mknod(path, stat.S_IFMT(st_mode) | mode)
        self._give(path)
        made = self.lresolve(path)
        if side_effect is not None:
            _io.effects[made.st_dev, made.st_ino] = lambda: side_effect(made)
        return made

    def create_dir(  # type: ignore[override]
        self, directory_path: StrOrBytesPath, perm_bits: int = _DIR, apply_umask: bool = True
    ) -> FakeDirectory:
        """Makes a directory, and those above it."""
        path = self._absolute(directory_path)
        mode = perm_bits & ~(self.umask if apply_umask else 0)
        self._make_missing(path, mode)
        self.root.mkdir(path, mode)
        self._give(path)
        return FakeDirectory(self, path)

    def create_symlink(  # type: ignore[override]
        self, file_path: StrOrBytesPath, link_target: StrOrBytesPath, create_missing_dirs: bool = True
    ) -> FakeFile:
        """Makes a symbolic link."""
        path = self._absolute(file_path)
        if create_missing_dirs:
            self._make_missing(path, _DIR & ~self.umask)
        self.root.symlink(link_target, path)
        self._give(path)
        return self.lresolve(path)

    def create_link(  # type: ignore[override]
        self,
        old_path: StrOrBytesPath,
        new_path: StrOrBytesPath,
        follow_symlinks: bool = True,
        create_missing_dirs: bool = True,
    ) -> FakeFile:
        """Makes a further name of a file."""
        new = self._absolute(new_path)
        if create_missing_dirs:
            self._make_missing(new, _DIR & ~self.umask)
        self.root.link(self._absolute(old_path), new, follow_symlinks=follow_symlinks)
        return self.lresolve(new)

    link = create_link

    # The machine's files.

    def add_real_file(  # type: ignore[override]
        self, source_path: StrOrBytesPath, read_only: bool = True, target_path: StrOrBytesPath | None = None
    ) -> FakeFile:
        """Copies a file of the machine."""
        return self.lresolve(super().add_real_file(source_path, read_only, target_path))

    def add_real_symlink(self, source_path: StrOrBytesPath, target_path: StrOrBytesPath | None = None) -> FakeFile:
        """Copies a symbolic link of the machine, not what it leads to."""
        with _patch.real_files():
            target = os.readlink(os.fsdecode(source_path))
        return self.create_symlink(source_path if target_path is None else target_path, target)

    def add_real_directory(  # type: ignore[override]
        self,
        source_path: StrOrBytesPath,
        read_only: bool = True,
        lazy_read: bool = True,
        target_path: StrOrBytesPath | None = None,
    ) -> FakeDirectory:
        """Copies a directory of the machine, contents included, `lazy_read` or not: that is quick enough."""
        super().add_real_directory(source_path, read_only, target_path)
        return self.confirmdir(source_path if target_path is None else target_path)

    def add_real_paths(
        self, path_list: Iterable[StrOrBytesPath], read_only: bool = True, lazy_dir_read: bool = True
    ) -> None:
        """Copies files and directories of the machine."""
        super().add_real_paths(path_list, read_only)

    def add_package_metadata(self, package_name: str) -> None:
        """Copies what `importlib.metadata` reads of an installed package, and of those that it needs."""
        with _patch.real_files():
            distribution = importlib.metadata.distribution(package_name)
            place = str(getattr(distribution, "_path", ""))
            needs = [need for need in distribution.requires or () if "extra ==" not in need]
        if place and not self.root.exists(place):
            self.add_real_directory(place)
            for need in needs:
                name = need.split(";")[0].strip()
                with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                    self.add_package_metadata("".join(c if c.isalnum() or c in "-_." else " " for c in name).split()[0])

    # Disks.

    def add_mount_point(
        self, path: StrOrBytesPath, total_size: int | None = None, can_exist: bool = False
    ) -> dict[str, Any]:
        """Mounts an empty disk of that size, in bytes of whole pages."""
        place = self._absolute(path)
        if not self.root.exists(place):
            self.create_dir(place)
        elif not can_exist and self.is_mount_point(place):
            self.raise_os_error(errno.EEXIST, place)
        size = (1 << 40) if total_size is None else total_size
        self.root.mount("tmpfs", place, "tmpfs", 0, f"size={size},mode=0777")
        status = self.root.stat(place)
        return {"idev": status.st_dev, "total_size": total_size, "used_size": 0}

    def get_disk_usage(self, path: StrOrBytesPath | None = None) -> _Usage:
        """The bytes of the disk that a path is on: in all, used, free."""
        disk = self.root.statvfs("/" if path is None else self._absolute(path))
        total, free = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
        return _Usage(total, total - free, free)

    def set_disk_usage(self, total_size: int, path: StrOrBytesPath | None = None) -> None:
        """Sets the size of the disk that a path is on, in bytes of whole pages; `OSError` if more is used."""
        place = "/" if path is None else self._absolute(path)
        while not self.is_mount_point(place):
            place = os.path.dirname(place)
        if total_size < self.get_disk_usage(place).used:
            self.raise_os_error(errno.ENOSPC, place)
        self.root.mount("", place, "", _MS_REMOUNT, f"size={total_size}")

    # What `os` does, as root.

    def exists(self, file_path: StrOrBytesPath, check_link: bool = False) -> bool:
        """Whether there is something; with `check_link`, also a link that leads nowhere."""
        path = self._absolute(file_path)
        return self.root.lexists(path) if check_link else self.root.exists(path)

    def isdir(self, path: StrOrBytesPath, follow_symlinks: bool = True) -> bool:
        """Whether it is a directory."""
        place = self._absolute(path)
        return self.root.isdir(place) and (follow_symlinks or not self.root.islink(place))

    def isfile(self, path: StrOrBytesPath, follow_symlinks: bool = True) -> bool:
        """Whether it is a regular file."""
        place = self._absolute(path)
        return self.root.isfile(place) and (follow_symlinks or not self.root.islink(place))

    def islink(self, path: StrOrBytesPath) -> bool:
        """Whether it is a symbolic link."""
        return self.root.islink(self._absolute(path))

    def listdir(self, target_directory: StrOrBytesPath) -> list[str]:
        """The names in a directory."""
        return self.root.listdir(self._absolute(target_directory))

    def makedir(self, dir_path: StrOrBytesPath, mode: int = _DIR) -> None:
        """Makes a directory."""
        self.root.mkdir(self._absolute(dir_path), mode & ~self.umask)
        self._give(self._absolute(dir_path))

    def makedirs(self, dir_name: StrOrBytesPath, mode: int = _DIR, exist_ok: bool = False) -> None:
        """Makes a directory, and those above it."""
        if not (exist_ok and self.isdir(dir_name)):
            self.create_dir(dir_name, mode)

    def remove(self, path: StrOrBytesPath) -> None:
        """Removes a file."""
        self.root.unlink(self._absolute(path))

    def rmdir(self, target_directory: StrOrBytesPath, allow_symlink: bool = False) -> None:
        """Removes an empty directory."""
        self.root.rmdir(self._absolute(target_directory))

    def rename(self, old_file_path: StrOrBytesPath, new_file_path: StrOrBytesPath, force_replace: bool = False) -> None:
        """Renames."""
        self.root.rename(self._absolute(old_file_path), self._absolute(new_file_path))

    def readlink(self, path: StrOrBytesPath) -> str:
        """Where a link leads."""
        return self.root.readlink(self._absolute(path))

    def stat(self, entry_path: StrOrBytesPath, follow_symlinks: bool = True) -> os.stat_result:
        """`os.stat`"""
        return self.root.stat(self._absolute(entry_path), follow_symlinks=follow_symlinks)

    def utime(
        self,
        path: StrOrBytesPath,
        times: tuple[float, float] | None = None,
        *,
        ns: tuple[int, int] | None = None,
        follow_symlinks: bool = True,
    ) -> None:
        """`os.utime`"""
        given = {"times": times} if ns is None else {"ns": ns}
        self.root.utime(self._absolute(path), **given, follow_symlinks=follow_symlinks)

    def joinpaths(self, *paths: str) -> str:
        """`os.path.join`"""
        return os.path.join(*paths)

    def normpath(self, path: str) -> str:
        """`os.path.normpath`"""
        return os.path.normpath(path)

    def absnormpath(self, path: str) -> str:
        """The absolute path, without `.` and `..`."""
        return os.path.normpath(self._absolute(path))

    def splitpath(self, path: str) -> tuple[str, str]:
        """`os.path.split`"""
        return os.path.split(path)

    def is_mount_point(self, file_path: StrOrBytesPath) -> bool:
        """`os.path.ismount`"""
        place = self._absolute(file_path).rstrip("/") or "/"
        devices = [self.root.lstat(path).st_dev for path in (place, os.path.dirname(place))]
        return place == "/" or devices[0] != devices[1]

    def clear_cache(self) -> None:
        """Does nothing: there is none."""


class Patcher:
    """pyfakefs's `Patcher`: a context manager, or `setUp` and `tearDown`.

    `allow_root_user=False` has the code under test run as uid 1. The names of modules to be skipped, reloaded or patched are not
    needed, since rcuwalk replaces the functions themselves and finds their copies; names to be skipped cannot be, and a warning says so.
    """

    def __init__(
        self,
        additional_skip_names: Sequence[Any] | None = None,
        modules_to_reload: Sequence[Any] | None = None,
        modules_to_patch: dict[str, Any] | None = None,
        allow_root_user: bool = True,
        use_known_patches: bool = True,
        patch_open_code: Any = None,
        patch_default_args: bool = False,
        use_cache: bool = True,
        use_dynamic_patch: bool = True,
        is_doc_test: bool = False,
        **settings: Any,
    ) -> None:
        if additional_skip_names:
            warnings.warn(
                f"additional_skip_names={list(additional_skip_names)!r}: these modules see the files in memory as well; "
                "wrap their calls in fs.real_files() to let them see the machine's",
                stacklevel=2,
            )
        self._allow_root_user = allow_root_user
        self._settings = settings
        self.fs: FakeFilesystem = None  # type: ignore[assignment]
        self._paused = False

    def setUp(self, doctester: object = None) -> None:
        """Puts a fresh file system in the place of the machine's."""
        self.fs = FakeFilesystem(self, **self._settings)
        if not self._allow_root_user:
            self.fs.task.cred = Cred(1, 1)
        self.fs.__enter__()

    def tearDown(self, doctester: object = None) -> None:
        """Brings the machine's files back."""
        if not self._paused:
            self.fs.__exit__()

    @property
    def is_patching(self) -> bool:
        """Whether the file system in memory is the one that is seen."""
        return self.fs is not None and not self._paused

    def pause(self) -> None:
        """Shows the machine's files, until `resume`."""
        if not self._paused:
            self._paused = True
            self.fs.pause()

    def resume(self) -> None:
        """Ends `pause`."""
        if self._paused:
            self._paused = False
            self.fs.resume()

    def __enter__(self) -> Self:
        self.setUp()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.tearDown()


class Pause:
    """A block in which the machine's files are seen: `with Pause(fs)`, of a file system, a patcher or a test case."""

    def __init__(self, caller: Any) -> None:
        self._patcher: Patcher = caller if isinstance(caller, Patcher) else caller.patcher

    def __enter__(self) -> FakeFilesystem:
        self._patcher.pause()
        return self._patcher.fs

    def __exit__(self, *exception: object) -> None:
        self._patcher.resume()


class TestCaseMixin:
    """For `unittest.TestCase`: `self.setUpPyfakefs()` in `setUp`, then `self.fs`."""

    __test__ = False
    patcher: Patcher
    fs: FakeFilesystem

    def setUpPyfakefs(self, *args: Any, **kwargs: Any) -> None:
        """Puts a fresh file system in the place of the machine's until the test ends; parameters as of `Patcher`."""
        self.patcher = Patcher(*args, **kwargs)
        self.patcher.setUp()
        self.fs = self.patcher.fs
        self.addCleanup(self.patcher.tearDown)  # type: ignore[attr-defined]

    def pause(self) -> None:
        """Shows the machine's files, until `resume`."""
        self.patcher.pause()

    def resume(self) -> None:
        """Ends `pause`."""
        self.patcher.resume()


class TestCase(unittest.TestCase, TestCaseMixin):
    """A test case with a file system in memory."""

    __test__ = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.__test__ = True


def _current() -> Any:
    task = _patch._task()
    if task is None:
        raise RuntimeError("no file system in memory is in the place of the machine's")
    return task


def set_uid(uid: int) -> None:
    """From now on the code under test has this user id."""
    task = _current()
    task.cred = Cred(uid, task.getegid())


def set_gid(gid: int) -> None:
    """From now on the code under test has this group id."""
    task = _current()
    task.cred = Cred(task.geteuid(), gid)


def reset_ids() -> None:
    """The code under test is root again."""
    _current().cred = Cred(0)


def _fixture(request: Any) -> Iterator[FakeFilesystem]:
    marker = request.node.get_closest_marker("rcuwalk_fs")
    with Patcher(*getattr(request, "param", ()), **(marker.kwargs if marker else {})) as patcher:
        yield patcher.fs


fs = pytest.fixture(_fixture, name="fs")
fs_class = pytest.fixture(_fixture, name="fs_class", scope="class")
fs_module = pytest.fixture(_fixture, name="fs_module", scope="module")
fs_session = pytest.fixture(_fixture, name="fs_session", scope="session")
