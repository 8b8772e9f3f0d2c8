"""Opens and stops a broker, from reading its settings to sending its last response. The components
are opened in this order:

disk → log directories → gRPC → the listeners (which answer ApiVersions and DescribeNode while the
broker starts) → the object store of tiered storage → the quorum's observer → registration →
recovery of the logs → publishers → unfenced → the handlers of all other requests, ready. They are
stopped in the reverse order, after the controller has moved this broker's leaderships to other
brokers. A broker that ends with an error counts as crashed: no clean-shutdown marker is written.
"""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Protocol

import trio

from ottla.broker.broker_driver import Broker
from ottla.broker.cluster.cluster_apis import register_early_apis
from ottla.broker.cluster.describe_node import DescribeNodeApi
from ottla.broker.cluster.membership.lifecycle import BrokerState, Lifecycle
from ottla.broker.cluster.peer_connection_driver import OWN_CLUSTER
from ottla.broker.listener_admission import ListenerAdmission
from ottla.broker.tier.tier_opening_driver import open_cluster_store
from ottla.client.network.login import LOGIN
from ottla.client.network.tls import TLS
from ottla.metadata.image import EMPTY
from ottla.model.background_driver import keep_running
from ottla.model.errors import ConfigError, only_error
from ottla.model.quotas.rates import WindowShape
from ottla.model.seams import Clock, Rng
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.security.sasl import SASL_PROTOCOLS
from ottla.model.settings.security.tls import TLS_PROTOCOLS
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.model.values import frozen
from ottla.node.admin.connection_bounds import connection_bounds
from ottla.node.admin.metadata_cache import MetadataCache
from ottla.node.authentication.authenticators import Authenticators
from ottla.node.identity import format_directories, quorum_identity, read_meta_properties
from ottla.node.network.connection_limits import ConnectionLimits
from ottla.node.network.connection_quotas import ConnectionQuotas
from ottla.node.network.dispatch import Dispatcher
from ottla.node.network.listener import Listener
from ottla.node.network.server.server_opening_driver import cannot_open, open_socket_server
from ottla.node.network.server.server_seam import OpenServer, Server
from ottla.node.network.tls.certificates_driver import Certificates
from ottla.node.process_driver import (
    freeze_as_it_grows,
    freeze_long_lived_objects,
    open_stop_signal,
)
from ottla.node.quorum.quorum_driver import QuorumMember, open_quorum_member
from ottla.node.seams import Compute, NodeSeams
from ottla.node.seams_driver import real_seams
from ottla.rpc.cluster_id import cluster_id_of_quorum
from ottla.rpc.rpc_seam import Rpc
from ottla.storage.directories.free_space_driver import FreeSpaceMonitor
from ottla.storage.directories.meta_properties import MetaProperties
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.manager.log_manager_driver import LogManager, open_log_manager
from ottla.wire.apis import BROKER_KEYS

logger = logging.getLogger("ottla.broker")


CONNECTIONS_PER_PARTITION = 4
"""Number of open connections that cost Python's garbage collector as much time as one partition."""


class OpenMember(Protocol):
    """Function that runs the controller in the process of a broker, and yields the controller's
    member of the quorum."""

    def __call__(
        self, disk: Disk, rpc: Rpc, free_space: FreeSpaceMonitor | None, /
    ) -> AbstractAsyncContextManager[QuorumMember]:
        """Return a context manager that runs the controller and yields the controller's member of
        the quorum. `free_space` monitors the free space of the metadata directory, if the broker
        measures it."""
        ...


@frozen(kw_only=True)
class OwnController:
    """Controller role of a process that is both a broker and a controller."""

    cluster_id: str
    open_member: OpenMember


async def run_broker(config: BrokerConfig, *, ready: Callable[[], None]) -> None:
    """Run a broker until SIGTERM or SIGINT. Calls `ready` once it serves requests.

    Raises ConfigError or OSError if an operator must correct a fault before the broker can start,
    and RefusedError if the cluster does not accept the broker.
    """
    try:
        async with open_stop_signal() as is_stopping:
            await serve_broker(config, ready=ready, is_stopping=is_stopping)
    except BaseExceptionGroup as group:
        raise only_error(group) from None


