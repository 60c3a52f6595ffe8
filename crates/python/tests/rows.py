"""Runs behaviour rows (`cases/*.toml`) through the Python package; the format is described in `cases/README.md`.

Where `os` can say what a row says, its function makes the call; what only the kernel's own interface can say (raw flags, empty
paths) goes through the method of `Task` that has the kernel's name.
"""

import errno
import os
import resource
import stat
import struct
import time

from rcuwalk import CAPABILITIES, Cred, Vfs

FULL = (1 << len(CAPABILITIES)) - 1
AT_FDCWD = -100
CAP = {name: bit for bit, name in enumerate(CAPABILITIES)}

# Names that rows use and `os` does not have.
WORDS = {
    "O_LARGEFILE": 0o100000,
    "__O_TMPFILE": 0o20000000,
    "RESOLVE_NO_XDEV": 1,
    "RESOLVE_NO_MAGICLINKS": 2,
    "RESOLVE_NO_SYMLINKS": 4,
    "RESOLVE_BENEATH": 8,
    "RESOLVE_IN_ROOT": 16,
    "RESOLVE_CACHED": 32,
    "AT_SYMLINK_NOFOLLOW": 0x100,
    "AT_EACCESS": 0x200,
    "AT_REMOVEDIR": 0x200,
    "AT_SYMLINK_FOLLOW": 0x400,
    "AT_NO_AUTOMOUNT": 0x800,
    "AT_EMPTY_PATH": 0x1000,
    "AT_STATX_FORCE_SYNC": 0x2000,
    "AT_STATX_DONT_SYNC": 0x4000,
    "AT_RECURSIVE": 0x8000,
    "AT_EXECVE_CHECK": 0x10000,
    "STATX_TYPE": 1,
    "STATX_MODE": 2,
    "STATX_NLINK": 4,
    "STATX_UID": 8,
    "STATX_GID": 0x10,
    "STATX_ATIME": 0x20,
    "STATX_MTIME": 0x40,
    "STATX_CTIME": 0x80,
    "STATX_INO": 0x100,
    "STATX_SIZE": 0x200,
    "STATX_BLOCKS": 0x400,
    "STATX_BASIC_STATS": 0x7FF,
    "STATX_BTIME": 0x800,
    "STATX_ALL": 0xFFF,
    "STATX_MNT_ID": 0x1000,
    "STATX_DIOALIGN": 0x2000,
    "STATX_MNT_ID_UNIQUE": 0x4000,
    "STATX_SUBVOL": 0x8000,
    "STATX_WRITE_ATOMIC": 0x10000,
    "STATX_DIO_READ_ALIGN": 0x20000,
    "STATX__RESERVED": 0x80000000,
    "STATX_ATTR_COMPRESSED": 4,
    "STATX_ATTR_IMMUTABLE": 0x10,
    "STATX_ATTR_APPEND": 0x20,
    "STATX_ATTR_NODUMP": 0x40,
    "STATX_ATTR_ENCRYPTED": 0x800,
    "STATX_ATTR_AUTOMOUNT": 0x1000,
    "STATX_ATTR_MOUNT_ROOT": 0x2000,
    "STATX_ATTR_VERITY": 0x100000,
    "STATX_ATTR_DAX": 0x200000,
    "RENAME_NOREPLACE": 1,
    "RENAME_EXCHANGE": 2,
    "RENAME_WHITEOUT": 4,
    "F_DUPFD": 0,
    "F_GETFD": 1,
    "F_SETFD": 2,
    "F_GETFL": 3,
    "F_SETFL": 4,
    "F_DUPFD_CLOEXEC": 1030,
    "F_SETSIG": 10,
    "F_GETSIG": 11,
    "F_CREATED_QUERY": 1028,
    "RWF_HIPRI": 1,
    "RWF_DSYNC": 2,
    "RWF_SYNC": 4,
    "RWF_NOWAIT": 8,
    "RWF_APPEND": 0x10,
    "RWF_NOAPPEND": 0x20,
    "RWF_ATOMIC": 0x40,
    "RWF_DONTCACHE": 0x80,
    "RWF_NOSIGNAL": 0x100,
    "FALLOC_FL_KEEP_SIZE": 1,
    "FALLOC_FL_PUNCH_HOLE": 2,
    "FALLOC_FL_COLLAPSE_RANGE": 8,
    "FALLOC_FL_ZERO_RANGE": 0x10,
    "FALLOC_FL_INSERT_RANGE": 0x20,
    "FALLOC_FL_UNSHARE_RANGE": 0x40,
    "FS_SYNC_FL": 8,
    "FS_IMMUTABLE_FL": 0x10,
    "FS_APPEND_FL": 0x20,
    "FS_NODUMP_FL": 0x40,
    "FS_NOATIME_FL": 0x80,
    "SECBIT_NOROOT": 1,
    "SECBIT_NOROOT_LOCKED": 2,
    "SECBIT_NO_SETUID_FIXUP": 4,
    "SECBIT_NO_SETUID_FIXUP_LOCKED": 8,
    "SECBIT_KEEP_CAPS": 0x10,
    "SECBIT_KEEP_CAPS_LOCKED": 0x20,
    "SECBIT_NO_CAP_AMBIENT_RAISE": 0x40,
    "SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED": 0x80,
    "SECBIT_EXEC_RESTRICT_FILE": 0x100,
    "SECBIT_EXEC_RESTRICT_FILE_LOCKED": 0x200,
    "SECBIT_EXEC_DENY_INTERACTIVE": 0x400,
    "SECBIT_EXEC_DENY_INTERACTIVE_LOCKED": 0x800,
    "MS_RDONLY": 1,
    "MS_NOSUID": 2,
    "MS_NODEV": 4,
    "MS_NOEXEC": 8,
    "MS_REMOUNT": 0x20,
    "MS_NOSYMFOLLOW": 0x100,
    "MS_NOATIME": 0x400,
    "MS_NODIRATIME": 0x800,
    "MS_BIND": 0x1000,
    "MS_MOVE": 0x2000,
    "MS_REC": 0x4000,
    "MS_UNBINDABLE": 1 << 17,
    "MS_PRIVATE": 1 << 18,
    "MS_SLAVE": 1 << 19,
    "MS_SHARED": 1 << 20,
    "MS_RELATIME": 1 << 21,
    "MS_STRICTATIME": 1 << 24,
    "MNT_FORCE": 1,
    "MNT_DETACH": 2,
    "MNT_EXPIRE": 4,
    "UMOUNT_NOFOLLOW": 8,
    "MOUNT_ATTR_RDONLY": 1,
    "MOUNT_ATTR_NOSUID": 2,
    "MOUNT_ATTR_NODEV": 4,
    "MOUNT_ATTR_NOEXEC": 8,
    "MOUNT_ATTR_NOATIME": 0x10,
    "MOUNT_ATTR_STRICTATIME": 0x20,
    "MOUNT_ATTR__ATIME": 0x70,
    "MOUNT_ATTR_NODIRATIME": 0x80,
    "MOUNT_ATTR_IDMAP": 0x100000,
    "MOUNT_ATTR_NOSYMFOLLOW": 0x200000,
    "OPEN_TREE_CLONE": 1,
    "OPEN_TREE_CLOEXEC": os.O_CLOEXEC,
    "MOVE_MOUNT_F_SYMLINKS": 1,
    "MOVE_MOUNT_F_EMPTY_PATH": 4,
    "MOVE_MOUNT_T_SYMLINKS": 0x10,
    "MOVE_MOUNT_T_EMPTY_PATH": 0x40,
    "LOCK_SH": 1,
    "LOCK_EX": 2,
    "LOCK_NB": 4,
    "LOCK_UN": 8,
    "CLONE_VM": 0x100,
    "CLONE_SIGHAND": 0x800,
    "CLONE_PIDFD": 0x1000,
    "CLONE_VFORK": 0x4000,
    "CLONE_PARENT": 0x8000,
    "CLONE_THREAD": 0x10000,
    "CLONE_SYSVSEM": 0x40000,
    "CLONE_SETTLS": 0x80000,
    "CLONE_PARENT_SETTID": 0x100000,
    "CLONE_CHILD_CLEARTID": 0x200000,
    "CLONE_CHILD_SETTID": 0x1000000,
    "CLONE_NEWCGROUP": 0x2000000,
    "CLONE_NEWUTS": 0x4000000,
    "CLONE_NEWIPC": 0x8000000,
    "CLONE_NEWPID": 0x20000000,
    "CLONE_NEWNET": 0x40000000,
    "CLONE_IO": 0x80000000,
    "CLONE_FS": 0x200,
    "CLONE_FILES": 0x400,
    "CLONE_NEWNS": 0x20000,
    "CLONE_NEWUSER": 0x10000000,
}
TYPES = {
    "fifo": stat.S_IFIFO,
    "char": stat.S_IFCHR,
    "dir": stat.S_IFDIR,
    "block": stat.S_IFBLK,
    "file": stat.S_IFREG,
    "symlink": stat.S_IFLNK,
    "socket": stat.S_IFSOCK,
}
NAMES = {kind: name for name, kind in TYPES.items()}
UTIME_NOW, UTIME_OMIT = 0x3FFFFFFF, 0x3FFFFFFE

