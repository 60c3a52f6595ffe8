"""The pytest plugin: the fixture `rcuwalk_fs`."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from typing import Any

import pytest


def _files() -> Any:
    """The module that patches, if a test has used it."""
    return sys.modules.get("rcuwalk._patch")


# The file systems that stand in the place of the machine's, the innermost last.
_active: list[Any] = []
# Temporary directories that pytest has made for a test, and the one they are all in.
_TEMPORARY = pytest.StashKey[list[str]]()
_BASE = pytest.StashKey[str]()


@pytest.fixture
def rcuwalk_fs(request: Any) -> Iterator[Any]:
    """A fresh file system in the place of the machine's; the code under test is root unless it says otherwise."""
    from rcuwalk._fixture import FakeFilesystem

    marker = request.node.get_closest_marker("rcuwalk_fs")
    with FakeFilesystem(**(marker.kwargs if marker else {})) as fs:
        places = list(request.node.stash.get(_TEMPORARY, ()))
        if "tmp_path_factory" in request.fixturenames and _BASE in request.session.stash:
            places.append(request.session.stash[_BASE])
        for place in places:
            fs.root.makedirs(place, 0o700, exist_ok=True)
        _active.append(fs)
        try:
            yield fs
        finally:
            _active.pop()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Any:
    """`tmp_path` and its like are made on the machine, where pytest looks for them later, and are empty directories here."""
    name = fixturedef.argname
    if name not in ("tmp_path", "tmpdir", "tmp_path_factory"):
        return (yield)
    patch = _files()
    value: Any
    if patch is None:
        value = yield
    else:
        with patch.real_files():
            value = yield
    if name == "tmp_path_factory":
        with patch.real_files() if patch else contextlib.nullcontext():
            place = request.session.stash[_BASE] = str(value.getbasetemp())
    else:
        place = str(value)
        request.node.stash.setdefault(_TEMPORARY, []).append(place)
    for fs in _active:
        fs.root.makedirs(place, 0o700, exist_ok=True)
    return value


def pytest_configure(config: Any) -> None:
    config.addinivalue_line("markers", "rcuwalk_fs(**settings): settings of the fixture of this name")


def _about_the_machine(hook: Any) -> Any:
    """What pytest itself does with files while the fixture is active: it reads sources for its reports."""

    @functools.wraps(hook)
    def wrapper(*args: Any) -> Iterator[Any]:
        patch = _files()
        if patch is None:
            return (yield)
        with patch.real_files():
            return (yield)

    return pytest.hookimpl(wrapper=True, tryfirst=True)(wrapper)


@_about_the_machine
def pytest_runtest_makereport(item: Any, call: Any) -> None: ...


@_about_the_machine
def pytest_exception_interact(node: Any, call: Any, report: Any) -> None: ...


@_about_the_machine
def pytest_runtest_logreport(report: Any) -> None: ...


@_about_the_machine
def pytest_assertrepr_compare(config: Any, op: Any, left: Any, right: Any) -> None: ...
