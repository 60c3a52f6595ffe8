"""An fsspec file system over a task: `fsspec.filesystem("rcuwalk", task=task)`, or `rcuwalk://` with a name for a shared one."""

from __future__ import annotations

import datetime
import stat as _stat
import threading

from fsspec import AbstractFileSystem
from fsspec.utils import stringify_path

from ._rcuwalk import Cred
from ._task import Vfs

_KINDS = {_stat.S_IFDIR: "directory", _stat.S_IFREG: "file", _stat.S_IFLNK: "link"}
_lock = threading.Lock()
_shared: dict[str, Vfs] = {}


def _vfs(name):
    """The file system of that name: the same one wherever it is asked for in this process."""
    with _lock:
        if name not in _shared:
            _shared[name] = Vfs()
        return _shared[name]


class RcuwalkFileSystem(AbstractFileSystem):
    """Files of a `Task`, held to its user's permissions.

    `task`: whose; without one, a task of the file system `vfs`, or of the one that this process knows by `name`, for user `uid`
    (root if absent) with `gid` and `groups`. Errors are `OSError`s as `os` raises them.
    """

    protocol = "rcuwalk"
    root_marker = "/"
    # Two that are made alike are not alike: tasks change.
    cachable = False

    def __init__(self, task=None, vfs=None, name="", uid=None, gid=None, groups=(), auto_mkdir=False, **kwargs):
        super().__init__(**kwargs)
        if task is None:
            cred = None if uid is None else Cred(uid, gid, list(groups))
            task = (vfs or _vfs(name)).task(cred)
        self.task = task
        self.auto_mkdir = auto_mkdir

    @classmethod
    def _strip_protocol(cls, path):
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = stringify_path(path)
        for prefix in ("rcuwalk://", "rcuwalk:"):
            if path.startswith(prefix):
                path = path[len(prefix) :]
        return "/" + path.strip("/") if path.strip("/") else cls.root_marker

    @property
    def fsid(self):
        """Which file system this is."""
        return f"rcuwalk-{id(self.task.vfs):x}"

    def _entry(self, path, status, target=None):
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

    def info(self, path, **kwargs):
        path = self._strip_protocol(path)
        status, target = self.task.lstat(path), None
        if _stat.S_ISLNK(status.st_mode):
            target = self.task.readlink(path)
            try:
                status = self.task.stat(path)
            except FileNotFoundError:
                pass
        return self._entry(path, status, target)

    def exists(self, path, **kwargs):
        return self.task.exists(self._strip_protocol(path))

    def lexists(self, path, **kwargs):
        """Whether there is something, if only a link to nothing."""
        return self.task.lexists(self._strip_protocol(path))

    def isfile(self, path):
        return self.task.isfile(self._strip_protocol(path))

    def isdir(self, path):
        return self.task.isdir(self._strip_protocol(path))

    def islink(self, path):
        """Whether it is a symbolic link."""
        return self.task.islink(self._strip_protocol(path))

    def ls(self, path, detail=False, **kwargs):
        path = self._strip_protocol(path)
        if self.isdir(path):
            names = [f"{path.rstrip('/')}/{name}" for name in sorted(self.task.listdir(path))]
        else:
            self.task.stat(path)
            names = [path]
        return [self.info(name) for name in names] if detail else names

    def mkdir(self, path, create_parents=True, **kwargs):
        path = self._strip_protocol(path)
        if create_parents:
            self.makedirs(self._parent(path), exist_ok=True)
        self.task.mkdir(path, kwargs.get("mode", 0o777))

    def makedirs(self, path, exist_ok=False):
        self.task.makedirs(self._strip_protocol(path), exist_ok=exist_ok)

    def rmdir(self, path):
        self.task.rmdir(self._strip_protocol(path))

    def rm_file(self, path):
        self.task.unlink(self._strip_protocol(path))

    def rm(self, path, recursive=False, maxdepth=None):
        for one in path if isinstance(path, list) else [path]:
            one = self._strip_protocol(one)
            if self.isdir(one) and not self.islink(one):
                if not recursive:
                    raise IsADirectoryError(21, "Is a directory", one)
                self.task.rmtree(one)
            else:
                self.task.unlink(one)

    def cp_file(self, path1, path2, **kwargs):
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.auto_mkdir:
            self.makedirs(self._parent(path2), exist_ok=True)
        if self.isdir(path1):
            self.task.makedirs(path2, exist_ok=True)
        else:
            mode = self.task.stat(path1).st_mode & 0o777
            self.task.write_bytes(path2, self.task.read_bytes(path1), mode)

    def mv(self, path1, path2, recursive=False, maxdepth=None, **kwargs):
        self.task.rename(self._strip_protocol(path1), self._strip_protocol(path2))

    def link(self, src, dst):
        """Makes a further name of a file."""
        self.task.link(self._strip_protocol(src), self._strip_protocol(dst))

    def symlink(self, src, dst):
        """Makes a symbolic link."""
        self.task.symlink(src, self._strip_protocol(dst))

    def chmod(self, path, mode):
        """Changes permissions."""
        self.task.chmod(self._strip_protocol(path), mode)

    def touch(self, path, truncate=True, **kwargs):
        path = self._strip_protocol(path)
        if self.auto_mkdir:
            self.makedirs(self._parent(path), exist_ok=True)
        if not self.task.exists(path) or truncate:
            self.task.write_bytes(path, b"")
        else:
            self.task.utime(path)

    def created(self, path):
        return datetime.datetime.fromtimestamp(self.info(path)["created"], tz=datetime.timezone.utc)

    def modified(self, path):
        return datetime.datetime.fromtimestamp(self.info(path)["mtime"], tz=datetime.timezone.utc)

    def cat_file(self, path, start=None, end=None, **kwargs):
        data = self.task.read_bytes(self._strip_protocol(path))
        return data[start:end] if start is not None or end is not None else data

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        path = self._strip_protocol(path)
        if self.auto_mkdir:
            self.makedirs(self._parent(path), exist_ok=True)
        if mode == "create" and self.task.exists(path):
            raise FileExistsError(17, "File exists", path)
        self.task.write_bytes(path, value)

    def _open(self, path, mode="rb", block_size=None, autocommit=True, cache_options=None, **kwargs):
        path = self._strip_protocol(path)
        if self.auto_mkdir and "r" not in mode:
            self.makedirs(self._parent(path), exist_ok=True)
        return self.task.open_file(path, mode)