# Needs of rows that this door cannot meet.
DECLINED = {
    "memory": "pointers: Python passes none",
    "proc": "no /proc",
    "sysctl": "settings are fixed when the file system is made",
}


class Skip(Exception):
    """The door has no such call."""


# Values.


def word(value):
    if isinstance(value, int):
        return value
    total = 0
    for part in value.split("|"):
        part = part.strip()
        if part in WORDS:
            total |= WORDS[part]
        elif hasattr(os, part):
            total |= getattr(os, part)
        elif part[:1].isdigit():
            total |= int(part, 0)
        else:
            raise Skip(f"no {part}")
    return total


def mode_of(text):
    total = 0
    for part in text.split("|"):
        total |= getattr(stat, part.strip()) if part.strip().startswith("S_") else int(part, 8)
    return total


def caps_of(text):
    if text in ("full", "none"):
        return FULL if text == "full" else 0
    return sum(1 << CAP[part] if part in CAP else int(part, 0) for part in map(str.strip, text.split("|")))


def acl_of(text):
    tags = {"u": (1, 2), "g": (4, 8), "m": (16, None), "o": (32, None)}
    out = struct.pack("<I", 2)
    for entry in filter(None, map(str.strip, text.split(","))):
        letter, who, rights = entry.split(":")
        perm = sum(bit for bit, letter_ in zip((4, 2, 1), rights) if letter_ != "-")
        out += struct.pack("<HHI", tags[letter][bool(who)], perm, int(who) if who else 0xFFFFFFFF)
    return out


def filecaps_of(table):
    permitted, inheritable = (caps_of(table.get(name, "none")) for name in ("permitted", "inheritable"))
    version = 0x03000000 if "rootid" in table else 0x02000000
    out = struct.pack("<I", version | bool(table.get("effective")))
    for shift in (0, 32):
        out += struct.pack("<II", permitted >> shift & 0xFFFFFFFF, inheritable >> shift & 0xFFFFFFFF)
    return out + (struct.pack("<I", table["rootid"]) if "rootid" in table else b"")


def data(value):
    """Bytes; a pointer that is none, or a size that is not theirs, ends the row."""
    if isinstance(value, str):
        return value.encode()
    if "pointer" in value or "size" in value:
        raise Skip(DECLINED["memory"])
    if "hex" in value:
        return bytes.fromhex(value["hex"])
    if "acl" in value:
        return acl_of(value["acl"])
    if "filecaps" in value:
        return filecaps_of(value["filecaps"])
    repeated = value.get("repeat", "") * value.get("times", 0)
    return (value.get("prefix", "") + repeated + value.get("suffix", "")).encode()


