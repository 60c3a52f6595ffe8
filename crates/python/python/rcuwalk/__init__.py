"""rcuwalk: an in-memory file system with Linux's own rules for any virtual user.

>>> from rcuwalk import Cred, Vfs
>>> vfs = Vfs()
>>> root = vfs.task()
>>> root.mkdir("/srv", 0o750)
>>> member, stranger = vfs.task(Cred(1000, groups=[0])), vfs.task(Cred(1001))
>>> member.access("/srv", 5), stranger.access("/srv", 5)
(True, False)
"""

import os as _os

from . import _rcuwalk
from ._escape import EscapeError
from ._fixture import FakeFilesystem
from ._io import FileIO, open_file
from ._rcuwalk import CAPABILITIES, Cred, DirEntry, __version__
from ._reports import Answer, Audit, AuditRow, Report, audit, explain
from ._task import Task, Vfs

_os.register_at_fork(
    before=_rcuwalk._before_fork, after_in_parent=_rcuwalk._after_fork, after_in_child=_rcuwalk._after_fork
)

__all__ = [
    "Answer",
    "Audit",
    "AuditRow",
    "CAPABILITIES",
    "Cred",
    "DirEntry",
    "EscapeError",
    "FakeFilesystem",
    "FileIO",
    "Report",
    "Task",
    "Vfs",
    "__version__",
    "audit",
    "explain",
    "open_file",
]