async def serve_broker(
    config: BrokerConfig,
    *,
    ready: Callable[[], None],
    is_stopping: trio.Event,
    seams: NodeSeams | None = None,
    errors: UnexpectedErrors | None = None,
    own_controller: OwnController | None = None,
    opened: Callable[[Broker], None] = lambda broker: None,
) -> None:
    """Run a broker until the event `is_stopping` is set. Calls `opened` with the broker before it
    serves requests. Raises the same exceptions as `run_broker`."""
    try:
        async with open_broker(
            config,
            seams=seams,
            errors=errors,
            is_stopping=is_stopping,
            own_controller=own_controller,
        ) as broker:
            opened(broker)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_stop_waiting_when, is_stopping, nursery.cancel_scope)
                await broker.is_ready.wait()
                freeze_long_lived_objects()
                ready()
                nursery.start_soon(freeze_as_it_grows, partial(_long_lived_count, broker))
                await is_stopping.wait()
            await broker.leave()
    except (StoppedEarlyError, BaseExceptionGroup) as group:
        error = only_error(group)
        if not isinstance(error, StoppedEarlyError):
            raise error from None


class StoppedEarlyError(Exception):
    """Raised if a broker is asked to stop before it knows the id of its cluster."""


def _long_lived_count(broker: Broker) -> int:
    """Return the number of long-lived Python objects of a broker, such as the objects of partitions
    and connections. The unit is the number of objects of one partition."""
    return len(broker.table) + broker.server.connection_count // CONNECTIONS_PER_PARTITION


async def _stop_waiting_when(is_stopping: trio.Event, scope: trio.CancelScope) -> None:
    await is_stopping.wait()
    scope.cancel()


@asynccontextmanager
async def open_broker(
    config: BrokerConfig,
    *,
    seams: NodeSeams | None = None,
    open_server: OpenServer = open_socket_server,
    errors: UnexpectedErrors | None = None,
    is_stopping: trio.Event | None = None,
    own_controller: OwnController | None = None,
) -> AsyncIterator[Broker]:
    """Start a broker and yield it. It is stopped at the end of the block.

    `errors` counts unexpected errors of its components. `own_controller` is the controller role of
    the same process; the broker then uses the controller's member of the quorum. Raises
    StoppedEarlyError if `is_stopping` is set before the broker knows its cluster id.
    """
    seams, errors = seams or real_seams(), errors or UnexpectedErrors()
    async with (
        seams.open_disk(sorted({*config.log_dirs, config.metadata_directory})) as disk,
        seams.open_rpc(config.dial_tls) as rpc,
        open_log_manager(
            disk,
            config,
            seams.clock,
            seams.rng,
            cluster_id=(
                joined := own_controller.cluster_id
                if own_controller is not None
                else await _cluster_id(disk, config, rpc, is_stopping)
            ),
            errors=errors,
            runner=seams.cleaning,
        ) as logs,
    ):
        properties = await _metadata_identity(disk, config, logs, seams.rng)
        if own_controller is None:
            opening = await _observer(seams, disk, config, logs, properties, rpc, errors)
        else:
            opening = own_controller.open_member(disk, rpc, _free_space_of_metadata(config, logs))
        lifecycle, authenticators = _starting(), Authenticators(config, seams.rng, seams.clock)
        dispatcher = _guarded_dispatcher(errors, authenticators)
        admission = _listener_admission(config, seams.compute)
        async with (
            _open_server(open_server, config, dispatcher, seams.clock, disk, admission) as server,
            _checked_cluster(config, properties.cluster_id, rpc, lifecycle, dispatcher, joined),
            open_cluster_store(seams, config, properties, disk, errors) as cluster_store,
            opening as member,
            trio.open_nursery() as nursery,
        ):
            broker = Broker(
                config,
                cluster_id=properties.cluster_id,
                clock=seams.clock,
                rng=seams.rng,
                rpc=rpc,
                server=server,
                dispatcher=dispatcher,
                member=member,
                disk=disk,
                logs=logs,
                lifecycle=lifecycle,
                admission=admission,
                authenticators=authenticators,
                cluster_store=cluster_store,
            )
            nursery.start_soon(_run, broker, admission.certificates)
            yield broker
            nursery.cancel_scope.cancel()
        lifecycle.become(BrokerState.SHUTTING_DOWN)
        with trio.CancelScope(shield=True):
            await logs.shutdown_cleanly(lifecycle.broker_epoch)


