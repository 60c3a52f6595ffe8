"""The type stubs say what the extension module has: the same names, the same parameters."""

import ast
import inspect
import pathlib
import subprocess
import sys

import rcuwalk
from rcuwalk import _rcuwalk

STUB = ast.parse((pathlib.Path(rcuwalk.__file__).parent / "_rcuwalk.pyi").read_text())
IMPLICIT = {"__doc__", "__module__", "__repr__", "__dict__", "__weakref__", "__new__", "__annotations__"}


def parameters(function):
    args = function.args
    names = [arg.arg for arg in (*args.posonlyargs, *args.args)]
    return [name for name in names if name not in ("self", "cls")] + [arg.arg for arg in args.kwonlyargs]


def members(cls):
    """Name to parameters, or to none for an attribute."""
    found = {}
    for node in cls.body:
        if isinstance(node, ast.FunctionDef):
            marks = [ast.unparse(mark) for mark in node.decorator_list]
            found[node.name] = None if "property" in marks or "cred.setter" in marks else parameters(node)
    return found


def test_functions_and_classes():
    stubbed = {node.name for node in STUB.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    has = {name for name, value in vars(_rcuwalk).items() if callable(value)}
    assert stubbed - {"_HasFileno"} == has


def test_members():
    for node in STUB.body:
        if not isinstance(node, ast.ClassDef) or node.name == "_HasFileno":
            continue
        cls, said = getattr(_rcuwalk, node.name), members(node)
        assert set(said) - IMPLICIT == set(vars(cls)) - IMPLICIT, node.name
        for name, wanted in said.items():
            if wanted is None or name.startswith("__") and name != "__new__":
                continue
            signature = inspect.signature(cls if name == "__new__" else getattr(cls, name))
            assert [p for p in signature.parameters if p != "self"] == wanted, f"{node.name}.{name}"


def test_the_package_says_that_it_is_typed():
    assert (pathlib.Path(rcuwalk.__file__).parent / "py.typed").exists()


def test_functions_are_those_of_os():
    """Parameters have the names that `os` gives them, so that keywords work."""
    import os

    differ = {}
    for name in dir(rcuwalk.Task):
        real = getattr(os, name, None)
        if name.startswith("_") or not inspect.isbuiltin(real):
            continue
        try:
            wanted = list(inspect.signature(real).parameters)
        except ValueError:
            continue
        ours = [p for p in inspect.signature(getattr(rcuwalk.Task, name)).parameters if p != "self"]
        if ours != wanted:
            differ[name] = (ours, wanted)
    # Calls of another kind under the same name: they do not return in `os`, or answer otherwise.
    for name in ("execve", "fork"):
        differ.pop(name, None)
    assert not differ


def test_strict_type_checkers_find_nothing(tmp_path):
    """In the package itself, and in a program that uses it."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os\n"
        "from rcuwalk import Cred, FakeFilesystem, Vfs\n"
        "vfs = Vfs()\n"
        "task = vfs.task(Cred(1000, groups=[27]))\n"
        "names: list[str] = task.listdir('/')\n"
        "started = task.execve('/bin/true', ['true'], dict(os.environ))\n"
        "with FakeFilesystem(allow_escape=True) as fs, fs.as_user(1000):\n"
        "    path: str = fs.create_file('/f', b'x', 0o600)\n"
    )
    check = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache")]
    for what in (["--package", "rcuwalk"], [str(program)]):
        run = subprocess.run([*check, *what], capture_output=True, text=True, cwd=tmp_path)
        assert run.returncode == 0, run.stdout + run.stderr
    program.write_text("from rcuwalk import Vfs\nVfs().task().listdir(b'/').append('str')\n")
    assert subprocess.run([*check, str(program)], capture_output=True, cwd=tmp_path).returncode == 1
