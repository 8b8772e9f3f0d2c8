"""The life of a node's process: limits at its start, signals, and the garbage collector.

The first SIGTERM or SIGINT asks for a controlled shutdown; a second one ends the process at once,
which is safe: every file is written so that dying at any byte is recoverable.
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
from ottla.storage.recovery_processes_driver import MAY_START_PROCESSES

SWITCH_INTERVAL_SECONDS = 0.0005
"""How long one thread may hold the GIL.  The default of 5 ms lets a busy loop delay heartbeats on
the gRPC thread; a much shorter one costs throughput."""

GROWTH_LOOK_S = 5.0
"""How often it is looked whether much has come that will stay."""
GROWTH_MIN = 500
"""So many partitions more are worth freezing: a full collection spends 20 to 50 µs on each."""

DESCRIPTORS_AT_START = 32_768
"""Open files that the kernel's table has room for from the start, at 8 bytes each.  It doubles
a smaller one when it is full, and holds the loop for 10 to 20 ms where a process has threads."""

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_PR_SET_PDEATHSIG = 1

_LOGGER = logging.getLogger(__name__)


def prepare_process(*, dies_with_parent: bool = False) -> None:
    """Set what the operating system and the interpreter need to know, before anything runs."""
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    raise_open_files_limit()
    grow_descriptor_table()
    MAY_START_PROCESSES.set(True)
    if dies_with_parent:
        die_with_parent()


def raise_open_files_limit() -> None:
    """Raise the number of open files to what the administrator allows."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def grow_descriptor_table() -> None:
    """Have the kernel make room for many open files at once, while nothing waits for it."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = (DESCRIPTORS_AT_START if soft == resource.RLIM_INFINITY else soft) - 1
    opened = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.close(fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, min(highest, DESCRIPTORS_AT_START - 1)))
    finally:
        os.close(opened)


def die_with_parent() -> None:
    """Have the kernel end this process when its parent ends, however that happens."""
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:  # it ended just before the kernel knew
        os.kill(os.getpid(), signal.SIGTERM)


def keep_out_of_collections() -> None:
    """Take all there is out of the garbage collector's sight: modules, after their import.

    What is garbage among it stays, some hundred KB.  A collection would cost 50 ms of the start.
    """
    gc.freeze()


def freeze_long_lived_objects() -> None:
    """Take what lives as long as the process out of the garbage collector's sight."""
    gc.collect()
    gc.freeze()


async def freeze_as_it_grows(count: Callable[[], int]) -> NoReturn:
    """Freeze again whenever so many more long-lived things are there, by what `count` returns.

    Else each full collection looks at all that came since the start, and holds the loop meanwhile.
    """
    frozen = count()
    while True:
        await trio.sleep(GROWTH_LOOK_S)
        if count() >= frozen + GROWTH_MIN:
            frozen = count()
            # What is young may be garbage; older generations are not walked, that takes too long.
            gc.collect(1)
            gc.freeze()


@asynccontextmanager
async def open_stop_signal() -> AsyncIterator[trio.Event]:
    """Yield an event that the first SIGTERM or SIGINT sets; the second ends the process."""
    is_stopping = trio.Event()
    with trio.open_signal_receiver(*STOP_SIGNALS) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch, signals, is_stopping)
            yield is_stopping
            nursery.cancel_scope.cancel()


async def _watch(signals: AsyncIterator[int], is_stopping: trio.Event) -> None:
    async for number in signals:
        if is_stopping.is_set():
            logging.shutdown()  # lines that wait are written, for a bounded time
            os._exit(128 + number)
        name = signal.Signals(number).name
        _LOGGER.info("stopping, as %s asked", name, extra=event("node.stopping", signal=name))
        is_stopping.set()
