"""Opens the listeners of a controller for gRPC and Kafka's protocol, for the duration of a
block."""

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from ottla.controller.front.front_driver import NAME_PREFIX, UNIX, FrontServer, NodeHosts
from ottla.controller.front.front_seam import ListenerService
from ottla.model.errors import only_error
from ottla.model.limits import MIB
from ottla.model.seams import Clock
from ottla.node.network.connection_limits import ConnectionLimits
from ottla.node.network.dispatch import Dispatcher
from ottla.node.network.server.server_opening_driver import cannot_open, open_socket_server
from ottla.node.network.server.server_seam import Admission, Server
from ottla.rpc.rpc_seam import Rpc
from ottla.storage.disk.disk_seam import Disk

BACKLOG = 4_096
"""Maximum number of unaccepted connections that the kernel queues, as for gRPC's own listeners.
With fewer, many nodes that restart at once wait for repeated SYNs."""

REQUEST_MEMORY_BYTES_MAX = 64 * MIB
"""Maximum bytes of clients' requests in memory: sixteen requests of the largest size. No further
requests are read while this limit is reached."""


@asynccontextmanager
async def open_front(
    services: Sequence[ListenerService],
    dispatcher: Dispatcher,
    *,
    rpc: Rpc,
    clock: Clock,
    disk: Disk,
    limits: ConnectionLimits | None = None,
    admission: Admission | None = None,
) -> AsyncIterator[Server]:
    """Serve gRPC on Unix sockets of this process, open the controller's listeners, and yield their
    server."""
    hosts = NodeHosts()
    names = {one.listener.name: NAME_PREFIX + secrets.token_hex(16) for one in services}
    for one in services:
        await rpc.serve(
            UNIX + names[one.listener.name],
            0,
            one.handlers,
            tls=one.node_tls,
            caller_host=hosts.host_of,
        )
    is_open = False
    try:
        async with open_socket_server(
            [one.listener for one in services],
            dispatcher,
            clock=clock,
            disk=disk,
            limits=limits,
            admission=admission,
            request_memory_bytes_max=REQUEST_MEMORY_BYTES_MAX,
            backlog=BACKLOG,
            kind=partial(FrontServer, grpc_names=names, node_hosts=hosts),
        ) as server:
            is_open = True
            yield server
    except (OSError, BaseExceptionGroup) as group:
        error = only_error(group)
        if is_open or not isinstance(error, OSError):
            raise
        addresses = ", ".join(f"{one.listener.host}:{one.listener.port}" for one in services)
        raise cannot_open(addresses, error) from error