def path(value):
    found = data(value)
    if b"\0" in found:
        raise Skip("a NUL in a path is a ValueError before any call")
    return found


def time_of(text):
    seconds, _, fraction = text.partition(".")
    return int(seconds), int(fraction.ljust(9, "0")) if fraction else 0


def stamp(text):
    return {"now": (0, UTIME_NOW), "omit": (0, UTIME_OMIT)}.get(text) or time_of(text)


def ident(value):
    return -1 if value in (-1, 0xFFFFFFFF) else value


def extents(lines):
    return [tuple(map(int, line.split())) for line in lines]


def usual(call, key, size):
    """Room for a result is something `os` has no word for."""
    if call.get(key, size) != size:
        raise Skip("os has no buffer sizes")


# Who.


def cred_of(who):
    uid = who.get("uid", 0)
    euid = who.get("euid", uid)
    suid, fsuid = who.get("suid", euid), who.get("fsuid", euid)
    gid = who.get("gid", uid)
    egid = who.get("egid", gid)
    sgid, fsgid = who.get("sgid", egid), who.get("fsgid", egid)
    permitted = FULL if 0 in (uid, euid, suid) else 0
    effective = FULL if euid == 0 else 0
    if "caps" in who:
        permitted = effective = caps_of(who["caps"])
    sets = {"permitted": permitted, "effective": effective, "inheritable": 0, "ambient": 0, "bounding": FULL}
    sets |= {name: caps_of(who[name]) for name in sets if name in who}
    ids = {"euid": euid, "suid": suid, "fsuid": fsuid, "egid": egid, "sgid": sgid, "fsgid": fsgid}
    return Cred(uid, gid, who.get("groups", []), securebits=word(who.get("securebits", 0)), **ids, **sets)


# The tree.


def split(line):
    words, at = [], 0
    while at < len(line):
        if line[at].isspace():
            at += 1
            continue
        text, quoted = b"", False
        while at < len(line) and not line[at].isspace():
            if line[at] == "'":
                quoted = quoted or not text
                at, more = unquote(line, at + 1)
                text += more
            else:
                text += line[at].encode()
                at += 1
        words.append((text, quoted))
    return words


def unquote(line, at):
    out = b""
    while line[at] != "'":
        if line[at] == "\\":
            at += 1
            if line[at] == "x":
                out += bytes.fromhex(line[at + 1 : at + 3])
                at += 2
            else:
                out += {"n": b"\n", "t": b"\t", "0": b"\0"}.get(line[at], line[at].encode())
        else:
            out += line[at].encode()
        at += 1
    return at + 1, out


def program():
    """The smallest ELF file that can be loaded."""
    size = 64 + 56 + 2
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQI", 2, 62, 1, 0x400078, 64, 0, 0)
    head += struct.pack("<HHHHHH", 64, 56, 1, 64, 0, 0)
    return head + struct.pack("<IIQQQQQQ", 1, 5, 0, 0x400000, 0x400000, size, size, 0x1000) + b"\xeb\xfe"


def entries(tree):
    for item in tree:
        if isinstance(item, str):
            yield item
        else:
            for n in range(item["from"], item["to"] + 1):
                line = item["line"].replace("{n}", str(n))
                yield line.replace("{n-1}", str(n - 1)).replace("{n+1}", str(n + 1))


class Entry:
    """A line of a tree."""

    def __init__(self, line):
        words = split(line)
        name = words.pop(0)[0]
        self.path, self.is_dir = b"/" + name.strip(b"/"), name.endswith(b"/")
        self.kind, self.rdev, self.target = (stat.S_IFDIR if self.is_dir else stat.S_IFREG), 0, None
        self.mode, self.owner, self.contents, self.hole = (0o755 if self.is_dir else 0o644), (0, 0), b"", None
        self.xattrs, self.flags, self.times = [], 0, None
        sign = None if not words or words[0][1] else words[0][0].decode()
        if sign in ("->", "="):
            self.kind, self.target, self.mode = (stat.S_IFLNK if sign == "->" else None), words[1][0], None
            words = words[2:]
        elif sign in ("fifo", "socket"):
            self.kind = TYPES[sign]
            words = words[1:]
        elif sign in ("char", "block"):
            self.kind, self.rdev = TYPES[sign], os.makedev(*map(int, words[1][0].split(b":")))
            words = words[2:]
        for text, quoted in words:
            self._attribute(text, quoted)

    def _attribute(self, text, quoted):
        plain = "" if quoted else text.decode()
        if quoted:
            self.contents = text
        elif plain == "@program":
            self.contents = program()
        elif plain[0] == "0" and plain.isdigit() and 4 <= len(plain) <= 5:
            self.mode = int(plain, 8)
        elif "=" not in plain:
            owner = [0 if part == "root" else int(part) for part in plain.split(":")]
            self.owner = (owner[0], owner[-1])
        else:
            key, value = plain.split("=", 1)
            self._option(key, value, text[len(key) + 1 :])

    def _option(self, key, value, raw):
        if key in ("acl", "default_acl"):
            name = "access" if key == "acl" else "default"
            self.xattrs.append((f"system.posix_acl_{name}", acl_of(value)))
        elif key == "xattr":
            name, _, content = raw.partition(b":")
            self.xattrs.append((name, content))
        elif key == "long_xattrs":
            self.xattrs.extend((f"user.{n:0>250}", b"") for n in range(int(value)))
        elif key == "caps":
            self.xattrs.append(("security.capability", bytes.fromhex(value)))
        elif key == "flags":
            self.flags |= sum({"i": 0x10, "a": 0x20, "A": 0x80}[letter] for letter in value)
        elif key == "size":
            self.hole = int(value)
        elif key == "hex":
            self.contents = bytes.fromhex(value)
        elif key in ("atime", "mtime"):
            self.times = self.times or [(0, UTIME_OMIT), (0, UTIME_OMIT)]
            self.times[key == "mtime"] = time_of(value)
        else:
            raise ValueError(f"unknown option {key}")

    def make(self, root):
        if self.kind is None:
            root.link(b"/" + self.target.strip(b"/"), self.path)
            return
        if self.kind == stat.S_IFDIR:
            if self.path != b"/":
                root.mkdir(self.path, 0o700)
        elif self.kind == stat.S_IFLNK:
            root.symlink(self.target, self.path)
        elif self.kind == stat.S_IFREG:
            fd = root.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            if self.contents:
                root.write(fd, self.contents)
            root.close(fd)
            if self.hole is not None:
                root.truncate(self.path, self.hole)
        else:
            root.mknod(self.path, self.kind | self.mode, self.rdev)
        root.lchown(self.path, *self.owner)
        if self.mode is not None:
            root.chmod(self.path, self.mode)

    def finish(self, root):
        for name, value in self.xattrs:
            root.setxattr(self.path, name, value, follow_symlinks=False)
        if self.times:
            root.utimensat(self.path, self.times, 0x100)
        if self.flags:
            fd = root.open(self.path, os.O_RDONLY)
            root.setflags(fd, root.getflags(fd) | self.flags)
            root.close(fd)


