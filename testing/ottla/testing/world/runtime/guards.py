"""Guards for programs in a simulated world: replacements of clocks and random functions, and
refusals of functions that cannot be simulated.

`guarded` replaces functions of the standard library during a run, and restores them after it. A
replacement asks the context variable `SOURCES` for the process that owns the current task. Without
one it calls the original function. Calls are refused in instances of the user's program only, not
in the scenario or the simulated nodes. Names that a module imported (`from time import monotonic`)
are replaced too.
"""

import asyncio
import contextvars
import datetime
import functools
import gc
import io
import logging
import multiprocessing.process
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn
from zlib import crc32

import trio

from ottla.jepsen.world.chance import Chance
from ottla.testing.world.errors import NotInWorldError
from ottla.testing.world.runtime.asyncio_loop import ABANDONED, closed_loop
from ottla.testing.world.runtime.datetimes import WorldDate, WorldDatetime
from ottla.testing.world.runtime.sources import SOURCES, Sources
from ottla.testing.world.runtime.stable_sets import StableFrozenSet, StableSet

COLLECTION_S = 60.0
"""Interval in virtual seconds between two garbage collections during a run."""

RUNS_PER_COLLECTION = 64
"""Number of runs between two full garbage collections.

A collection visits all objects of the process, which takes as long as several starts of a simulated
cluster. A run that passes leaves no objects. With a larger number, the process uses more memory if
a program keeps objects that refer to each other."""

FAILED_RUN_WEIGHT = 8
"""Number of passed runs that a failed run counts for. The exception of a failed run keeps about
6 MB of objects that refer to each other."""

COLLECTIONS_MAX = 4
"""Largest number of garbage collections after a run."""

_OWN = __name__.rpartition(".")[0]
"""Package of the guards, whose modules keep references to the original functions."""

_UNSCANNED = ("_pytest", "pytest", "pluggy", "hypothesis", "xdist", "trio", "outcome", "sniffio")
"""Packages of the test runner and of the simulator. Functions that their modules have imported are
not replaced."""


class _Patch:
    """A replacement for one attribute of a module or class."""

    __slots__ = ("name", "original", "owner", "replacement")

    def __init__(self, owner: Any, name: str, replacement: Any) -> None:
        self.owner = owner
        self.name = name
        self.original = getattr(owner, name)
        self.replacement = replacement


def _switch(original: Any, inside: Callable[..., Any]) -> Any:
    """Return a function that calls `inside` with the current sources if an instance calls it, and
    `original` otherwise."""

    name = f"{original.__module__}.{original.__qualname__}"

    @functools.wraps(original)
    def switched(*args: Any, **options: Any) -> Any:
        sources = SOURCES.get()
        if sources is None:
            return original(*args, **options)
        if _on_read is not None:
            _report_read(sources, name)
        return inside(sources, *args, **options)

    return switched


@dataclass(frozen=True, slots=True)
class ClockRead:
    """Call of the machine's clock or random functions by an instance's program, which the guard
    found."""

    process: str
    """Name of the instance whose program made the call."""
    function: str
    caller: str
    """File and line in the program that called the clock or random function."""


_on_read: Callable[[ClockRead], None] | None = None


@contextmanager
def reads_of_clocks_and_chance(on_read: Callable[[ClockRead], None]) -> Iterator[None]:
    """Return a context in which `on_read` receives each call of a clock or a random function by an
    instance."""
    global _on_read
    before, _on_read = _on_read, on_read
    try:
        yield
    finally:
        _on_read = before


def _report_read(sources: Sources, function: str) -> None:
    if _on_read is not None and sources.is_instance:
        # The caller of this function, of the replacement, and of that.
        frame = sys._getframe(2)
        path = Path(frame.f_code.co_filename)
        caller = f"{'/'.join(path.parts[-2:])}:{frame.f_lineno}"
        _on_read(ClockRead(sources.name, function, caller))


def _refusal(original: Any, sentence: str) -> Any:
    def refuse(sources: Sources, *args: Any, **options: Any) -> Any:
        if sources.is_instance:
            raise NotInWorldError(sentence)
        return original(*args, **options)

    return _switch(original, refuse)


