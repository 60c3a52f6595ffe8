"""Explanations and audits, as dataclasses and as Arrow."""

import io
import os
import signal
import stat

import pytest

import rcuwalk
from rcuwalk import Vfs


def test_an_explanation(tmp_path):
    os.chmod(tmp_path, 0o755)
    path = tmp_path / "secret"
    path.write_text("x")
    path.chmod(0o600)
    report = rcuwalk.explain(path, ["read", "stat"], user="65533:65533")
    assert report.schema == 1 and report.path == str(path) and report.identity.user.id == 65533
    read, reached = report.answers
    assert not read and read.verdict == "denied" and read.errno == "EACCES"
    assert read.deciding is not None
    last = read.walks[0].components[-1]
    if reached:
        assert last.path == str(path) and last.mode is not None and stat.S_IMODE(last.mode) == 0o600
        assert read.deciding.path == str(path) and any(check.class_ == "other" for check in last.checks)
        assert read.fixes and all(fix.commands for fix in read.fixes)
    assert not report.allowed
    assert rcuwalk.explain("/", "stat").allowed


def test_explanations_of_nonsense(tmp_path):
    with pytest.raises(ValueError, match="what is asked"):
        rcuwalk.explain("/", "fly")
    with pytest.raises(ValueError):
        rcuwalk.explain("/", user="no such user at all")
    with pytest.raises(ValueError):
        rcuwalk.explain("/a\0b")
    with pytest.raises(TypeError):
        rcuwalk.explain(5)
    with pytest.raises((OSError, ValueError)):
        rcuwalk.explain("/", pid=2**31 - 1)
    missing = rcuwalk.explain(os.fsencode(tmp_path) + b"/\xff", "read")
    assert missing.answers[0].errno == "ENOENT" and missing.path.endswith("/\udcff")


@pytest.fixture
def vfs():
    vfs = Vfs()
    root = vfs.task()
    root.makedirs("/etc")
    root.write_bytes("/etc/shadow", b"x", 0o600)
    root.write_bytes("/etc/passwd", b"x", 0o644)
    root.write_bytes(b"/etc/\xff", b"", 0o666)
    root.chmod(b"/etc/\xff", 0o666)
    return vfs


def test_an_audit(vfs):
    audit = rcuwalk.audit(vfs, ["1000:1000", "0"], "/etc", "read,write")
    assert audit.identities == ["1000:1000", "0"] and audit.rights == ["read", "write"]
    rows = {row.path: row for row in audit}
    assert len(audit) == 4 and audit.entries == 4 and audit.complete
    assert rows["/etc/shadow"].rights == {"1000:1000": [], "0": ["read", "write"]}
    assert rows["/etc/passwd"].rights["1000:1000"] == ["read"] and rows["/etc/passwd"].type == "file"
    assert rows["/etc/\udcff"].rights["1000:1000"] == ["read", "write"]
    assert audit[-1] == list(audit)[-1]
    with pytest.raises(IndexError):
        audit[4]


def test_an_audit_of_a_tree_that_was_not_imported_whole(tmp_path):
    import tarfile

    for user, complete in [("alice", True), ("bob", False)]:
        archive = tmp_path / f"{user}.tar"
        text = f"user::rw-,user:{user}:rw-,group::r--,mask::rw-,other::---"
        with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as tar:
            for name, data, headers in [
                ("file", b"", {"SCHILY.acl.access": text}),
                ("etc/passwd", b"alice:x:4001:4001::/:/bin/sh\n", {}),
            ]:
                member = tarfile.TarInfo(name)
                member.size, member.pax_headers = len(data), headers
                tar.addfile(member, io.BytesIO(data))
        vfs = Vfs()
        report = vfs.import_tree(archive)
        audit = rcuwalk.audit(vfs, "4001:4001", want="write")
        assert audit.complete is complete and (report["problem_count"] == 0) is complete
        assert [row.path for row in audit] == (["/file"] if complete else [])


def test_what_a_program_needs():
    answer = rcuwalk.explain("/bin/sh", "exec").answers[0]
    assert answer and answer.loads[0].role == "loader"
    library = next(load for load in answer.loads if load.role == "library")
    assert library.walk is not None and answer.walks[library.walk].path == library.path


def test_where_libraries_are_looked_for(tmp_path):
    answer = rcuwalk.explain("/bin/sh", "exec").answers[0]
    libc = next(load for load in answer.loads if load.role == "library" and "libc" in load.name)
    (tmp_path / libc.name).write_text("no library")
    for path in (tmp_path, os.fsencode(tmp_path), f"/nothing:{tmp_path}"):
        denied = rcuwalk.explain("/bin/sh", "exec", library_path=path).answers[0]
        assert denied.verdict == "denied" and denied.deciding.rule == "not-a-library"
    assert rcuwalk.explain("/bin/sh", "exec", library_path="/nothing").allowed


def test_a_process_with_a_root_of_its_own(tmp_path):
    if os.geteuid():
        pytest.skip("chroot(2) takes root")
    (tmp_path / "only-here").write_text("")
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.chroot(tmp_path)
        os.chdir("/")
        os.write(write, b"x")
        signal.pause()
    try:
        assert os.read(read, 1) == b"x"
        assert rcuwalk.explain("/only-here", pid=pid).allowed
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_audits_of_nonsense(vfs):
    for identities, want in [([], "all"), (["1", "1"], "all"), (["nobody here"], "all"), (["1"], "fly")]:
        with pytest.raises(ValueError):
            rcuwalk.audit(vfs, identities, "/", want)
    with pytest.raises(FileNotFoundError):
        rcuwalk.audit(vfs, "1", "/nothing")
    with pytest.raises(TypeError):
        rcuwalk.audit("vfs", "1")


def test_arrow(vfs):
    pyarrow = pytest.importorskip("pyarrow")
    audit = rcuwalk.audit(vfs, ["1000", "0"], "/etc")
    table = pyarrow.table(audit)
    assert table.num_rows == len(audit) and pyarrow.schema(audit) == table.schema
    assert table.column_names[:6] == ["path", "mode", "uid", "gid", "acl", "caps"]
    readable = dict(zip(table["path"].to_pylist(), table["1000:read"].to_pylist()))
    assert readable == {os.fsencode(row.path): "read" in row.rights["1000"] for row in audit}
    stream = audit.__arrow_c_stream__()
    del audit, table
    reader = pyarrow.RecordBatchReader._import_from_c_capsule(stream)
    assert reader.read_all().num_rows == 4
