"""What a node of a real machine stands on: the kernel, and gRPC."""

from collections.abc import Callable
from typing import TypeVar

import trio

from ottla.node.address_probe_driver import probe_address
from ottla.node.clock_driver import RealClock, RealRng
from ottla.node.seams import NodeSeams
from ottla.rpc.rpc_driver import open_rpc_runtime
from ottla.storage.cleaner.worker_pool_driver import WorkerPool
from ottla.storage.disk import RealDisk

R = TypeVar("R")


async def compute_in_thread(function: Callable[[], R]) -> R:
    """Run a function in a thread, so that the loop serves everybody else meanwhile.

    A caller that is cancelled leaves it to itself: it changes nothing, and may read files where
    nothing answers.
    """
    return await trio.to_thread.run_sync(function, abandon_on_cancel=True)


def real_seams() -> NodeSeams:
    """Return the machine's own seams."""
    return NodeSeams(
        clock=RealClock(),
        rng=RealRng(),
        open_disk=RealDisk,
        open_rpc=open_rpc_runtime,
        probe=probe_address,
        compute=compute_in_thread,
        cleaning=WorkerPool(),
    )
