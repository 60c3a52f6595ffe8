"""What an explanation and an audit say, as dataclasses."""

from __future__ import annotations

import dataclasses
import json
import os
import types
import typing
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from . import _rcuwalk

if TYPE_CHECKING:
    from ._rcuwalk import StrOrBytesPath, Vfs

# Fields are those of the JSON form, which is documented with the command `rcuwalk explain`.


@dataclasses.dataclass(frozen=True, slots=True)
class Id:
    """An id, and the name it has on this machine."""

    id: int
    name: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Who:
    """The identity that asks."""

    label: str
    user: Id
    group: Id
    groups: list[Id]
    capabilities: list[str]
    no_new_privs: bool
    user_namespace: bool
    pid: int | None = None
    lsm_label: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Deciding:
    """The first rule that says no."""

    rule: str
    path: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """A question that was put to an object, and how it was answered."""

    asks: str
    passed: bool
    granted: bool | None = None
    because: str | None = None
    overridden_by: str | None = None
    refused: str | None = None
    class_: str | None = None
    would_override: list[str] = dataclasses.field(default_factory=list)
    unmapped: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class Mount:
    """What a mount is."""

    point: str
    fstype: str
    source: str
    options: list[str]
    superblock_read_only: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Component:
    """A place that a walk comes to, and what was asked of it."""

    path: str
    via: str
    checks: list[Check]
    type: str | None = None
    permissions: str | None = None
    mode: int | None = None
    owner: Id | None = None
    group: Id | None = None
    shown_as: list[int] | None = None
    acl: list[str] = dataclasses.field(default_factory=list)
    flags: list[str] = dataclasses.field(default_factory=list)
    link: str | None = None
    mount: Mount | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Walk:
    """One walk from a start along a path."""

    path: str
    components: list[Component]


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """A file that a program needs to start; ``walk`` is its place in the walks of the answer."""

    role: str
    name: str
    by: str
    verdict: str
    path: str | None = None
    errno: str | None = None
    because: str | None = None
    walk: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Gain:
    """What others may do after a change and not before; without ``users`` it is everybody."""

    who: str
    what: str
    path: str
    users: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Fix:
    """A change that would allow what is denied."""

    kind: str
    commands: list[str]
    opens: str
    gains: list[Gain]


@dataclasses.dataclass(frozen=True, slots=True)
class Verified:
    """A call that was made on the machine."""

    call: str
    expected: str
    got: str


@dataclasses.dataclass(frozen=True, slots=True)
class Verify:
    """What the machine answered: `agrees`, `disagrees`, `impossible`."""

    outcome: str
    calls: list[Verified]
    text: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one question; true if it is allowed."""

    what: str
    call: str
    verdict: str
    walks: list[Walk]
    notes: list[str]
    fixes: list[Fix]
    unseen: list[str]
    errno: str | None = None
    deciding: Deciding | None = None
    verify: Verify | None = None
    loads: list[Load] = dataclasses.field(default_factory=list)

    def __bool__(self) -> bool:
        return self.verdict == "allowed"


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """Everything about one path."""

    schema: int
    path: str
    identity: Who
    answers: list[Answer]

    @property
    def allowed(self) -> bool:
        """Whether everything that was asked is allowed."""
        return all(self.answers)


def _text(value: Any) -> Any:
    """A name or path: bytes that are no UTF-8 stand beside it."""
    return os.fsdecode(bytes.fromhex(value["hex"])) if isinstance(value, dict) else value


def _made(kind: Any, value: Any) -> Any:
    """What JSON says, as the type that is wanted."""
    if isinstance(kind, types.UnionType):
        kind = next(part for part in typing.get_args(kind) if part is not type(None))
        return None if value is None else _made(kind, value)
    if typing.get_origin(kind) is list:
        return [_made(typing.get_args(kind)[0], item) for item in value]
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        named = {name.rstrip("_"): name for name in hints}
        # Fields that a later version adds are passed over.
        return kind(**{named[key]: _made(hints[named[key]], item) for key, item in value.items() if key in named})
    return _text(value)


def explain(
    path: StrOrBytesPath,
    what: str | Iterable[str] = "read",
    *,
    user: str | int | None = None,
    pid: int | None = None,
    caps: str | None = None,
    fixes: bool = True,
    verify: bool = False,
    library_path: StrOrBytesPath | None = None,
) -> Report:
    """Why a user may, or may not, do something with a path of this machine: the command `rcuwalk explain`, as data.

    `what`: `read`, `write`, `execute`, `stat`, `create`, `delete`, `exec`, `connect`, `rename=PATH`, or `call:` and a system call such as
    `open(PATH, O_RDWR)`. `user`: `USER|UID[:GROUP,...][+CAP,...][-CAP,...]`; `pid`: a process; neither: this one. `caps` changes the
    capabilities by `+CAP,...` and `-CAP,...`, `verify` asks the machine itself as well. `library_path` is the `LD_LIBRARY_PATH` of a program
    that is asked about by `exec`: directories with colons between them.
    """
    asked = [what] if isinstance(what, str) else list(what)
    who = None if user is None else str(user)
    report: Report = _made(Report, json.loads(_rcuwalk.explain_json(path, asked, who, pid, caps, fixes, verify, library_path)))
    return report


@dataclasses.dataclass(frozen=True, slots=True)
class AuditRow:
    """An entry that an identity may do something with, and what."""

    path: str
    type: str
    mode: int
    uid: int
    gid: int
    acl: bool
    caps: bool
    rights: dict[str, list[str]]


class Audit:
    """The entries of a tree that the identities may do something with: a sequence of `AuditRow`, and a table for Arrow.

    `pyarrow.table(audit)`, `polars.from_arrow(audit)` and the like read it without a copy by way of Python: columns `path`, `mode`,
    `uid`, `gid`, `acl`, `caps`, and `IDENTITY:RIGHT` for each identity and right that was asked for. `complete` is false if
    something of the tree was not looked at, or could not be imported: what is missing may be open.
    """

    def __init__(self, rows: _rcuwalk.AuditRows) -> None:
        self._rows = rows
        self.identities: list[str] = rows.identities
        self.rights: list[str] = rows.rights
        self.entries, _count, self.closed, self.complete = rows.summary

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> AuditRow:
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError("no such row")
        path, kind, mode, uid, gid, acl, caps, rights = self._rows.row(at)
        return AuditRow(path, kind, mode, uid, gid, acl, caps, dict(zip(self.identities, rights)))

    def __iter__(self) -> Iterator[AuditRow]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        return f"<rcuwalk.Audit of {self.entries} entries for {', '.join(self.identities)}: {len(self)} rows>"

    def __arrow_c_schema__(self) -> object:
        return self._rows.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._rows.__arrow_c_stream__(requested_schema)


def audit(
    vfs: Vfs, identities: str | Iterable[str], top: StrOrBytesPath = "/", want: str | Iterable[str] = "all"
) -> Audit:
    """What each identity may do with everything below `top`: the command `rcuwalk audit`, as data.

    An identity is `USER[:GROUP,GROUP][+CAP,CAP]`, with names of this machine or numbers. `want`: `read`, `write`, `exec`, `search`,
    `delete`, `setid`.
    """
    who = [identities] if isinstance(identities, str) else list(identities)
    asked = want if isinstance(want, str) else ",".join(want)
    return Audit(_rcuwalk.audit_rows(vfs, who, top, asked))
