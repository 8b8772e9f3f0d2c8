"""Interfaces of a node to its environment, implemented for a real machine with the kernel and
gRPC."""

from collections.abc import Callable
from typing import TypeVar

import trio

from ottla.node.address_probe_driver import probe_address
from ottla.node.clock_driver import RealClock, RealRng
from ottla.node.seams import NodeSeams
from ottla.rpc.rpc_driver import open_rpc_runtime
from ottla.storage.cleaner.worker_pool_driver import WorkerPool
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.tier.obstore_driver import open_object_store

R = TypeVar("R")


async def compute_in_thread(function: Callable[[], R]) -> R:
    """Return the result of a function, called in a worker thread so that the event loop is not
    blocked.

    If the caller is cancelled, the function continues in its thread, because a device that does not
    respond may block it for long. This is safe, because the function has no side effects.
    """
    return await trio.to_thread.run_sync(function, abandon_on_cancel=True)


def real_seams() -> NodeSeams:
    """Return the implementations of all interfaces of a node to its environment, for a real
    machine."""
    return NodeSeams(
        clock=RealClock(),
        rng=RealRng(),
        open_disk=RealDisk,
        open_rpc=open_rpc_runtime,
        probe=probe_address,
        compute=compute_in_thread,
        cleaning=WorkerPool(),
        open_object_store=open_object_store,
    )
