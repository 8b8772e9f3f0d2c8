"""Listeners of a simulated controller: they serve the remote procedures of other nodes at the
controller's address, and, if a subject has clients of controllers, Kafka's protocol at another
port."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from ottla.controller.front.front_seam import ListenerService, OpenFront
from ottla.jepsen.world.whole.net.server import server_opener
from ottla.jepsen.world.whole.net.streams import Ports
from ottla.model.seams import Clock
from ottla.node.network.connection_limits import ConnectionLimits
from ottla.node.network.dispatch import Dispatcher
from ottla.node.network.server.server_seam import Admission, Server
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
    """Serve the remote procedures for other nodes, and no Kafka clients, while the `async with`
    block runs."""
    for one in services:
        await rpc.serve(one.listener.host, one.listener.port, one.handlers, tls=one.node_tls)
    yield


def front_opener(ports: Ports, kafka_port: int) -> OpenFront:
    """Return a function that opens the listeners of a controller. Kafka's protocol has the separate
    port `kafka_port`, because a simulated port has one protocol only."""
    open_server = server_opener(ports)

    @asynccontextmanager
    async def serve_nodes_and_clients(
        services: Sequence[ListenerService],
        dispatcher: Dispatcher,
        *,
        rpc: Rpc,
        clock: Clock,
        disk: Disk,
        limits: ConnectionLimits | None = None,
        admission: Admission | None = None,
    ) -> AsyncIterator[Server | None]:
        listeners = [replace(one.listener, port=kafka_port) for one in services]
        async with (
            serve_nodes(services, dispatcher, rpc=rpc, clock=clock, disk=disk),
            open_server(
                listeners,
                dispatcher,
                clock=clock,
                disk=disk,
                limits=limits,
                admission=admission,
            ) as server,
        ):
            yield server

    return serve_nodes_and_clients
