"""fsspec over a task."""

import json

import fsspec
import pytest

from rcuwalk import Cred, Vfs
from rcuwalk.fsspec import RcuwalkFileSystem


@pytest.fixture
def fs():
    return RcuwalkFileSystem(vfs=Vfs())


def test_it_is_registered():
    assert isinstance(fsspec.filesystem("rcuwalk"), RcuwalkFileSystem)
    with fsspec.open("rcuwalk:///shared.json", "w", name="registered") as file:
        json.dump([1, 2], file)
    with fsspec.open("rcuwalk:///shared.json", name="registered") as file:
        assert json.load(file) == [1, 2]
    assert not fsspec.filesystem("rcuwalk", name="another").exists("/shared.json")


def test_files_and_directories(fs):
    fs.makedirs("/a/b")
    fs.pipe("/a/b/x", b"0123456789")
    assert fs.cat("/a/b/x") == b"0123456789" and fs.cat_file("/a/b/x", 2, -2) == b"234567"
    assert fs.ls("/a", detail=False) == ["/a/b"] and fs.info("/a/b/x")["size"] == 10
    assert fs.find("/") == ["/a/b/x"] and fs.glob("/a/*/x") == ["/a/b/x"]
    assert fs.du("/a") == 10 and fs.isdir("/a") and fs.isfile("/a/b/x")
    fs.cp("/a/b/x", "/a/y")
    fs.mv("/a/y", "/a/z")
    assert fs.head("/a/z", 3) == b"012" and not fs.exists("/a/y")
    fs.rm("/a", recursive=True)
    assert fs.ls("/") == []
    with pytest.raises(FileNotFoundError):
        fs.info("/a")


def test_text_and_append(fs):
    with fs.open("/t", "w") as file:
        file.write("Grüße\n")
    with fs.open("/t", "a") as file:
        file.write("mehr")
    assert fs.read_text("/t") == "Grüße\nmehr"


def test_recursive_copies_to_the_machine_and_back(fs, tmp_path):
    fs.makedirs("/d/e")
    fs.pipe({"/d/one": b"1", "/d/e/two": b"2"})
    fs.get("/d", str(tmp_path / "out"), recursive=True)
    assert (tmp_path / "out/e/two").read_bytes() == b"2"
    fs.put(str(tmp_path / "out"), "/back", recursive=True)
    assert fs.cat("/back/e/two") == b"2"


def test_permissions_hold():
    vfs = Vfs()
    vfs.task().write_bytes("/secret", b"x", 0o600)
    fs = RcuwalkFileSystem(task=vfs.task(Cred(1000)))
    with pytest.raises(PermissionError):
        fs.cat_file("/secret")
    with pytest.raises(PermissionError):
        fs.mkdir("/new")
    assert RcuwalkFileSystem(vfs=vfs, uid=0).cat_file("/secret") == b"x"


def test_links(fs):
    fs.pipe("/f", b"x")
    fs.symlink("f", "/link")
    info = fs.info("/link")
    assert info["type"] == "file" and info["islink"] and info["destination"] == "f"


def test_arrow_reads_through_it(fs):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({"n": [1, 2, 3]})
    parquet.write_table(table, "/t.parquet", filesystem=fs)
    assert parquet.read_table("/t.parquet", filesystem=fs).equals(table)
