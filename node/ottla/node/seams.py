"""What a node stands on: time, chance, files, and the way to other nodes.

Pure.  `real_seams` (seams_driver.py) is the machine's own; the deterministic world has another.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

from ottla.model.seams import Clock, Rng
from ottla.model.values import frozen
from ottla.node.address_probe import Probe, probe_nothing
from ottla.rpc.rpc_seam import OpenRpc
from ottla.storage.cleaner.cleaning_runner import CleaningRunner
from ottla.storage.disk_seam import Disk

R = TypeVar("R")

OpenDisk = Callable[[Sequence[str]], AbstractAsyncContextManager[Disk]]
"""Opens the disk that holds these directories, with a worker for each."""


class Compute(Protocol):
    """Runs a function that may take long and changes nothing, and returns what it does."""

    async def __call__(self, function: Callable[[], R], /) -> R:
        """Run it; what it raises is raised."""
        ...


async def compute_inline(function: Callable[[], R]) -> R:
    """Run a function where it is called, as worlds without threads do."""
    return function()


@frozen(kw_only=True)
class NodeSeams:
    """All that one node has of the world around it, but its clients."""

    clock: Clock
    rng: Rng
    open_disk: OpenDisk
    open_rpc: OpenRpc
    probe: Probe = probe_nothing
    """Finds out whether a process that was there is gone."""
    compute: Compute = compute_inline
    """For what would hold the loop too long."""
    cleaning: CleaningRunner | None = None
    """Compacts logs; without one that is done in place."""