# Calls: each gives the kind of its answer, and the answer.


def _dir(call, key="dirfd"):
    fd = call.get(key, AT_FDCWD)
    return None if fd == AT_FDCWD else fd


def _access(task, call):
    mode, flags = word(call["mode"]), word(call.get("flags", 0))
    # `os.access` says whether; the other call says why not, and they have to agree.
    if flags & ~0x300 == 0:
        effective, follow = bool(flags & 0x200), not flags & 0x100
        granted = task.access(path(call["path"]), mode, dir_fd=_dir(call), effective_ids=effective, follow_symlinks=follow)
    else:
        granted = None
    try:
        task.faccessat(path(call["path"]), mode, flags, dir_fd=_dir(call))
    except OSError:
        assert not granted
        raise
    assert granted in (None, True)


def _stat(task, call):
    op, flags = call["op"], word(call.get("flags", 0))
    if op == "fstat":
        return task.fstat(call["fd"])
    if op == "lstat":
        return task.lstat(path(call["path"]))
    if flags & ~0x100 == 0:
        return task.stat(path(call["path"]), dir_fd=_dir(call), follow_symlinks=not flags & 0x100)
    return task.fstatat(path(call["path"]), flags, dir_fd=_dir(call))


def _open(task, call):
    op, flags = call["op"], word(call.get("flags", 0))
    mode = mode_of(call.get("mode", "0"))
    if op == "creat":
        return task.openat(path(call["path"]), os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode)
    if op == "openat2":
        how = call["how"]
        if how.get("size", 24) != 24 or "pointer" in how:
            raise Skip("os has no buffer sizes")
        mode, resolve = mode_of(how.get("mode", "0")), word(how.get("resolve", 0))
        return task.openat2(path(call["path"]), word(how.get("flags", 0)), mode, resolve, dir_fd=_dir(call))
    if flags & os.O_CLOEXEC:
        return task.open(path(call["path"]), flags, mode, dir_fd=_dir(call))
    # `os.open` would add that flag, and rows look at it.
    return task.openat(path(call["path"]), flags, mode, dir_fd=_dir(call))


def _count(call):
    count = call.get("count", 4096)
    if not isinstance(count, int) or count < 0:
        raise Skip(DECLINED["memory"])
    return count


def _unlink(task, call):
    op, flags, name = call["op"], word(call.get("flags", 0)), path(call["path"])
    if op == "rmdir" or flags == 0x200:
        task.rmdir(name, dir_fd=_dir(call))
    elif flags == 0:
        (task.unlink if op == "unlink" else task.remove)(name, dir_fd=_dir(call))
    else:
        task.unlinkat(name, flags, dir_fd=_dir(call))


def _rename(task, call):
    dirs = {"src_dir_fd": _dir(call, "olddirfd"), "dst_dir_fd": _dir(call, "newdirfd")}
    flags = word(call.get("flags", 0))
    if flags:
        task.renameat2(path(call["old"]), path(call["new"]), flags, **dirs)
    else:
        task.rename(path(call["old"]), path(call["new"]), **dirs)


def _link(task, call):
    dirs = {"src_dir_fd": _dir(call, "olddirfd"), "dst_dir_fd": _dir(call, "newdirfd")}
    flags = word(call.get("flags", 0))
    if flags:
        task.linkat(path(call["old"]), path(call["new"]), flags, **dirs)
    else:
        task.link(path(call["old"]), path(call["new"]), follow_symlinks=False, **dirs)


def _chmod(task, call):
    flags, mode = word(call.get("flags", 0)), mode_of(call["mode"])
    if call["op"] == "fchmod":
        task.fchmod(call["fd"], mode)
    elif flags == 0:
        task.chmod(path(call["path"]), mode, dir_fd=_dir(call))
    else:
        task.fchmodat(path(call["path"]), mode, flags, dir_fd=_dir(call))


def _chown(task, call):
    flags, ids = word(call.get("flags", 0)), (ident(call["uid"]), ident(call["gid"]))
    if call["op"] == "fchown":
        task.fchown(call["fd"], *ids)
    elif call["op"] == "lchown":
        task.lchown(path(call["path"]), *ids)
    elif flags & ~0x100 == 0:
        task.chown(path(call["path"]), *ids, dir_fd=_dir(call), follow_symlinks=not flags)
    else:
        task.fchownat(path(call["path"]), *ids, flags, dir_fd=_dir(call))


