"""Listeners of a simulated controller: they serve the remote procedures of other nodes at the
controller's address, and no Kafka clients."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from ottla.controller.front.front_seam import ListenerService
from ottla.model.seams import Clock
from ottla.node.network.connection_limits import ConnectionLimits
from ottla.node.network.dispatch import Dispatcher
from ottla.node.network.server.server_seam import Admission
from ottla.rpc.rpc_seam import Rpc
from ottla.storage.disk.disk_seam import Disk


@asynccontextmanager
async def serve_nodes(
    services: Sequence[ListenerService],
    dispatcher: Dispatcher,
    *,
    rpc: Rpc,
    clock: Clock,
    disk: Disk,
    limits: ConnectionLimits | None = None,
    admission: Admission | None = None,
) -> AsyncIterator[None]:
    """Serve the remote procedures for other nodes while the block runs. No client connects to a
    simulated controller."""
    for one in services:
        await rpc.serve(one.listener.host, one.listener.port, one.handlers, tls=one.node_tls)
    yield