REFUSALS: dict[str, tuple[Any, str, str]] = {
    "time.sleep": (
        time,
        "sleep",
        "time.sleep would stop all virtual time: use `await asyncio.sleep(...)` or "
        "`await trio.sleep(...)`",
    ),
    "threading.Thread.start": (
        threading.Thread,
        "start",
        "a world has no threads: use a task, or `await asyncio.to_thread(...)`, which a world "
        "calls at once",
    ),
    "subprocess.Popen": (
        subprocess.Popen,
        "__init__",
        "a world has no subprocesses: start the other program as an instance of the world",
    ),
    "multiprocessing.Process.start": (
        multiprocessing.process.BaseProcess,
        "start",
        "a world has no subprocesses: start the other program as an instance of the world",
    ),
    "os.fork": (
        os,
        "fork",
        "a world has no subprocesses: start the other program as an instance of the world",
    ),
    "os.system": (
        os,
        "system",
        "a world has no subprocesses: start the other program as an instance of the world",
    ),
    "os.kill": (
        os,
        "kill",
        "a world sends no signals: stop or kill the instance in the scenario",
    ),
    "os._exit": (
        os,
        "_exit",
        "os._exit would end the test's process: raise an exception or return from the program",
    ),
    "socket.socket": (
        socket.socket,
        "__init__",
        "a world has no real sockets: use `asyncio.open_connection`, or replace the client of the "
        "other service by a store of the world",
    ),
    "socket.getaddrinfo": (
        socket,
        "getaddrinfo",
        "a world has no DNS: use `await loop.getaddrinfo(...)`, which knows the simulated machines",
    ),
    "asyncio.run": (
        asyncio,
        "run",
        "the world runs the event loop: pass the coroutine function itself to `World.start`",
    ),
    "asyncio.new_event_loop": (
        asyncio,
        "new_event_loop",
        "the world runs the event loop: use `asyncio.get_running_loop()`",
    ),
    "trio.run": (
        trio,
        "run",
        "the world runs the event loop: pass the async function itself to `World.start`",
    ),
    "trio.to_thread.run_sync": (
        trio.to_thread,
        "run_sync",
        "a world has no threads: call the function directly",
    ),
    "trio.run_process": (
        trio,
        "run_process",
        "a world has no subprocesses: start the other program as an instance of the world",
    ),
    "trio.open_tcp_stream": (
        trio,
        "open_tcp_stream",
        "a world has no real sockets: use `ottla.client`, or a store of the world",
    ),
}
"""Functions that instances must not call: owner, attribute, and the message of the
`NotInWorldError`."""


def _time_functions() -> dict[str, Callable[..., Any]]:
    def seconds(sources: Sources, given: float | None = None) -> float:
        return sources.wall_ns() / 1e9 if given is None else given

    gmtime, strftime, asctime = time.gmtime, time.strftime, time.asctime
    return {
        "time": lambda sources: sources.wall_ns() / 1e9,
        "time_ns": lambda sources: sources.wall_ns(),
        "monotonic": lambda sources: sources.monotonic_s(),
        "monotonic_ns": lambda sources: sources.monotonic_ns(),
        "perf_counter": lambda sources: sources.monotonic_s(),
        "perf_counter_ns": lambda sources: sources.monotonic_ns(),
        "process_time": lambda sources: sources.monotonic_s(),
        "process_time_ns": lambda sources: sources.monotonic_ns(),
        "thread_time": lambda sources: sources.monotonic_s(),
        "thread_time_ns": lambda sources: sources.monotonic_ns(),
        # The time zone of a world is UTC.
        "gmtime": lambda sources, at=None: gmtime(seconds(sources, at)),
        "localtime": lambda sources, at=None: gmtime(seconds(sources, at)),
        "ctime": lambda sources, at=None: asctime(gmtime(seconds(sources, at))),
        "asctime": lambda sources, at=None: asctime(gmtime(seconds(sources)) if at is None else at),
        "strftime": lambda sources, form, at=None: strftime(
            form, gmtime(seconds(sources)) if at is None else at
        ),
    }


