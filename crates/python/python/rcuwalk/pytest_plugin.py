"""The pytest plugin: the fixture `rcuwalk_fs`."""

from __future__ import annotations

import functools
import sys

import pytest


def _files():
    """The module that patches, if a test has used it."""
    return sys.modules.get("rcuwalk._patch")


@pytest.fixture
def rcuwalk_fs(request):
    """A fresh file system in the place of the machine's; the code under test is root unless it says otherwise."""
    from rcuwalk._fixture import FakeFilesystem

    marker = request.node.get_closest_marker("rcuwalk_fs")
    with FakeFilesystem(**(marker.kwargs if marker else {})) as fs:
        yield fs


def pytest_configure(config):
    config.addinivalue_line("markers", "rcuwalk_fs(**settings): settings of the fixture of this name")


def _about_the_machine(hook):
    """What pytest itself does with files while the fixture is active: it reads sources for its reports."""

    @functools.wraps(hook)
    def wrapper(*args):
        patch = _files()
        if patch is None:
            return (yield)
        with patch.real_files():
            return (yield)

    return pytest.hookimpl(wrapper=True, tryfirst=True)(wrapper)


@_about_the_machine
def pytest_runtest_makereport(item, call): ...


@_about_the_machine
def pytest_exception_interact(node, call, report): ...


@_about_the_machine
def pytest_runtest_logreport(report): ...


@_about_the_machine
def pytest_assertrepr_compare(config, op, left, right): ...
