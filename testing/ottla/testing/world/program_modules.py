"""Modules of the user's program: a copy for each life (run) of an instance, and detection of state
that lives share.

All instances run in the test's process, where a module exists once. Module globals would therefore
survive a kill, and be shared by instances. `LifeModules` loads modules again for one life, whose
imports all find these copies. `SharedGlobals` reports globals that changed during a run whose lives
shared them.
"""

import builtins
import importlib
import importlib.util
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from operator import attrgetter
from types import ModuleType
from typing import Any, TypeAlias

from ottla.testing.world.errors import WorldError
from ottla.testing.world.life import LIFE

Program: TypeAlias = Callable[..., Coroutine[Any, Any, object]]

REPORTED_MAX = 3
"""Maximum number of global variables that a warning names."""

_PLAIN = (bool, int, float, str, bytes, tuple, type(None))
"""Types whose values are compared with `==`. Other values are compared by identity."""
_CONTAINERS = (list, dict, set, deque, bytearray)


class LifeModules:
    """Copies of a program's modules for one life of an instance (one run of the program)."""

    def __init__(self, names: Sequence[str]) -> None:
        """`names` are the names of top-level packages or modules, which are copied as a whole."""
        self._names = frozenset(names)
        self._loaded: dict[str, ModuleType] = {}
        self._is_in_place = False

    def owns(self, name: str) -> bool:
        """Return whether this life (run of the program) has its own copy of the named module."""
        return name.partition(".")[0] in self._names

    def load(self, program: Program) -> Program:
        """Return the copy of a program (a function) that these copied modules contain."""
        with self.in_place():
            module = importlib.import_module(program.__module__)
        copy: Program = attrgetter(program.__qualname__)(module)
        return copy

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Return a context in which imports find the copies, and load those that are missing."""
        if self._is_in_place:
            yield
            return
        hidden = self._exchange(self._loaded)
        finder = _FinderOfFiles(hidden)
        sys.meta_path.append(finder)
        self._is_in_place = True
        try:
            yield
        finally:
            self._is_in_place = False
            sys.meta_path.remove(finder)
            self._loaded = self._exchange(hidden)

    def _exchange(self, modules: dict[str, ModuleType]) -> dict[str, ModuleType]:
        """Replace the modules with these names by others, and return those that were in place."""
        found = {name: one for name, one in sys.modules.items() if self.owns(name)}
        for name in found:
            del sys.modules[name]
        sys.modules.update(modules)
        return found


class _FinderOfFiles(MetaPathFinder):
    """Import finder that locates modules by the files of already imported modules. It also finds
    modules that are in no directory of `sys.path`, such as those that pytest loads in the import
    mode `importlib`."""

    def __init__(self, modules: Mapping[str, ModuleType]) -> None:
        self._modules = modules

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = getattr(self._modules.get(fullname), "__spec__", None)
        if spec is None:
            return None
        folders = spec.submodule_search_locations
        if not spec.has_location:  # a package without __init__.py
            found = ModuleSpec(fullname, None, is_package=True)
            found.submodule_search_locations = list(folders or ())
            return found
        return importlib.util.spec_from_file_location(
            fullname,
            spec.origin,
            submodule_search_locations=None if folders is None else list(folders),
        )


def check_program(program: Program, modules: Sequence[str]) -> None:
    """Raise WorldError if the program is not a function of one of these modules, or if a name does
    not denote a top-level module or package."""
    for name in modules:
        if "." in name:
            raise WorldError(
                f"{name!r} is inside of a package, which can only be copied as a whole; write "
                f"{name.partition('.')[0]!r} in `modules`"
            )
        if name not in sys.modules and not _exists(name):
            raise WorldError(f"there is no module {name!r}; `modules` are names of your modules")
    module = getattr(program, "__module__", None)
    name = getattr(program, "__qualname__", "<locals>")
    if module is None or not LifeModules(modules).owns(module) or "<locals>" in name:
        raise WorldError(
            f"{name} of {module} is no function of the modules {', '.join(modules)}; "
            "start a function that one of them defines"
        )


def _exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


@contextmanager
def imports_of_lives() -> Iterator[None]:
    """Return a context in which imports by an instance return the instance's own copies of modules,
    if it has any."""
    original_import, original_function = builtins.__import__, importlib.import_module

    def import_of_life(
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        life = LIFE.get()
        target = str((globals or {}).get("__package__") or "") if level else name
        if life is None or life.modules is None or not life.modules.owns(target):
            return original_import(name, globals, locals, fromlist or (), level)
        with life.modules.in_place():
            return original_import(name, globals, locals, fromlist or (), level)

    def import_module_of_life(name: str, package: str | None = None) -> ModuleType:
        life = LIFE.get()
        full = importlib.util.resolve_name(name, package)
        if life is None or life.modules is None or not life.modules.owns(full):
            return original_function(name, package)
        with life.modules.in_place():
            return original_function(name, package)

    builtins.__import__ = import_of_life
    importlib.import_module = import_module_of_life
    try:
        yield
    finally:
        builtins.__import__ = original_import
        importlib.import_module = original_function


class SharedGlobals:
    """Globals of a program's modules, as they were when its first instance started."""

    def __init__(self, program: Program) -> None:
        self.package = str(getattr(program, "__module__", "")).partition(".")[0]
        """Name of the program's top-level module or package."""
        self._before = {
            module: _globals_of(sys.modules[module], self.package)
            for module in _watched(str(getattr(program, "__module__", "")))
        }

    def changed(self) -> list[str]:
        """Return the full names of the globals that have changed, sorted."""
        found = []
        for module, before in self._before.items():
            now = _globals_of(sys.modules[module], self.package) if module in sys.modules else {}
            found += [
                f"{module}.{name}"
                for name, state in now.items()
                if name not in before or not _is_same(before[name], state)
            ]
        return sorted(found)

    def warning(self) -> str | None:
        """Return a warning about the globals that have changed, or None without a change."""
        found = self.changed()
        if not found:
            return None
        names = ", ".join(found[:REPORTED_MAX]) + (", …" if len(found) > REPORTED_MAX else "")
        return (
            f"{names} changed during the run. In the world, all instances share module globals, "
            "and a kill does not reset them, unlike those of processes. To give each start of an "
            f'instance its own modules, write: w.start(…, modules=["{self.package}"])'
        )


