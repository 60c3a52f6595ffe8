"""An fsspec file system over a task: `fsspec.filesystem("rcuwalk", task=task)`, or `rcuwalk://` with a name for a shared one."""

from __future__ import annotations

import datetime
import stat as _stat
import threading
from collections.abc import Iterator
from typing import Any

from fsspec import AbstractFileSystem  # type: ignore[import-untyped]
from fsspec.utils import stringify_path  # type: ignore[import-untyped]

from ._rcuwalk import Cred
from ._task import Vfs

_KINDS = {_stat.S_IFDIR: "directory", _stat.S_IFREG: "file", _stat.S_IFLNK: "link"}
_lock = threading.Lock()
_shared: dict[str, Vfs] = {}


def _vfs(name: Any) -> Any:
    """The file system of that name: the same one wherever it is asked for in this process."""
    with _lock:
        if name not in _shared:
            _shared[name] = Vfs()
        return _shared[name]


class RcuwalkFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Files of a `Task`, held to its user's permissions.

    `task`: whose; without one, a task of the file system `vfs`, or of the one that this process knows by `name`, for user `uid`
    (root if absent) with `gid` and `groups`. Errors are `OSError`s as `os` raises them.
    """

    protocol = "rcuwalk"
    root_marker = "/"
    # Two that are made alike are not alike: tasks change.
    cachable = False

    def __init__(self, task: Any = None, vfs: Any = None, name: Any = "", uid: Any = None, gid: Any = None, groups: Any = (), auto_mkdir: Any = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if task is None:
            cred = None if uid is None else Cred(uid, gid, list(groups))
            task = (vfs or _vfs(name)).task(cred)
        self.task = task
        self.auto_mkdir = auto_mkdir

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = stringify_path(path)
        for prefix in ("rcuwalk://", "rcuwalk:"):
            if path.startswith(prefix):
                path = path[len(prefix) :]
        return "/" + path.strip("/") if path.strip("/") else cls.root_marker

    @property
    def fsid(self) -> Any:
        """Which file system this is."""
        return f"rcuwalk-{id(self.task.vfs):x}"

    def _entry(self, path: Any, status: Any, target: Any = None) -> Any:
        mode = status.st_mode
        info = {
            "name": path,
            "size": status.st_size,
            "type": _KINDS.get(_stat.S_IFMT(mode), "other"),
            "created": status.st_ctime,
            "islink": target is not None,
            "mode": mode,
            "uid": status.st_uid,
            "gid": status.st_gid,
            "mtime": status.st_mtime,
            "ino": status.st_ino,
            "nlink": status.st_nlink,
        }
        if target is not None:
            info["destination"] = target
        return info

    def info(self, path: Any, **kwargs: Any) -> Any:
        path = self._strip_protocol(path)
        status, target = self.task.lstat(path), None
        if _stat.S_ISLNK(status.st_mode):
            target = self.task.readlink(path)
            try:
                status = self.task.stat(path)
            except FileNotFoundError:
                pass
        return self._entry(path, status, target)

    def exists(self, path: Any, **kwargs: Any) -> Any:
        return self.task.exists(self._strip_protocol(path))

    def lexists(self, path: Any, **kwargs: Any) -> Any:
        """Whether there is something, if only a link to nothing."""
        return self.task.lexists(self._strip_protocol(path))

    def isfile(self, path: Any) -> Any:
        return self.task.isfile(self._strip_protocol(path))

    def isdir(self, path: Any) -> Any:
        return self.task.isdir(self._strip_protocol(path))

    def islink(self, path: Any) -> Any:
        """Whether it is a symbolic link."""
        return self.task.islink(self._strip_protocol(path))

    def ls(self, path: Any, detail: Any = False, **kwargs: Any) -> Any:
        path = self._strip_protocol(path)
        if self.isdir(path):
            names = [f"{path.rstrip('/')}/{name}" for name in sorted(self.task.listdir(path))]
        else:
            self.task.stat(path)
            names = [path]
        return [self.info(name) for name in names] if detail else names

    def mkdir(self, path: Any, create_parents: Any = True, **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        if create_parents:
            self.makedirs(self._parent(path), exist_ok=True)
        self.task.mkdir(path, kwargs.get("mode", 0o777))

    def makedirs(self, path: Any, exist_ok: Any = False) -> None:
        self.task.makedirs(self._strip_protocol(path), exist_ok=exist_ok)

    def rmdir(self, path: Any) -> None:
        self.task.rmdir(self._strip_protocol(path))

    def rm_file(self, path: Any) -> None:
        self.task.unlink(self._strip_protocol(path))

    def rm(self, path: Any, recursive: Any = False, maxdepth: Any = None) -> None:
        for one in path if isinstance(path, list) else [path]:
            one = self._strip_protocol(one)
            if self.isdir(one) and not self.islink(one):
                if not recursive:
                    raise IsADirectoryError(21, "Is a directory", one)
                self.task.rmtree(one)
            else:
                self.task.unlink(one)

    def cp_file(self, path1: Any, path2: Any, **kwargs: Any) -> None:
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.auto_mkdir:
            self.makedirs(self._parent(path2), exist_ok=True)
        if self.isdir(path1):
            self.task.makedirs(path2, exist_ok=True)
        else:
            mode = self.task.stat(path1).st_mode & 0o777
            self.task.write_bytes(path2, self.task.read_bytes(path1), mode)

    def mv(self, path1: Any, path2: Any, recursive: Any = False, maxdepth: Any = None, **kwargs: Any) -> None:
        self.task.rename(self._strip_protocol(path1), self._strip_protocol(path2))

    def link(self, src: Any, dst: Any) -> None:
        """Makes a further name of a file."""
        self.task.link(self._strip_protocol(src), self._strip_protocol(dst))

    def symlink(self, src: Any, dst: Any) -> None:
        """Makes a symbolic link."""
        self.task.symlink(src, self._strip_protocol(dst))

    def chmod(self, path: Any, mode: Any) -> None:
        """Changes permissions."""
        self.task.chmod(self._strip_protocol(path), mode)

    def touch(self, path: Any, truncate: Any = True, **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        if self.auto_mkdir:
            self.makedirs(self._parent(path), exist_ok=True)
        if not self.task.exists(path) or truncate:
            self.task.write_bytes(path, b"")
        else:
            self.task.utime(path)

    def created(self, path: Any) -> Any:
        return datetime.datetime.fromtimestamp(self.info(path)["created"], tz=datetime.timezone.utc)

    def modified(self, path: Any) -> Any:
        return datetime.datetime.fromtimestamp(self.info(path)["mtime"], tz=datetime.timezone.utc)

    def cat_file(self, path: Any, start: Any = None, end: Any = None, **kwargs: Any) -> Any:
        data = self.task.read_bytes(self._strip_protocol(path))
        return data[start:end] if start is not None or end is not None else data

    def pipe_file(self, path: Any, value: Any, mode: Any = "overwrite", **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        if self.auto_mkdir:
            self.makedirs(self._parent(path), exist_ok=True)
        if mode == "create" and self.task.exists(path):
            raise FileExistsError(17, "File exists", path)
        self.task.write_bytes(path, value)

    def _open(self, path: Any, mode: Any = "rb", block_size: Any = None, autocommit: Any = True, cache_options: Any = None, **kwargs: Any) -> Any:
        path = self._strip_protocol(path)
        if self.auto_mkdir and "r" not in mode:
            self.makedirs(self._parent(path), exist_ok=True)
        return self.task.open_file(path, mode)