def _free_space_of_metadata(config: BrokerConfig, logs: LogManager) -> FreeSpaceMonitor | None:
    """Return the free-space monitor of the metadata directory if the directory is also in log.dirs,
    otherwise None. Sharing the monitor avoids a second measurement."""
    path = config.metadata_directory.rstrip("/")
    return next((one.free_space for one in logs.directories if one.path == path), None)


async def _observer(
    seams: NodeSeams,
    disk: Disk,
    config: BrokerConfig,
    logs: LogManager,
    properties: MetaProperties,
    rpc: Rpc,
    errors: UnexpectedErrors,
) -> AbstractAsyncContextManager[QuorumMember]:
    """Return a context manager that opens this broker's observer of the quorum: the member that
    reads the metadata log without a vote."""
    identity = await quorum_identity(
        disk,
        config.metadata_directory,
        properties,
        config.controllers,
        listener=config.controller_listener,
    )
    return open_quorum_member(
        disk=disk,
        metadata_log_dir=config.metadata_directory,
        identity=identity,
        config=config.quorum,
        rpc=rpc,
        clock=seams.clock,
        rng=seams.rng,
        errors=errors,
        disks=config.disks,
        free_space=_free_space_of_metadata(config, logs),
    )


def _listener_admission(config: BrokerConfig, compute: Compute) -> ListenerAdmission:
    """Return the connection quotas and certificates of all listeners, and log each problem with a
    certificate."""
    certificates = Certificates(config, compute)
    for warning in certificates.warnings():
        logger.warning("%s", warning)
    connections = ConnectionQuotas(
        WindowShape(config.quotas.window_count, config.quotas.window_s * 1_000),
        listeners=[endpoint.name for endpoint in config.listeners],
        inter_broker=config.inter_broker_listener,
        bounds=connection_bounds(EMPTY, config.node_id, config.connections),
    )
    return ListenerAdmission(connections, certificates)


async def _run(broker: Broker, certificates: Certificates) -> None:
    # Applies to this task and all tasks it starts: their requests to other brokers use this user.
    OWN_CLUSTER.set(broker.cluster_id)
    LOGIN.set(broker.config.sasl.login)
    TLS.set(certificates.dialer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_running, "certificates", certificates.watch, broker.errors)
        await broker.run()


def _starting() -> Lifecycle:
    lifecycle = Lifecycle()
    lifecycle.become(BrokerState.STARTING)
    return lifecycle


def _guarded_dispatcher(errors: UnexpectedErrors, authenticators: Authenticators) -> Dispatcher:
    """Return a request dispatcher whose guards (checks before a request is handled) check clients'
    logins. The dispatcher is created before any listener is open."""
    dispatcher = Dispatcher(errors=errors)
    dispatcher.guards = authenticators.guards
    return dispatcher


@asynccontextmanager
async def _open_server(
    open_server: OpenServer,
    config: BrokerConfig,
    dispatcher: Dispatcher,
    clock: Clock,
    disk: Disk,
    admission: ListenerAdmission,
) -> AsyncIterator[Server]:
    listeners = [
        Listener(
            name=endpoint.name,
            host=endpoint.host,
            port=endpoint.port,
            tls=admission.certificates.served.get(endpoint.name),
        )
        for endpoint in config.listeners
    ]
    for one, listener in zip(config.listeners, listeners, strict=True):
        assert one.protocol not in SASL_PROTOCOLS or one.name in dispatcher.guards
        assert (one.protocol in TLS_PROTOCOLS) == (listener.tls is not None)
    is_open = False
    try:
        async with open_server(
            listeners,
            dispatcher,
            clock=clock,
            disk=disk,
            limits=ConnectionLimits(
                frame_bytes_max=config.socket_request_bytes_max,
                send_buffer_bytes=config.socket_send_buffer_bytes,
                receive_buffer_bytes=config.socket_receive_buffer_bytes,
            ),
            request_memory_bytes_max=config.queued_max_request_bytes,
            idle_ms_max=config.connections_max_idle_ms,
            backlog=config.socket_listen_backlog_size,
            admission=admission.connections,
        ) as server:
            is_open = True
            yield server
    except (OSError, BaseExceptionGroup) as group:
        error = only_error(group)
        if is_open or not isinstance(error, OSError):
            raise
        addresses = ", ".join(str(endpoint) for endpoint in config.listeners)
        raise cannot_open(addresses, error) from error


