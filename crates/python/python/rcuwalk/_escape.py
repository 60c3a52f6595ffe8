"""Finds what would leave the file system in memory for the machine's, and refuses it.

While a patcher is entered, the process sees the task's files. Three kinds of calls do not pass through the replaced functions:
programs started as child processes, libraries in C that open files themselves (SQLite, sockets bound to a path, mmap), and copies
of the machine's functions that nobody could find. The interpreter tells an audit hook of each (PEP 578), and the hook raises
`EscapeError`. A patcher made with `allow_escape=True` lets them pass.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs


class EscapeError(RuntimeError):
    """A call would have reached the machine's files, or its programs, instead of the file system in memory.

    It is no `OSError`: code under test that expects those must not take it for the answer of a file system.
    """


_REMEDY = "; to let it, use real_files() around it, or allow_escape=True for the whole test"

# Set by `watch`: whether the calling thread sees a file system in memory, and must not leave it; and the modules that may.
_guarded: list[Callable[[], bool]] = []
_trusted: frozenset[str] = frozenset()


def refuse(what: str, instead: str = "") -> None:
    """Raises `EscapeError`."""
    raise EscapeError(f"{what} while rcuwalk's file system stands in the place of the machine's{instead}{_REMEDY}")


def _child(event: str) -> Callable[..., None]:
    def check(program: Any = "a program", *_rest: Any) -> None:
        shown = os.fsdecode(program) if isinstance(program, (str, bytes, os.PathLike)) else repr(program)
        refuse(f"{event} would run {shown!r}, which sees the machine's files,")

    return check


def _sqlite(database: Any, *_rest: Any) -> None:
    name = os.fsdecode(database)
    if name in ("", ":memory:"):
        return
    if name.startswith("file:"):
        path, _, query = name[5:].partition("?")
        if path.partition("#")[0] == ":memory:" or parse_qs(query).get("mode") == ["memory"]:
            return
    refuse(f"sqlite3.connect would open {name!r} on the machine", ": SQLite opens files itself")


def _socket(event: str) -> Callable[..., None]:
    def check(sock: Any, address: Any, *_rest: Any) -> None:
        if getattr(sock, "family", None) != socket.AF_UNIX or isinstance(address, tuple):
            return
        name = os.fsdecode(bytes(address) if isinstance(address, (bytearray, memoryview)) else address)
        # Neither unnamed nor abstract ones lie in a file system.
        if name and not name.startswith("\0"):
            refuse(f"{event} would use the socket {name!r} on the machine")

    return check


def _mmap(fd: Any, *_rest: Any) -> None:
    from ._patch import FD_BASE

    if isinstance(fd, int) and fd >= FD_BASE:
        refuse("mmap would map a file that exists only in rcuwalk", ": read it into a bytearray instead")


def _by_path(event: str) -> Callable[..., None]:
    """A call of the machine's own function with a path: made by a copy of it, unless a trusted module made it."""

    def check(path: Any = None, *_rest: Any) -> None:
        if isinstance(path, int):
            return
        # The innermost frame is the hook, below it this check.
        frame = sys._getframe(2)
        if frame.f_globals.get("__name__", "").partition(".")[0] in _trusted:
            return
        name = event if "." in event else f"the machine's {event}()"
        refuse(
            f"{name} was called with {path!r} by {frame.f_code.co_filename}:{frame.f_lineno}, which holds a copy of the "
            "machine's function that could not be replaced,"
        )

    return check


_CHECKS: dict[str, Callable[..., None]] = {
    event: _child(event)
    for event in ("os.exec", "os.posix_spawn", "os.spawn", "os.system", "pty.spawn")
}
_CHECKS |= {
    event: _by_path(event)
    for event in (
        "open os.chdir os.chflags os.chmod os.chown os.getxattr os.link os.listdir os.listxattr os.lockf os.mkdir os.remove "
        "os.removexattr os.rename os.rmdir os.scandir os.setxattr os.symlink os.truncate os.utime"
    ).split()
}
_CHECKS |= {
    "sqlite3.connect": _sqlite,
    "socket.bind": _socket("socket.bind"),
    "socket.connect": _socket("socket.connect"),
    "mmap.__new__": _mmap,
}


def _hook(event: str, args: tuple[Any, ...]) -> None:
    check = _CHECKS.get(event)
    if check is not None and _guarded[0]():
        check(*args)


def watch(guarded: Callable[[], bool], trusted: frozenset[str]) -> None:
    """Has each call that would escape refused while `guarded()` is true for the thread; once for the process.

    Modules whose top-level name is `trusted` may call the machine's functions.
    """
    global _trusted
    if not _guarded:
        _trusted = trusted
        _guarded.append(guarded)
        sys.addaudithook(_hook)