def _utime(task, call):
    times, flags = call.get("times", "null"), word(call.get("flags", 0))
    if times == "bad":
        raise Skip(DECLINED["memory"])
    if call["path"] == {"pointer": "null"}:
        name = None
    else:
        name = path(call["path"])
    pair = None if times == "null" else [stamp(text) for text in times]
    plain = pair is None or all(0 <= nsec < 10**9 for _sec, nsec in pair)
    if name is not None and plain and flags & ~0x100 == 0:
        ns = None if pair is None else tuple(sec * 10**9 + nsec for sec, nsec in pair)
        task.utime(name, **({} if ns is None else {"ns": ns}), dir_fd=_dir(call), follow_symlinks=not flags)
        return
    if pair is not None:
        pair = [(sec, min(nsec, 0xFFFFFFFF)) for sec, nsec in pair]
    task.utimensat(name, pair, flags, dir_fd=_dir(call))


def _xattr(task, call):
    op = call["op"]
    at = op.endswith("at")
    kind = op.removesuffix("at").lstrip("f") if op[0] == "f" else op.removesuffix("at")
    follow = kind[0] != "l" or kind.startswith("list")
    kind = kind if follow else kind[1:]
    target = call["fd"] if op[0] == "f" else path(call["path"])
    name = path(call["name"]) if "name" in call else None
    if at:
        return _xattrat(task, call, kind, target, name)
    where = {} if isinstance(target, int) else {"follow_symlinks": follow}
    if kind == "setxattr":
        return task.setxattr(target, name, data(call["value"]), word(call.get("flags", 0)), **where)
    if kind == "getxattr":
        usual(call, "room", 65536)
        return task.getxattr(target, name, **where)
    if kind == "listxattr":
        usual(call, "room", 65536)
        return [os.fsencode(found) for found in task.listxattr(target, **where)]
    return task.removexattr(target, name, **where)


def _xattrat(task, call, kind, target, name):
    flags, where = word(call.get("at_flags", 0)), {"dir_fd": _dir(call)}
    args = call.get("args", {})
    usual(args, "usize", 16)
    if kind == "setxattr":
        return task.setxattrat(target, name, data(args["value"]), word(args.get("flags", 0)), flags, **where)
    if kind == "getxattr":
        usual(args, "size", 65536)
        usual(args, "flags", 0)
        return task.getxattrat(target, name, flags, **where)
    if kind == "listxattr":
        usual(call, "room", 65536)
        return task.listxattrat(target, flags, **where)
    return task.removexattrat(target, name, flags, **where)


def _readlink(task, call):
    usual(call, "room", 4096)
    name = path(call["path"])
    return task.readlink(name, dir_fd=_dir(call)) if name else task.readlinkat(name, dir_fd=_dir(call))


def _getdents(task, call):
    usual(call, "room", 65536)
    return [(os.fsdecode(name), NAMES.get(kind << 12, "?")) for name, kind, _ino in task.getdents(call["fd"], 2730)]


def _limit(value):
    return resource.RLIM_INFINITY if value == "infinity" else value


def _resource(call):
    name = call["resource"]
    return getattr(resource, name) if hasattr(resource, name) else int(name)


