"""The documentation shows what was measured, and its examples run."""

import importlib.util
import json
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[3]


def bench():
    spec = importlib.util.spec_from_file_location("compare", ROOT / "crates/python/bench/compare.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_that_of_the_record():
    compare = bench()
    text, record = (ROOT / "docs/python.md").read_text(), compare.newest()
    assert compare.splice(text, json.loads(record.read_text())) == text, "run compare.py --write"


def test_the_engines_answer_alike(tmp_path):
    from rcuwalk import FakeFilesystem

    compare = bench()

    def answers(top):
        compare.lay_out(top)
        return [operation(top) for operation, *_ in compare.OPERATIONS]

    host = answers(str(tmp_path))
    with FakeFilesystem() as fs:
        fs.create_dir("/top")
        assert answers("/top") == host


def test_examples(request):
    """Those of pytest run as tests of their own would; what they call is defined here."""
    from rcuwalk import FakeFilesystem

    def save_everything(path):
        with open(path, "wb") as file:
            file.write(bytes(200_000))

    found = 0
    for text in re.findall(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text(), re.S):
        if "pyarrow" in text:
            continue
        names = {"pytest": pytest, "save_everything": save_everything}
        exec(compile(text, "docs/python.md", "exec"), names)
        for name, test in list(names.items()):
            if name.startswith("test_"):
                with FakeFilesystem() as fs:
                    test(fs)
                found += 1
    assert found == 2