async def _cluster_id(
    disk: Disk, config: BrokerConfig, rpc: Rpc, is_stopping: trio.Event | None
) -> str | None:
    """Request the cluster id from the controller quorum and return it. Returns None if a directory
    of this node already stores a cluster id.

    Only a broker may join in this way. A voter with an empty directory may have lost its vote, so
    it must not join.
    """
    for path in sorted({*config.log_dirs, config.metadata_directory}):
        # The log manager handles a directory that cannot be read.
        with suppress(OSError):
            if await read_meta_properties(disk, path) is not None:
                return None
    found: str | None = None
    timeout_ms = config.initial_registration_timeout_ms
    voters = config.controllers
    try:
        async with trio.open_nursery() as nursery:
            if is_stopping is not None:
                nursery.start_soon(_stop_waiting_when, is_stopping, nursery.cancel_scope)
            found = await cluster_id_of_quorum(rpc, voters, timeout_ms=timeout_ms)
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise only_error(group) from None
    if found is None:
        raise StoppedEarlyError
    return found


@asynccontextmanager
async def _checked_cluster(
    config: BrokerConfig,
    cluster_id: str,
    rpc: Rpc,
    lifecycle: Lifecycle,
    dispatcher: Dispatcher,
    joined: str | None,
) -> AsyncIterator[None]:
    """Raise ConfigError if this node's directories belong to another cluster than the controllers.

    `joined` is the cluster id that empty directories have just received from the controllers, or
    None. Such an id is not checked.

    The check precedes all other requests of this node as a member. During the check, DescribeNode
    reports that no controller has answered yet.
    """
    register_early_apis(
        dispatcher,
        config=config,
        cluster_id=cluster_id,
        metadata=MetadataCache(),
        describe_node=DescribeNodeApi(
            node_id=config.node_id,
            state=lambda: lifecycle.state.name,
            recovery=lambda: (),
            problems=lambda: ("no controller of controller.quorum.voters has answered yet",),
            metric_sources=(),
        ),
        coming=BROKER_KEYS,
        offers_telemetry=lambda: False,
    )
    theirs = joined or await cluster_id_of_quorum(
        rpc, config.controllers, timeout_ms=config.initial_registration_timeout_ms
    )
    if theirs != cluster_id:
        raise ConfigError(
            "log.dirs",
            f"{', '.join(config.log_dirs)} belongs to cluster {cluster_id}, but the controllers "
            f"of controller.quorum.voters to {theirs}",
        )
    yield


async def _metadata_identity(
    disk: Disk, config: BrokerConfig, logs: LogManager, rng: Rng
) -> MetaProperties:
    """Return this node's identity (node id and cluster id) from the directory of the metadata
    log."""
    path = config.metadata_directory.rstrip("/")
    for directory in logs.directories:
        if directory.path == path:
            if directory.identity is None:
                raise ConfigError("metadata.log.dir", f"{path}: {directory.failure}")
            return directory.identity
    found = await read_meta_properties(disk, path)
    if found is not None:
        return found
    (cluster_id,) = {one.identity.cluster_id for one in logs.directories if one.identity}
    await format_directories(
        disk, {path: rng.uuid()}, cluster_id=cluster_id, node_id=config.node_id
    )
    found = await read_meta_properties(disk, path)
    assert found is not None
    return found
