"""What a node stands on: time, chance, files, and the way to other nodes.

Pure.  `real_seams` (seams_driver.py) is the machine's own; the deterministic world has another.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from ottla.model.seams import Clock, Rng
from ottla.rpc.rpc_seam import OpenRpc
from ottla.storage.disk_seam import Disk

OpenDisk = Callable[[Sequence[str]], AbstractAsyncContextManager[Disk]]
"""Opens the disk that holds these directories, with a worker for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSeams:
    """All that one node has of the world around it, but its clients."""

    clock: Clock
    rng: Rng
    open_disk: OpenDisk
    open_rpc: OpenRpc