def _watched(module: str) -> list[str]:
    """Return the names of the modules whose global variables belong to a program in `module`."""
    package = module.partition(".")[0]
    inside = [name for name in sys.modules if name == package or name.startswith(f"{package}.")]
    if any(map(_is_test, inside)):  # a package of tests, which keep state of their own
        inside = [module]
    return [name for name in inside if name in sys.modules and not _is_test(name)]


def _is_test(module: str) -> bool:
    last = module.rpartition(".")[2]
    return last.startswith("test_") or last.endswith("_test") or last in ("conftest", "__main__")


def _globals_of(module: ModuleType, package: str) -> dict[str, tuple[Any, ...]]:
    """Return the state of each global variable of a module. Imported modules are left out."""
    return {
        name: _state_of(value, package)
        for name, value in vars(module).items()
        if not (name.startswith("__") or isinstance(value, ModuleType))
    }


def _state_of(value: Any, package: str) -> tuple[Any, ...]:
    """Return a description of a value's state, to detect changes: the value and, for a container,
    its length. If the value's class belongs to the program, the states of its attributes are
    included."""
    if isinstance(value, _CONTAINERS):
        return value, len(value)
    if hasattr(value, "cache_info"):  # of functools.cache
        return value, value.cache_info().currsize
    kind = value if isinstance(value, type) else type(value)
    if kind.__module__.partition(".")[0] != package:
        return (value,)
    parts = [
        part
        for name, one in sorted(getattr(value, "__dict__", {}).items())
        if not (name.startswith("__") or callable(one))
        for part in (name, one, len(one) if isinstance(one, _CONTAINERS) else None)
    ]
    return value, *parts


def _is_same(before: tuple[Any, ...], now: tuple[Any, ...]) -> bool:
    return len(before) == len(now) and all(
        one is other
        or (isinstance(one, _PLAIN) and type(one) is type(other) and bool(one == other))
        for one, other in zip(before, now, strict=True)
    )
