"""Interfaces of a node to its environment: time, random numbers, files, and the network to other
nodes.

Pure. `real_seams` (seams_driver.py) returns the implementations for a real machine; the simulation
has its own.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

from ottla.model.seams import Clock, Rng
from ottla.model.values import frozen
from ottla.node.address_probe import Probe, probe_nothing
from ottla.rpc.rpc_seam import OpenRpc
from ottla.storage.cleaner.cleaning_runner import CleaningRunner
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.tier.memory_store import open_memory_store
from ottla.storage.tier.store_settings import OpenObjectStore

R = TypeVar("R")

OpenDisk = Callable[[Sequence[str]], AbstractAsyncContextManager[Disk]]
"""Function that opens an interface to the disks of several directories, with one worker thread for
each directory."""


class Compute(Protocol):
    """Interface of a function that runs a pure function, which may take long, and returns its
    result."""

    async def __call__(self, function: Callable[[], R], /) -> R:
        """Call a function, and return its result. Raises the exceptions of the function."""
        ...


async def compute_inline(function: Callable[[], R]) -> R:
    """Call a function directly and return its result, in environments without threads."""
    return function()


@frozen(kw_only=True)
class NodeSeams:
    """All interfaces of a node to its environment (time, files, other nodes), except for its
    clients."""

    clock: Clock
    rng: Rng
    open_disk: OpenDisk
    open_rpc: OpenRpc
    probe: Probe = probe_nothing
    """Function that detects whether the process that listened at a peer's address has ended."""
    compute: Compute = compute_inline
    """Function that runs other functions whose computation would block the event loop for too
    long."""
    cleaning: CleaningRunner | None = None
    """Runner that compacts partition logs in another process. If None, logs are compacted in this
    process."""
    open_object_store: OpenObjectStore = open_memory_store
    """Function that opens the object store of tiered storage."""
