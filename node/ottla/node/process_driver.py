"""Configures the process of a node: resource limits, signals, the garbage collector, and the return
of free memory.

The first SIGTERM or SIGINT starts a controlled shutdown. The second one ends the process at once.
This is safe, because all files can be recovered after a crash at any byte.
"""

import ctypes
import fcntl
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NoReturn

import trio

from ottla.model.log_events import event
from ottla.node.local.forked_process_driver import name_process
from ottla.storage.manager.recovery_processes_driver import MAY_START_PROCESSES

SWITCH_INTERVAL_SECONDS = 0.0005
"""Time in seconds after which a thread must release the GIL if another thread waits for it. With
Python's default of 5 ms, a busy event loop delays heartbeats, which are sent by the gRPC thread. A
much shorter time reduces throughput."""

GROWTH_LOOK_S = 2.0
"""Interval in seconds between checks whether enough new long-lived objects exist to exclude them
from garbage collections. With a shorter interval, more objects that are in use only now are
excluded. With a longer one, free memory is returned later."""
GROWTH_MIN = 500
"""Number of new partitions after which long-lived objects are again excluded from garbage
collections. A full collection spends 20 to 50 µs on each partition that is not excluded."""

DESCRIPTORS_AT_START = 32_768
"""Number of open files for which the kernel allocates the process's table of file descriptors at
the start, at 8 bytes each. When a table is full, the kernel doubles it. In a process with threads,
the enlargement blocks the event loop for 10 to 20 ms."""

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_PR_SET_PDEATHSIG = 1

_LOGGER = logging.getLogger(__name__)


def prepare_process(*, name: str | None = None, dies_with_parent: bool = False) -> None:
    """Configure the process for a node, before any other code of the node runs.

    Sets the name of the process in `ps` and `top`, the limit of open files and the switch interval
    of threads. With `dies_with_parent`, the process ends when its parent ends.
    """
    if name is not None:
        name_process(name)
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    raise_open_files_limit()
    grow_descriptor_table()
    MAY_START_PROCESSES.set(True)
    if dies_with_parent:
        die_with_parent()


def raise_open_files_limit() -> None:
    """Raise this process's limit of open files to the hard limit."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def grow_descriptor_table() -> None:
    """Make the kernel enlarge this process's table of open files now, while no request waits."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = (DESCRIPTORS_AT_START if soft == resource.RLIM_INFINITY else soft) - 1
    opened = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.close(fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, min(highest, DESCRIPTORS_AT_START - 1)))
    finally:
        os.close(opened)


def die_with_parent() -> None:
    """Make the kernel end this process when its parent ends for any reason."""
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:  # the parent ended just before the kernel was asked
        os.kill(os.getpid(), signal.SIGTERM)


def exempt_from_gc() -> None:
    """Exclude all present Python objects, mainly the imported modules, from garbage collections.

    Some hundred KB of garbage among these objects are never freed. Collecting that garbage first
    would delay the start by 50 ms.
    """
    gc.freeze()


def freeze_long_lived_objects() -> None:
    """Collect garbage, exclude all remaining Python objects from later collections, and return free
    memory to the operating system.

    Imports and the start leave 3 MB of free memory in a controller.
    """
    gc.collect()
    gc.freeze()
    trim_memory()


def trim_memory() -> None:
    """Return the allocator's free memory to the operating system, if the C library supports it
    (glibc). For 256 MiB this took 7 ms, during which the GIL was released."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


async def freeze_as_it_grows(
    count: Callable[[], int], trim: Callable[[], None] = trim_memory
) -> NoReturn:
    """Exclude long-lived objects from garbage collections again whenever `count()` has grown by
    GROWTH_MIN, until cancelled. Also return free memory to the operating system, once when the
    growth has ended.

    Otherwise each full collection visits all objects created since the start, and blocks the event
    loop for that time. The creation of objects leaves free memory: 2 MB after 10,000 partitions.
    """
    frozen = count()
    was_growing = False
    while True:
        await trio.sleep(GROWTH_LOOK_S)
        is_growing = count() >= frozen + GROWTH_MIN
        if is_growing:
            frozen = count()
            # Only young generations are collected before the freeze.  Collecting the old one would
            # take too long.
            gc.collect(1)
            gc.freeze()
        elif was_growing:
            await trio.to_thread.run_sync(trim)
        was_growing = is_growing


@asynccontextmanager
async def open_stop_signal() -> AsyncIterator[trio.Event]:
    """Yield an event that the first SIGTERM or SIGINT to this process sets. The second one ends the
    process."""
    is_stopping = trio.Event()
    with trio.open_signal_receiver(*STOP_SIGNALS) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch, signals, is_stopping)
            yield is_stopping
            nursery.cancel_scope.cancel()


async def _watch(signals: AsyncIterator[int], is_stopping: trio.Event) -> None:
    async for number in signals:
        if is_stopping.is_set():
            logging.shutdown()  # Writes the queued lines, within a bounded time.
            os._exit(128 + number)
        name = signal.Signals(number).name
        _LOGGER.info("stopping: received %s", name, extra=event("node.stopping", signal=name))
        is_stopping.set()