def _setrlimit(task, call):
    which, soft = _resource(call), _limit(call["soft"])
    if "hard" in call:
        task.prlimit(which, (soft, _limit(call["hard"])))
    else:
        hard = task.prlimit(which)[1]
        task.prlimit(which, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _getrlimit(task, call):
    limits = task.prlimit(_resource(call))
    return " ".join("infinity" if limit == resource.RLIM_INFINITY else str(limit) for limit in limits).encode()


def _vector(call, key):
    value = call.get(key, [])
    if isinstance(value, dict):
        raise Skip(DECLINED["memory"])
    return [path(item) for item in value]


def _exec(task, call):
    child = task.fork()
    argv, env = _vector(call, "argv"), _vector(call, "envp")
    if call["op"] == "execve":
        done = child.execve(path(call["path"]), argv, env)
    elif call["op"] == "execveat":
        done = child.execveat(path(call["path"]), argv, env, word(call.get("flags", 0)), dir_fd=_dir(call))
    else:
        search = path(call["search"]) if "search" in call else None
        done = child.execvpe(path(call["file"]), argv, search=search, libc=call.get("libc", "glibc"))
    if done is None:
        return None
    # The file system id is what setfsuid answers when it changes nothing.
    uids, gids = [*child.getresuid(), child.setfsuid(-1)], [*child.getresgid(), child.setfsgid(-1)]
    return done | {"uids": uids, "gids": gids} | child.capget()


def _mount(task, call):
    fstype = path(call.get("fstype", "")).decode()
    if fstype == "proc":
        raise Skip(DECLINED["proc"])
    options = data(call["data"]).decode() if "data" in call else ""
    source = path(call["source"]) if "source" in call else b""
    task.mount(source, path(call["target"]), fstype, word(call.get("flags", 0)), options)


def _mount_setattr(task, call):
    attr = call["attr"]
    if attr.get("size", 32) != 32:
        raise Skip("os has no buffer sizes")
    task.mount_setattr(
        path(call["path"]),
        word(call.get("flags", 0)),
        attr_set=word(attr.get("set", 0)),
        attr_clr=word(attr.get("clr", 0)),
        propagation=word(attr.get("propagation", 0)),
        userns_fd=attr.get("userns", 0),
        dir_fd=_dir(call),
    )


def _move_mount(task, call):
    dirs = {"src_dir_fd": _dir(call, "from_dirfd"), "dst_dir_fd": _dir(call, "to_dirfd")}
    task.move_mount(path(call["from"]), path(call["to"]), word(call.get("flags", 0)), **dirs)


def _keepcaps(task, call):
    if call["on"] not in (0, 1):
        raise Skip("keepcaps is a bool in Python")
    task.set_keepcaps(bool(call["on"]))


def _cap(name):
    return lambda task, call: getattr(task, name)(CAP[call["cap"]] if call["cap"] in CAP else word(call["cap"]))


def _sets(call):
    sets = call["sets"]
    return caps_of(sets["effective"]), caps_of(sets["permitted"]), caps_of(sets.get("inheritable", "none"))


def _mkdir(task, call):
    task.mkdir(path(call["path"]), mode_of(call.get("mode", "0755")), dir_fd=_dir(call))


def _mknod(task, call):
    device = os.makedev(*map(int, call.get("dev", "0:0").split(":")))
    task.mknod(path(call["path"]), mode_of(call["mode"]), device, dir_fd=_dir(call))


def _read(task, call):
    return task.read(call["fd"], _count(call))


def _statfs(task, call):
    if call.get("space") not in (1, 2):
        raise Skip("os.statvfs has no type of a file system")
    if call["op"] == "fstatfs":
        found = task.fstatvfs(call["fd"])
    else:
        found = task.statvfs(path(call["path"]))
    if call["space"] == 1:
        return f"blocks={found.f_blocks} bfree={found.f_bfree}".encode()
    return f"files={found.f_files} ffree={found.f_ffree}".encode()


def _getcwd(task, call):
    usual(call, "room", 4096)
    return task.getcwdb()


def _filled(call, read):
    """What `read` puts into buffers of the sizes that the call names."""
    if not all(isinstance(size, int) and 0 <= size < 1 << 32 for size in call["buffers"]):
        raise Skip(DECLINED["memory"])
    buffers = [bytearray(size) for size in call["buffers"]]
    count = read(buffers)
    return b"".join(buffers)[:count]


def _preadv2(task, call):
    offset, flags = call.get("offset", -1), word(call.get("flags", 0))
    return _filled(call, lambda buffers: task.preadv(call["fd"], buffers, offset, flags))


def _pwritev2(task, call):
    return task.pwritev(call["fd"], _pieces(call), call.get("offset", -1), word(call.get("flags", 0)))


def _pieces(call):
    return [data(piece) for piece in call["data"]]


def _position(call):
    if call["offset"] == -1:
        raise Skip("-1 is the position to os.preadv and os.pwritev, as to preadv2")
    return call["offset"]


def _preadv(task, call):
    return _filled(call, lambda buffers: task.preadv(call["fd"], buffers, _position(call)))


def _copy_file_range(task, call):
    offsets = call.get("from_offset"), call.get("to_offset")
    return task.copy_file_range(call["from"], call["to"], call["length"], *offsets)


def _ids(*names):
    return lambda task, call: getattr(task, call["op"])(*(ident(call[name]) for name in names))


CALLS = {
    "bytes": {
        "read": _read,
        "pread": lambda t, c: t.pread(c["fd"], _count(c), c["offset"]),
        "readv": lambda t, c: _filled(c, lambda buffers: t.readv(c["fd"], buffers)),
        "preadv": _preadv,
        "preadv2": _preadv2,
        "readlink": _readlink,
        "statfs": _statfs,
        "fstatfs": _statfs,
        "readlinkat": _readlink,
        "getcwd": _getcwd,
        "getrlimit": _getrlimit,
    },
    "stat": dict.fromkeys(["stat", "lstat", "fstat", "newfstatat"], _stat),
    "statx": {
        "statx": lambda t, c: t.statx(
            path(c["path"]), word(c.get("flags", 0)), word(c.get("mask", 0xFFF)), dir_fd=_dir(c)
        )
    },
    "fd": dict.fromkeys(["open", "openat", "openat2", "creat"], _open)
    | {
        "dup": lambda t, c: t.fcntl(c["fd"], 0),
        "dup2": lambda t, c: t.dup2(c["fd"], c["newfd"]),
        "dup3": lambda t, c: t.dup3(c["fd"], c["newfd"], word(c.get("flags", 0))),
        "open_tree": lambda t, c: t.open_tree(path(c["path"]), word(c.get("flags", 0)), dir_fd=_dir(c)),
        "open_proc": None,
        "open_userns": lambda t, c: t.open_userns(extents(c["uid_map"]), extents(c["gid_map"])),
    },
    "number": {
        "write": lambda t, c: t.write(c["fd"], data(c["data"])),
        "pwrite": lambda t, c: t.pwrite(c["fd"], data(c["data"]), c["offset"]),
        "writev": lambda t, c: t.writev(c["fd"], _pieces(c)),
        "pwritev": lambda t, c: t.pwritev(c["fd"], _pieces(c), _position(c)),
        "copy_file_range": _copy_file_range,
        "pwritev2": _pwritev2,
        "sendfile": lambda t, c: t.sendfile(c["to"], c["from"], c.get("offset"), c["length"]),
        "lseek": lambda t, c: t.lseek(c["fd"], c["offset"], word(c["whence"])),
        "umask": lambda t, c: t.umask(mode_of(c["mask"])),
        "fcntl": lambda t, c: t.fcntl(c["fd"], word(c["command"]), c.get("arg", 0)),
        "getflags": lambda t, c: t.getflags(c["fd"]),
        "get_securebits": lambda t, c: t.get_securebits(),
        "setfsuid": _ids("uid"),
        "setfsgid": _ids("gid"),
        "capbset_read": _cap("capbset_read"),
        "ambient_is_set": _cap("ambient_is_set"),
    },
    "names": dict.fromkeys(["listxattr", "llistxattr", "flistxattr", "listxattrat"], _xattr),
    "entries": {"getdents": _getdents},
    "ids": {
        "getresuid": lambda t, c: list(t.getresuid()),
        "getresgid": lambda t, c: list(t.getresgid()),
        "getgroups": lambda t, c: t.getgroups(),
    },
    "caps": {"capget": lambda t, c: t.capget()},
    "exec": dict.fromkeys(["execve", "execveat", "execvp"], _exec),
    "done": dict.fromkeys(["access", "faccessat", "faccessat2"], _access)
    | dict.fromkeys(["unlink", "unlinkat", "rmdir"], _unlink)
    | dict.fromkeys(["rename", "renameat", "renameat2"], _rename)
    | dict.fromkeys(["link", "linkat"], _link)
    | dict.fromkeys(["chmod", "fchmod", "fchmodat", "fchmodat2"], _chmod)
    | dict.fromkeys(["chown", "lchown", "fchown", "fchownat"], _chown)
    | dict.fromkeys(["mkdir", "mkdirat"], _mkdir)
    | dict.fromkeys(["mknod", "mknodat"], _mknod)
    | {
        "close": lambda t, c: t.close(c["fd"]),
        "truncate": lambda t, c: t.truncate(path(c["path"]), c["length"]),
        "ftruncate": lambda t, c: t.ftruncate(c["fd"], c["length"]),
        "fallocate": lambda t, c: t.fallocate(c["fd"], word(c.get("mode", 0)), c["offset"], c["length"]),
        "symlink": lambda t, c: t.symlink(path(c["target"]), path(c["path"])),
        "symlinkat": lambda t, c: t.symlink(path(c["target"]), path(c["path"]), dir_fd=_dir(c)),
        "utimensat": _utime,
        "setflags": lambda t, c: t.setflags(c["fd"], word(c["flags"])),
        "chdir": lambda t, c: t.chdir(path(c["path"])),
        "fchdir": lambda t, c: t.fchdir(c["fd"]),
        "chroot": lambda t, c: t.chroot(path(c["path"])),
        "setuid": _ids("uid"),
        "setgid": _ids("gid"),
        "setreuid": _ids("ruid", "euid"),
        "setregid": _ids("rgid", "egid"),
        "setresuid": _ids("ruid", "euid", "suid"),
        "setresgid": _ids("rgid", "egid", "sgid"),
        "setgroups": lambda t, c: t.setgroups([group % 2**32 for group in c["groups"]]),
        "capset": lambda t, c: t.capset(*_sets(c)),
        "set_securebits": lambda t, c: t.set_securebits(word(c["bits"])),
        "set_keepcaps": _keepcaps,
        "set_no_new_privs": lambda t, c: t.set_no_new_privs(),
        "capbset_drop": _cap("capbset_drop"),
        "ambient_raise": _cap("ambient_raise"),
        "ambient_lower": _cap("ambient_lower"),
        "ambient_clear": lambda t, c: t.ambient_clear(),
        "setrlimit": _setrlimit,
        "sleep": lambda t, c: time.sleep(c["milliseconds"] / 1000),
        "mount": _mount,
        "umount2": lambda t, c: t.umount2(path(c["target"]), word(c.get("flags", 0))),
        "mount_setattr": _mount_setattr,
        "move_mount": _move_mount,
        "unshare": lambda t, c: t.unshare(word(c["flags"])),
        "setns": lambda t, c: t.setns(c["fd"], word(c.get("nstype", 0))),
        "fsync": lambda t, c: t.fsync(c["fd"]),
        "fdatasync": lambda t, c: t.fdatasync(c["fd"]),
        "flock": lambda t, c: t.flock(c["fd"], word(c["operation"])),
        "pivot_root": lambda t, c: t.pivot_root(path(c["new_root"]), path(c["put_old"])),
        "fork": None,
        "thread": None,
        "map_ids": lambda t, c: t.map_ids(extents(c["uid_map"]), extents(c["gid_map"])),
    },
}
for _kind in ("setxattr", "removexattr"):
    CALLS["done"] |= dict.fromkeys([_kind, "l" + _kind, "f" + _kind, _kind + "at"], _xattr)
CALLS["bytes"] |= dict.fromkeys(["getxattr", "lgetxattr", "fgetxattr", "getxattrat"], _xattr)
KIND = {op: kind for kind, ops in CALLS.items() for op in ops}
# Arguments that name descriptors.
DESCRIPTORS = ("fd", "newfd", "dirfd", "olddirfd", "newdirfd", "from_dirfd", "to_dirfd")


# Expectations.


def fields(kind, answer):
    """What an answer of stat or statx says, under the names that rows use."""
    if kind == "statx":
        found = {name.removesuffix("_ns"): value for name, value in answer.items()}
    else:
        names = "ino dev nlink uid gid size mode rdev blksize blocks".split()
        found = {name: getattr(answer, f"st_{name}") for name in names}
        found |= {f"{which}time": getattr(answer, f"st_{which}time_ns") for which in "amc"}
    return found | {"type": NAMES.get(stat.S_IFMT(found["mode"])), "mode": stat.S_IMODE(found["mode"])}


def wanted_field(name, value):
    if name == "mode":
        return mode_of(value)
    if name.endswith("time"):
        seconds, nanos = time_of(value)
        return seconds * 10**9 + nanos
    if name == "rdev":
        return os.makedev(*map(int, value.split(":")))
    if name in ("mask", "attributes_mask"):
        return word(value)
    return value % 2**32 if name in ("uid", "gid") else value


def _check_fields(kind, expect, answer, saved):
    got = fields(kind, answer)
    for name, value in expect.items():
        if name in ("same", "changed", "later"):
            before = saved[expect["since"]]
            for field in value:
                old, new = before[field], got[field]
                holds = {"same": new == old, "changed": new != old, "later": new > old}[name]
                assert holds, f"{field} {name}: was {old}, is {new}"
        elif name == "since":
            pass
        elif name == "equal":
            assert len({got[field] for field in value}) == 1, f"equal {value}: {got}"
        elif name == "attributes":
            assert got["attributes"] & word(value) == word(value), f"attributes {got['attributes']:#x}"
        elif name == "no_attributes":
            assert got["attributes"] & word(value) == 0, f"attributes {got['attributes']:#x}"
        else:
            assert got[name] == wanted_field(name, value), f"{name}: expected {value}, got {got[name]}"


def _check_exec(expect, answer):
    for name, value in expect.items():
        if name in ("argv", "envp"):
            assert answer[name] == [data(item) for item in value], answer
        elif name == "execfn":
            assert answer["filename"] == data(value), answer
        elif name in ("uids", "gids"):
            assert answer[name][: len(value)] == [item % 2**32 for item in value], answer
        elif name == "secure":
            assert answer["secure"] == value, answer
        else:
            assert answer[name] == caps_of(value), answer


def check(kind, expect, answer, saved):
    """Holds a successful answer against what a row expects."""
    if not isinstance(expect, dict):
        assert expect in ("ok", "fd"), f"expected {expect}, got {answer!r}"
        return
    assert "errno" not in expect, f"expected {expect['errno']}, got {answer!r}"
    if kind in ("stat", "statx"):
        _check_fields(kind, expect, answer, saved)
    elif kind == "exec":
        _check_exec(expect, answer)
    elif kind in ("number", "fd"):
        want = expect.get("ret", expect.get("fd", expect.get("len")))
        assert answer == want, f"expected {want}, got {answer}"
    elif kind == "entries":
        # The offsets of entries are not told.
        got = {name: found for name, found in answer if name not in (".", "..")}
        assert got == expect.get("entries", got), got
        names = [name for name, _found in answer]
        assert names == expect.get("names_in_order", names), names
    elif kind == "ids":
        assert answer == [value % 2**32 for value in expect["ids"]], answer
    elif kind == "caps":
        assert all(answer[name] == caps_of(value) for name, value in expect.items()), answer
    elif kind == "bytes":
        assert "data" not in expect or answer == data(expect["data"]), answer
        assert "len" not in expect or len(answer) == expect["len"], answer
    elif kind == "names":
        assert "names" not in expect or sorted(answer) == sorted(map(data, expect["names"])), answer
        assert "names_in_order" not in expect or answer == list(map(data, expect["names_in_order"])), answer
        assert "len" not in expect or sum(len(name) + 1 for name in answer) == expect["len"], answer


# Running.


class Arguments(dict):
    """The arguments of a call, which remembers those that nobody has asked for: what this door does not know."""

    def __init__(self, call):
        super().__init__(call)
        self.unused = set(call) - {"task", "expect", "bind", "repeat", "op", "buf"}

    def __getitem__(self, key):
        self.unused.discard(key)
        return super().__getitem__(key)

    def get(self, key, default=None):
        self.unused.discard(key)
        return super().get(key, default)

    def __contains__(self, key):
        self.unused.discard(key)
        return super().__contains__(key)

    def finish(self):
        if self.unused:
            raise Skip(f"{self['op']} with {', '.join(sorted(self.unused))}")


class Row:
    """A row in a world of its own."""

    def __init__(self, case, *, ref_walk_only=False):
        self.case = case
        self.vfs = Vfs(capacity=1 << 16, protected_hardlinks=True, ref_walk_only=ref_walk_only)
        self.who = {"root": {}, "main": case.get("as", {})} | case.get("tasks", {})
        self.tasks, self.descriptors, self.saved = {}, {}, {}

    def run(self):
        for need in self.case.get("needs", []):
            if need in DECLINED:
                raise Skip(DECLINED[need])
        calls = self.case.get("calls") or [self.case["call"] | {"expect": self.case["expect"]}]
        setup = [{"task": "root", "expect": "ok"} | call for call in self.case.get("setup", [])]
        for call in [*setup, *calls]:
            if call["op"] not in KIND:
                raise Skip(f"no {call['op']}")
        root = self.vfs.task()
        root.umask(0)
        tree = [Entry(line) for line in entries(self.case.get("tree", []))]
        for entry in tree:
            entry.make(root)
        for entry in tree:
            entry.finish(root)
        for call in setup:
            self.step(call | ({"expect": "fd"} if KIND.get(call["op"]) == "fd" else {}))
        for call in calls:
            self.step(call)

    def task(self, name):
        if name not in self.tasks:
            who = self.who[name]
            task = self.vfs.task()
            task.umask(mode_of(who.get("umask", "022")))
            task.chdir(path(who.get("cwd", "/")))
            task.cred = cred_of(who)
            if who.get("no_new_privs"):
                task.set_no_new_privs()
            self.tasks[name], self.descriptors[name] = task, {}
        return self.tasks[name]

    def step(self, call):
        for _round in range(call.get("repeat", 1)):
            name = call.get("task", "main")
            task = self.task(name)
            arguments = Arguments(call)
            try:
                self.one(task, name, arguments)
            except AssertionError:
                # Perhaps the argument that was not passed on made the difference.
                arguments.finish()
                raise
            arguments.finish()

    def fork(self, task, name, call):
        child, flags = call["child"], word(call.get("flags", 0))
        if call["op"] == "thread":
            self.tasks[child] = task.thread()
        else:
            # fork never fails for want of processes.
            self.tasks[child] = task.clone(flags)
        self.descriptors[child] = dict(self.descriptors[name])

    def one(self, task, name, call):
        known = self.descriptors[name] | {"AT_FDCWD": AT_FDCWD}
        for key in DESCRIPTORS + (("to", "from") if call["op"] in ("sendfile", "copy_file_range") else ()):
            if isinstance(dict.get(call, key), str):
                call[key] = known[dict.get(call, key)]
        if isinstance(dict.get(call, "attr"), dict) and isinstance(call["attr"].get("userns"), str):
            call["attr"] = call["attr"] | {"userns": known[call["attr"]["userns"]]}
        kind, expect = KIND[call["op"]], call["expect"]
        wanted = expect.get("errno") if isinstance(expect, dict) else expect
        try:
            if call["op"] == "open_proc":
                of = self.task(call["of"]) if "of" in call else None
                answer = task.open_proc(call["file"].replace("ns_", "ns/"), of)
            elif call["op"] in ("fork", "thread"):
                answer = self.fork(task, name, call)
            else:
                answer = CALLS[kind][call["op"]](task, call)
        except OSError as error:
            got = errno.errorcode.get(error.errno, error.errno)
            # One number, two names.
            assert {"EWOULDBLOCK": "EAGAIN", "ENOTSUP": "EOPNOTSUPP"}.get(got, got) == wanted, f"{call}: got {got}"
            return
        try:
            check(kind, expect, answer, self.saved)
        except AssertionError as problem:
            raise AssertionError(f"{call}: {problem}") from None
        if "bind" in call and kind == "fd":
            self.descriptors[name][call["bind"]] = answer
        elif "bind" in call:
            self.saved[call["bind"]] = fields(kind, answer)
