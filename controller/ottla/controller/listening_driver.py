"""Opens the listeners of a controller, with their services, connection limits and quotas.

Nodes use gRPC and clients Kafka's protocol, on one port; `front` distinguishes the two protocols.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from ottla.controller.attendance_driver import AttendanceKeeper
from ottla.controller.controller_driver import Controller, make_authorizer
from ottla.controller.controller_service import controller_handlers
from ottla.controller.front.front_metrics import front_families
from ottla.controller.front.front_seam import ListenerService, OpenFront
from ottla.controller.kafka.describe_controllers import KnownControllers
from ottla.controller.kafka.kafka_service import KafkaService
from ottla.controller.local_forwarding_driver import LocalForwarding
from ottla.controller.node_identities import NodeIdentities, accept_any_caller
from ottla.metadata.image import EMPTY
from ottla.model.background_driver import keep_running
from ottla.model.log_events import event
from ottla.model.settings.connections import ConnectionBounds
from ottla.model.settings.controller import ControllerConfig
from ottla.model.settings.endpoints import ListenAddress, is_loopback
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.admin.connection_bounds import ConnectionBoundsPublisher, connection_bounds
from ottla.node.authentication.jwks_driver import KeyReader
from ottla.node.network.alarm_driver import Alarm
from ottla.node.network.connection_limits import ConnectionLimits
from ottla.node.network.connection_quotas import ConnectionQuotas
from ottla.node.network.listener import Listener
from ottla.node.network.tls.certificates_driver import Certificates
from ottla.node.quorum.quorum_driver import QuorumMember
from ottla.node.quotas.idle_driver import IdleUsages
from ottla.node.quotas.quota_metrics import client_families, connection_families
from ottla.node.quotas.quota_publisher import QuotaPublisher
from ottla.node.seams import NodeSeams
from ottla.rpc.cluster_id import cluster_id_handler
from ottla.rpc.controller_methods import FORWARD_BYTES_MAX
from ottla.rpc.method import admitted, guarded
from ottla.rpc.quorum_client import quorum_handlers
from ottla.rpc.rpc_seam import Rpc
from ottla.storage.disk.disk_seam import Disk
from ottla.telemetry.metrics.instruments import Registry

PLAINTEXT_WARNING = (
    "%s is neither encrypted nor authenticated: everyone who reaches it can act as any node and as "
    "any client; give it SSL in listener.security.protocol.map, or keep others off by the network"
)

_LOGGER = logging.getLogger(__name__)


def warn_of_plaintext(listener: ListenAddress) -> None:
    """Log a warning that anyone who reaches the listener may act as a node.  Does nothing if the
    listener is reachable only from this machine."""
    if not is_loopback(listener.host):
        _LOGGER.warning(PLAINTEXT_WARNING, str(listener), extra=event("node.open"))


@asynccontextmanager
async def open_listeners(
    controller: Controller,
    attendances: AttendanceKeeper,
    member: QuorumMember,
    config: ControllerConfig,
    *,
    rpc: Rpc,
    disk: Disk,
    seams: NodeSeams,
    errors: UnexpectedErrors,
    registry: Registry,
    open_front: OpenFront,
) -> AsyncIterator[None]:
    """Open the listeners of a controller, and serve nodes and clients while the block runs.
    `registry` receives the metrics of connections.

    Raises ConfigError if an address cannot be opened or a certificate cannot be used.
    """
    certificates = Certificates(config, seams.compute)
    services = _services(controller, attendances, member, config, seams, certificates, errors)
    kafka = _kafka_service(controller, member, config, seams, errors)
    clock = seams.clock
    alarm = Alarm(clock, lambda: kafka.purgatory.next_deadline_ms, kafka.purgatory.expire)
    kafka.purgatory.on_earlier_deadline = alarm.rearm
    for publisher in kafka.publishers:
        member.add_publisher(publisher)
    kafka.authenticators.follow(member)
    for warning in kafka.authenticators.warnings(
        has_authorizer=config.authorizer.is_on, shows_certificate=True
    ):
        _LOGGER.warning("%s", warning)
    admission = _admission(config)

    def bound_connections(bounds: ConnectionBounds) -> None:
        admission.bounds = bounds

    member.add_publisher(
        ConnectionBoundsPublisher(config.node_id, config.connections, bound_connections)
    )
    member.add_publisher(QuotaPublisher(kafka.quotas, admission))
    keys = KeyReader(kafka.authenticators.key_plans, errors)
    async with (
        trio.open_nursery() as nursery,
        open_front(
            services,
            kafka.dispatcher,
            rpc=rpc,
            clock=clock,
            disk=disk,
            limits=_limits(config),
            admission=admission,
        ) as server,
    ):
        if server is not None:
            registry.register(lambda: front_families(server.metrics))
            registry.register(lambda: kafka.dispatcher.times.families(clock.monotonic_ms()))
            registry.register(lambda: client_families(kafka.quotas, clock.monotonic_ms()))
            registry.register(lambda: connection_families(admission, clock.monotonic_ms()))
        for name, work in (
            ("alarm of waiting requests", alarm.run),
            ("certificates", certificates.watch),
            ("keys of tokens", keys.run),
            ("idle quotas", IdleUsages(clock, kafka.quotas, admission).run),
        ):
            nursery.start_soon(keep_running, name, work, errors)
        yield
        nursery.cancel_scope.cancel()


def _limits(config: ControllerConfig) -> ConnectionLimits:
    """Return the limits that apply to each connection of a client to this controller."""
    return ConnectionLimits(
        frame_bytes_max=min(config.socket_request_bytes_max, FORWARD_BYTES_MAX),
        send_buffer_bytes=config.socket_send_buffer_bytes,
        receive_buffer_bytes=config.socket_receive_buffer_bytes,
    )


def _services(
    controller: Controller,
    attendances: AttendanceKeeper,
    member: QuorumMember,
    config: ControllerConfig,
    seams: NodeSeams,
    certificates: Certificates,
    errors: UnexpectedErrors,
) -> list[ListenerService]:
    """Return the listeners of a controller, each with the gRPC handlers for nodes and the TLS
    settings for nodes and clients."""
    handlers = guarded(
        [
            *quorum_handlers(member.answer),
            *controller_handlers(controller, attendances),
            cluster_id_handler(member.identity.cluster_id),
        ],
        errors,
    )
    identities = NodeIdentities(
        lambda: member.identity.voters,
        lambda: controller.known_image,
        make_authorizer(config, seams.clock),
    )
    services = []
    for one in config.listeners:
        tls = config.tls.get(one.name)
        admit = accept_any_caller if tls is None else identities.admit
        if tls is None:
            warn_of_plaintext(one)
        served = certificates.served.get(one.name)
        listener = Listener(name=one.name, host=one.host, port=one.port, tls=served)
        services.append(ListenerService(listener, admitted(handlers, admit), tls))
    return services


def _admission(config: ControllerConfig) -> ConnectionQuotas:
    """Return the quotas on clients' connections to this controller. Connections of nodes are not
    counted."""
    return ConnectionQuotas(
        config.quota_windows,
        listeners=[one.name for one in config.listeners],
        inter_broker=config.inter_broker_listener,
        bounds=connection_bounds(EMPTY, config.node_id, config.connections),
    )


def _kafka_service(
    controller: Controller,
    member: QuorumMember,
    config: ControllerConfig,
    seams: NodeSeams,
    errors: UnexpectedErrors,
) -> KafkaService:
    """Return the service for Kafka's clients of this controller."""

    def known_controllers() -> KnownControllers:
        return KnownControllers(
            member.image.controllers.values(), member.identity.voters, member.leader_id
        )

    return KafkaService(
        config,
        cluster_id=member.identity.cluster_id,
        clock=seams.clock,
        rng=seams.rng,
        errors=errors,
        forwarding=LocalForwarding(controller, lambda: member.leader_id),
        authorizer=make_authorizer(config, seams.clock),
        known_controllers=known_controllers,
    )