_RANDOM_FUNCTIONS = (
    "betavariate",
    "binomialvariate",
    "choice",
    "choices",
    "expovariate",
    "gammavariate",
    "gauss",
    "getrandbits",
    "getstate",
    "lognormvariate",
    "normalvariate",
    "paretovariate",
    "randbytes",
    "randint",
    "random",
    "randrange",
    "sample",
    "seed",
    "setstate",
    "shuffle",
    "triangular",
    "uniform",
    "vonmisesvariate",
    "weibullvariate",
)


def _random_function(name: str) -> Callable[..., Any]:
    def inside(sources: Sources, *args: Any, **options: Any) -> Any:
        return getattr(sources.random, name)(*args, **options)

    return inside


def _seed(self: Any, sources: Sources, a: Any = None, version: int = 2) -> None:
    _real_seed(self, sources.random.getrandbits(128) if a is None else a, version)


_real_seed = random.Random.seed


def _uuid1(sources: Sources, node: int | None = None, clock_seq: int | None = None) -> uuid.UUID:
    # The epoch of version 1 is 1582-10-15, and its unit is 100 ns.
    ticks = sources.wall_ns() // 100 + 0x01B21DD213814000
    sequence = sources.random.getrandbits(14) if clock_seq is None else clock_seq
    if node is None:
        node = 0x020000000000 | crc32(sources.name.encode())
    return uuid.UUID(
        fields=(
            ticks & 0xFFFFFFFF,
            (ticks >> 32) & 0xFFFF,
            (ticks >> 48) & 0x0FFF,
            (sequence >> 8) & 0x3F,
            sequence & 0xFF,
            node,
        ),
        version=1,
    )


_real_signal = signal.signal


def _signal(sources: Sources, number: int, handler: Any) -> Any:
    """Register a handler that is called when the simulation asks the instance to stop."""
    if not sources.is_instance:
        return _real_signal(number, handler)
    before = sources.signals.get(int(number), signal.SIG_DFL)
    sources.signals[int(number)] = handler
    loop = asyncio._get_running_loop()
    if loop is not None:
        if callable(handler):
            loop.add_signal_handler(number, handler, int(number), None)
        else:
            loop.remove_signal_handler(number)
    return before


def _patches() -> list[_Patch]:
    found = [
        _Patch(owner, name, _refusal(getattr(owner, name), sentence))
        for owner, name, sentence in REFUSALS.values()
    ]
    for name, inside in _time_functions().items():
        found.append(_Patch(time, name, _switch(getattr(time, name), inside)))
    for name in _RANDOM_FUNCTIONS:
        if hasattr(random, name):
            inside = _random_function(name)
            found.append(_Patch(random, name, _switch(getattr(random, name), inside)))

    @functools.wraps(_real_seed)
    def seed(self: Any, *args: Any, **options: Any) -> None:
        sources = SOURCES.get()
        if sources is None:
            _real_seed(self, *args, **options)
        else:
            _seed(self, sources, *args, **options)

    def switched(owner: Any, name: str, inside: Callable[..., Any]) -> None:
        found.append(_Patch(owner, name, _switch(getattr(owner, name), inside)))

    found.append(_Patch(random.Random, "seed", seed))
    switched(os, "urandom", lambda sources, size: sources.random.randbytes(size))
    switched(os, "getpid", lambda sources: sources.process_id)
    switched(socket, "gethostname", lambda sources: sources.name)
    switched(socket, "getfqdn", lambda sources, name="": name or sources.name)
    switched(uuid, "uuid1", _uuid1)
    switched(signal, "signal", _signal)
    if hasattr(os, "getrandom"):
        switched(os, "getrandom", lambda sources, size, flags=0: sources.random.randbytes(size))
    found.append(_Patch(datetime, "datetime", WorldDatetime))
    found.append(_Patch(datetime, "date", WorldDate))
    return found


_STABLE_SETS_IN = "aiokafka."
"""Prefix of the modules in which `set` and `frozenset` are replaced during a run."""
_AIOKAFKA = "aiokafka.producer.message_accumulator"


