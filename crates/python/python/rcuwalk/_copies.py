"""Where copies of the replaced functions stand, and putting others in their place."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import os
import sys
import sysconfig
import tempfile
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

# Modules that go on seeing the machine: they look at the source of the program, not at its data.
KEPT = frozenset(
    "importlib _frozen_importlib _frozen_importlib_external _io posix zipimport inspect linecache tokenize traceback pdb bdb "
    "doctest pkgutil _pytest pytest pluggy coverage xdist execnet pydevd _pydev_bundle _pydevd_bundle debugpy rcuwalk".split()
)

def _is_kept(name: Any) -> Any:
    return str(name).partition(".")[0] in KEPT


_LIBRARY = tuple(
    os.path.join(path, "")
    for path in {*sysconfig.get_paths().values(), os.path.dirname(os.__file__)}
    if path and path not in (sys.prefix, sys.exec_prefix)
)


def _is_library(module: types.ModuleType) -> Any:
    file = getattr(module, "__file__", None)
    return file is None or file.startswith(_LIBRARY)


class _Copies:
    """What stands under some names of a module, and what is to: replaced at once, since `os` alone has eighty."""

    def __init__(self, module: types.ModuleType, places: Any) -> None:
        self.names = vars(module)
        self.old = {name: old for name, old, _new in places}
        self.new = {name: new for name, _old, new in places}

    def install(self, undo: list[Any]) -> None:
        # The program may have put something else there.
        here = {name: old for name, old in self.old.items() if self.names.get(name) is old}
        self.names.update(self.new if len(here) == len(self.old) else {name: self.new[name] for name in here})
        undo.append((self.names, here))


class _Library:
    """The modules that do not belong to the program under test, and where copies of the functions stand in them.

    Nobody rebinds names of the library: as long as each module has as many, there is nothing new to find.
    """

    # What was found in a module that had so many names.
    found: dict[int, tuple[types.ModuleType, int, list[tuple[str, Any, Any]]]] = {}

    def __init__(self, fakes: Any) -> None:
        self.loaded = list(sys.modules.values())
        self.modules, self.program, self.copies = [], [], []
        for name, module in list(sys.modules.items()):
            if not isinstance(module, types.ModuleType):
                continue
            if _is_kept(name):
                self.modules.append(module)
            elif _is_library(module):
                self.modules.append(module)
                places = self._places(fakes, module)
                if places:
                    self.copies.append(_Copies(module, places))
            else:
                self.program.append(module)
        self.held = _Held(fakes)
        self.names = list(map(vars, self.modules))
        self.counts = list(map(len, self.names))

    def is_current(self) -> Any:
        """Whether modules have neither come nor gone nor grown."""
        return list(sys.modules.values()) == self.loaded and list(map(len, self.names)) == self.counts

    def _places(self, fakes: Any, module: types.ModuleType) -> Any:
        known = self.found.get(id(module))
        if known is None or known[0] is not module or known[1] != len(vars(module)):
            known = self.found[id(module)] = (module, len(vars(module)), list(_attributes(vars(module), fakes)))
        return known[2]


# Made when it is first needed, and again when there are other modules.
_library: list[_Library] = []


def _fake_of(fakes: Any, value: Any) -> Any:
    found = fakes.get(id(value))
    return found[1] if found is not None and found[0] is value else value


def _attributes(names: Any, fakes: Any) -> Iterator[Any]:
    """Names and values that are to be others."""
    for name, value in list(names.items()):
        inner = value.__func__ if type(value) is staticmethod else value
        fake = _fake_of(fakes, inner)
        if fake is not inner:
            yield name, value, fake


def _set_item(owner: Any, key: Any, value: Any) -> None:
    owner[key] = value


def _set_partial(owner: Any, _name: Any, state: Any) -> None:
    owner.__setstate__(state)


class _Held:
    """Copies of the functions that no module has among its names: in classes, instances, default arguments, closures,
    `functools.partial`, and in dictionaries and lists that are names of a module or a class.

    The collector knows what refers to a function. Asking it takes some milliseconds, so it is asked again only when the program
    has other modules; an instance that comes later and keeps a copy of its own is found by `_escape`.
    """

    def __init__(self, fakes: Any) -> None:
        self.fakes = fakes
        # How to put a value there, the owner (or a weak reference to it), the name, what stands there, what is to.
        self.places: list[tuple[Callable[..., None], Any, Any, Any, Any]] = []
        modules = {id(vars(module)): name for name, module in list(sys.modules.items()) if type(module) is types.ModuleType}
        reals = [real for real, _fake in fakes.values()]
        direct = [found for found in gc.get_referrers(*reals) if id(found) not in modules and found is not reals]
        containers = [found for found in direct if type(found) in (dict, tuple, list)]
        owners = gc.get_referrers(*containers) if containers else []
        # The replacements themselves go on to what they replace.
        seen = {id(cell) for _real, fake in fakes.values() for cell in getattr(fake, "__closure__", None) or ()}
        for found in itertools.chain(direct, owners):
            if id(found) not in seen and found is not containers and found is not direct:
                seen.add(id(found))
                self._look_at(found)
        for names in owners:
            if id(names) in modules and not _is_kept(modules[id(names)]):
                for value in list(names.values()):
                    self._look_in(value)

    def _add(self, put: Any, owner: Any, name: Any, old: Any, new: Any) -> None:
        self.places.append((put, owner, name, old, new))

    def _look_at(self, found: Any) -> None:
        kind = type(found)
        owner = found if issubclass(kind, (type, types.FunctionType)) else kind
        if _is_kept(getattr(owner, "__module__", "")):
            return
        if issubclass(kind, type):
            for name, old, fake in _attributes(vars(found), self.fakes):
                # A function would become a method, which the machine's functions do not.
                new = staticmethod(fake) if isinstance(fake, types.FunctionType) else fake
                self._add(setattr, found, name, old, new)
            for value in list(vars(found).values()):
                self._look_in(value)
        elif kind is types.FunctionType:
            self._look_at_defaults(found)
        elif kind is types.CellType:
            old = found.cell_contents
            self._add(setattr, found, "cell_contents", old, _fake_of(self.fakes, old))
        elif issubclass(kind, functools.partial):
            func, args, keywords, names = found.__reduce__()[2]
            new = _fake_of(self.fakes, func), self._all(args), dict(zip(keywords, self._all(keywords.values()))), names
            self._add(_set_partial, found, None, (func, args, keywords, names), new)
        elif kind not in (dict, list, tuple) and not issubclass(kind, types.ModuleType):
            self._look_at_instance(found)

    def _all(self, values: Any) -> Any:
        return tuple(_fake_of(self.fakes, value) for value in values)

    def _look_at_defaults(self, function: Any) -> None:
        for name in ("__defaults__", "__kwdefaults__"):
            old = getattr(function, name)
            values = old.values() if isinstance(old, dict) else old or ()
            new = self._all(values)
            if any(one is not other for one, other in zip(new, values)):
                self._add(setattr, function, name, old, dict(zip(old, new)) if isinstance(old, dict) else new)

    def _look_at_instance(self, found: Any) -> None:
        owner = found
        try:
            names = object.__getattribute__(found, "__dict__")
        except (AttributeError, TypeError):
            return
        # It need not live for as long as this is remembered.
        with contextlib.suppress(TypeError):
            owner = weakref.ref(found)
        if type(names) is dict:
            for name, old, fake in _attributes(names, self.fakes):
                self._add(object.__setattr__, owner, name, old, fake)

    def _look_in(self, table: Any) -> None:
        """Tables that stand under a name."""
        if type(table) is dict:
            for key, old, fake in _attributes(table, self.fakes):
                self._add(_set_item, table, key, old, fake)
        elif type(table) is list:
            for i, (old, new) in enumerate(zip(table, self._all(table))):
                if new is not old:
                    self._add(_set_item, table, i, old, new)

    def install(self, undo: list[Any]) -> None:
        for put, owner, name, old, new in self.places:
            # An instance that has gone has no copies.
            if type(owner) is weakref.ref and (owner := owner()) is None:
                continue
            put(owner, name, new)
            undo.append((put, owner, name, old))


class Installed:
    """Everywhere the functions were replaced."""

    def __init__(self, fakes: Any, reals: Any, supports: Any) -> None:
        if not _library or not _library[0].is_current():
            _library[:] = [_Library(fakes)]
        self.fakes, self.reals, self.supports = fakes, reals, supports
        self.library = _library[0]
        self.undo: list[tuple[Callable[..., None], Any, Any, Any]] = []
        self.undo_copies: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.tempdir = tempfile.tempdir

    def install(self) -> None:
        for name, (_known, ours) in self.supports.items():
            setattr(os, name, ours)
        for copies in self.library.copies:
            copies.install(self.undo_copies)
        for module in self.library.program:
            for name, old, new in _attributes(vars(module), self.fakes):
                setattr(module, name, new)
                self.undo.append((setattr, module, name, old))
        self.library.held.install(self.undo)

    def remove(self) -> None:
        for put, owner, name, value in reversed(self.undo):
            put(owner, name, value)
        for names, old in self.undo_copies:
            names.update(old)
        for name, (known, _ours) in self.supports.items():
            setattr(os, name, known)
        # Modules that were imported or went on growing meanwhile have copied the replacements.
        changed = self.library.program
        if not self.library.is_current():
            counts = {id(module): count for module, count in zip(self.library.modules, self.library.counts)}
            changed = [
                module
                for name, module in list(sys.modules.items())
                if isinstance(module, types.ModuleType)
                and not name.startswith("rcuwalk")
                and counts.get(id(module)) != len(vars(module))
            ]
        for module in changed:
            for name, _fake, real in _attributes(vars(module), self.reals):
                setattr(module, name, real)
        tempfile.tempdir = self.tempdir