def _aiokafka_patches() -> list[_Patch]:
    """Return the patches of aiokafka: its compiled code reads the real clock, and its client ids
    count the producers of a process."""
    builder = sys.modules[_AIOKAFKA].BatchBuilder
    original = builder.append

    def append(sources: Sources, self: Any, *, timestamp: int | None = None, **options: Any) -> Any:
        if timestamp is None:
            timestamp = sources.wall_ns() // 1_000_000
        return original(self, timestamp=timestamp, **options)

    producer = sys.modules["aiokafka.producer.producer"].AIOKafkaProducer
    return [
        _Patch(builder, "append", _switch(original, append)),
        _Patch(producer, "_PRODUCER_CLIENT_ID_SEQUENCE", 0),
    ]


_PACKAGE_PATCHES: dict[str, Callable[[], list[_Patch]]] = {_AIOKAFKA: _aiokafka_patches}
"""Functions that return the patches for packages that need their own. The key is a module that is
loaded only if the package is loaded."""


class _ImportedNames:
    """References to guarded functions that loaded modules have imported by name."""

    def __init__(self, patches: list[_Patch]) -> None:
        # Methods of classes need no replacement of imported names.
        self._by_id = {
            id(patch.original): patch for patch in patches if isinstance(patch.owner, ModuleType)
        }
        self._scanned: dict[str, int] = {}
        self._found: list[tuple[dict[str, Any], str, _Patch]] = []

    def of_loaded_modules(self) -> list[tuple[dict[str, Any], str, _Patch]]:
        """Return the references to patched functions that loaded modules have imported: the
        namespace of the module, the name of the reference, and the patch. Each module is scanned
        once."""
        by_id = self._by_id
        for module_name, module in list(sys.modules.items()):
            if self._scanned.get(module_name) == id(module) or not isinstance(module, ModuleType):
                continue
            self._scanned[module_name] = id(module)
            if module_name.startswith(_OWN) or module_name.partition(".")[0] in _UNSCANNED:
                continue
            names = vars(module)
            for name, value in list(names.items()):
                patch = by_id.get(id(value))
                if patch is not None and module is not patch.owner:
                    self._found.append((names, name, patch))
        return self._found


_PATCHES = _patches()
_IMPORTED_NAMES = _ImportedNames(_PATCHES)


class _Guard:
    """The replaced functions (guards) of one run, and the patches that were applied."""

    def __init__(self) -> None:
        self._module_count = 0
        self._packages: set[str] = set()
        self._applied: list[_Patch] = []
        self._added_names: list[tuple[dict[str, Any], str]] = []
        self._applied_names: list[tuple[dict[str, Any], str, _Patch]] = []

    def apply(self) -> None:
        """Replace the guarded functions of all loaded modules."""
        for patch in _PATCHES:
            setattr(patch.owner, patch.name, patch.replacement)
        self._applied.extend(_PATCHES)
        self.extend()

    def extend(self) -> None:
        """Apply patches to the modules that were imported after the last call."""
        if len(sys.modules) == self._module_count:
            return
        self._module_count = len(sys.modules)
        for names, name, patch in _IMPORTED_NAMES.of_loaded_modules():
            if names.get(name) is patch.original:
                names[name] = patch.replacement
                self._applied_names.append((names, name, patch))
        for module_name in [name for name in sys.modules if name.startswith(_STABLE_SETS_IN)]:
            names = vars(sys.modules[module_name])
            for name, stable in (("set", StableSet), ("frozenset", StableFrozenSet)):
                if name not in names:
                    names[name] = stable
                    self._added_names.append((names, name))
        for module, patches_of in _PACKAGE_PATCHES.items():
            if module in sys.modules and module not in self._packages:
                self._packages.add(module)
                for patch in patches_of():
                    setattr(patch.owner, patch.name, patch.replacement)
                    self._applied.append(patch)

    def restore(self) -> None:
        """Undo all patches, including patches of modules that were imported during the run."""
        for names, name, patch in self._applied_names:
            names[name] = patch.original
        for names, name in self._added_names:
            del names[name]
        for patch in reversed(self._applied):
            setattr(patch.owner, patch.name, patch.original)
        _restore_late_imports()


_guard: _Guard | None = None
_run_count = 0
"""Number of runs since the last full garbage collection. Failed runs have a larger weight."""


@contextmanager
def guarded(chance: Chance) -> Iterator[None]:
    """Guard the programs in a run during a `with` block, which must contain the whole run.

    The generator behind `random.random` gets a seed as well: default values of parameters may hold
    its methods, and those cannot be replaced.

    During a run, garbage is collected by `collect_garbage` only, because a destructor may act on
    the simulated world. At the end of a run its objects are released, including those of programs
    that were killed or have failed. The exception of a failed run may keep some of them. Python's
    own collections between runs are too rare, so some runs collect garbage at their start. Output
    and warnings of destructors are not shown.
    """
    global _guard, _run_count
    if _guard is not None:
        yield
        return
    _run_count += 1
    if _run_count >= RUNS_PER_COLLECTION:
        _run_count = 0
        contextvars.copy_context().run(_release_in_silence)
    shared: random.Random = random._inst
    state = shared.getstate()
    _real_seed(shared, chance.stream("random").below(1 << 53))
    had_gc = gc.isenabled()
    gc.freeze()
    gc.disable()
    # Destructors of a program that has ended may run at any time: they concern no test.
    hook = sys.unraisablehook
    sys.unraisablehook = _ignore_unraisable
    _guard = _Guard()
    try:
        _guard.apply()
        yield
    finally:
        contextvars.copy_context().run(_release_in_silence)
        _guard.restore()
        _guard = None
        shared.setstate(state)
        sys.unraisablehook = hook
        gc.unfreeze()
        if had_gc:
            gc.enable()


def note_failed_run() -> None:
    """Record that the exception of a run keeps objects of the run, so that garbage is collected
    earlier."""
    global _run_count
    _run_count += FAILED_RUN_WEIGHT


def _restore_late_imports() -> None:
    """Restore the original functions in modules that were imported during the run and contain a
    replacement."""
    originals = {id(patch.replacement): patch.original for patch in _PATCHES}
    for module_name, module in list(sys.modules.items()):
        if module_name in _IMPORTED_NAMES._scanned or not isinstance(module, ModuleType):
            continue
        names = vars(module)
        for name, value in list(names.items()):
            if id(value) in originals and not module_name.startswith(_OWN):
                names[name] = originals[id(value)]


def enter(sources: Sources) -> None:
    """Assign the clocks and random numbers of a process to the current task, and to the tasks that
    it starts."""
    SOURCES.set(sources)
    if _guard is not None:
        _guard.extend()


async def collect_garbage() -> NoReturn:
    """Collect garbage every `COLLECTION_S` seconds of virtual time, until cancelled. A run of
    `guarded` has no other collections, because they would happen at other points in each run."""
    while True:
        await trio.sleep(COLLECTION_S)
        gc.collect(1)


class _DeadSources(Sources):
    """Clocks and random numbers of a killed process. Every call raises an error."""

    is_instance = True

    def monotonic_s(self) -> float:
        """Raise an error, because the process was killed."""
        raise NotInWorldError("this process was killed")


def _ignore_unraisable(_: "sys.UnraisableHookArgs") -> None:
    """Ignore an exception that a destructor has raised."""


def _release_in_silence() -> None:
    """Collect the garbage of earlier runs, and suppress the output of destructors and `finally`
    blocks."""
    # Code of killed lives that runs now must neither sleep nor start something.
    SOURCES.set(_DeadSources("killed", Chance(0)))
    running = asyncio._get_running_loop()
    asyncio._set_running_loop(closed_loop())
    hook, level = sys.unraisablehook, logging.root.manager.disable
    sys.unraisablehook = _ignore_unraisable
    logging.disable(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            redirect_stdout(io.StringIO()),
            redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            ABANDONED.clear()
            # The code of killed lives that runs now leaves objects, too.
            for _ in range(COLLECTIONS_MAX):
                if not gc.collect():
                    break
    finally:
        asyncio._set_running_loop(running)
        logging.disable(level)
        sys.unraisablehook = hook
