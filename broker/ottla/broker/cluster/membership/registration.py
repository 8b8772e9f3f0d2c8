"""Builds the registration request of a broker, and warnings about a wrong registration. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, islice
from uuid import UUID

from ottla.metadata.features import OFFERED
from ottla.metadata.image import BrokerRegistration
from ottla.model.ids import TopicIdPartition
from ottla.model.settings.broker import FAILURE_DOMAIN_HOST, BrokerConfig
from ottla.model.settings.endpoints import SECURITY_PROTOCOLS, ListenAddress
from ottla.proto import controller_pb2 as pb
from ottla.proto import metadata_pb2

LOST_REPLICAS_MAX = 10_000
"""Maximum number of replicas with lost records in one registration request. The controller refuses
larger requests."""


def registration_request(
    config: BrokerConfig,
    *,
    cluster_id: str,
    incarnation_id: UUID,
    endpoints: Iterable[ListenAddress],
    host: str,
    directory_ids: Iterable[UUID],
    cordoned_ids: Iterable[UUID],
    previous_broker_epoch: int,
) -> pb.RegisterRequest:
    """Return the request that registers a broker at the controller. `host` is the id of its
    machine, which is a failure domain."""
    return pb.RegisterRequest(
        cluster_id=cluster_id,
        broker_id=config.node_id,
        incarnation_id=incarnation_id.bytes,
        listeners=[
            metadata_pb2.Endpoint(
                name=endpoint.name,
                host=endpoint.host,
                port=endpoint.port,
                security_protocol=SECURITY_PROTOCOLS[endpoint.protocol],
            )
            for endpoint in endpoints
        ],
        features=[
            metadata_pb2.FeatureRange(
                name=name,
                min_supported_version=levels.lowest,
                max_supported_version=levels.highest,
            )
            for name, levels in sorted(OFFERED.items())
        ],
        rack=config.rack,
        host=config.failure_domain_host or host,
        log_dirs=[directory_id.bytes for directory_id in directory_ids],
        previous_broker_epoch=previous_broker_epoch,
        cordoned_log_dirs=[directory_id.bytes for directory_id in cordoned_ids],
        has_authorizer=config.authorizer.is_on,
        is_controller=config.is_controller,
    )


def failure_domain_warnings(
    request: pb.RegisterRequest, others: Iterable[BrokerRegistration], *, has_machine_id: bool
) -> Iterator[str]:
    """Yield a warning for each reason why the machine in a broker's registration may be wrong. The
    check applies to brokers whose settings do not specify the machine.

    Containers may lack a machine id, or share the id of their image. As a result, several replicas
    of a partition could be placed on one machine, or suitable machines could be avoided.
    """
    setting = f"set {FAILURE_DOMAIN_HOST} to the name of the machine"
    if not has_machine_id:
        yield (
            f"this machine has no machine id: broker {request.broker_id} is taken for the only one"
            f" of host {request.host}; if other brokers share the machine, {setting} for all of"
            " them"
        )
    names = {one.host for one in request.listeners}
    for other in others:
        elsewhere = {one.host for one in other.endpoints}
        if other.id != request.broker_id and other.host == request.host and not names & elsewhere:
            yield (
                f"broker {request.broker_id} ({min(names)}) and broker {other.id}"
                f" ({min(elsewhere)}) are taken for brokers of one machine, {request.host}; if they"
                f" are containers of one image on different machines, {setting}"
            )
            return


def registrations_with_losses(
    request: pb.RegisterRequest, lost: Iterable[TopicIdPartition]
) -> list[pb.RegisterRequest]:
    """Return the registration requests of one broker incarnation. Together these requests name all
    its replicas that lost records."""
    waiting = iter(sorted(set(lost)))
    requests = []
    while some := list(islice(waiting, LOST_REPLICAS_MAX)):
        part = pb.RegisterRequest()
        part.CopyFrom(request)
        for topic_id, group in groupby(some, key=lambda one: one.topic_id):
            part.lost_replicas.add(
                topic_id=topic_id.bytes, partitions=[one.partition for one in group]
            )
        requests.append(part)
    return requests or [request]


def advertised_endpoints(
    config: BrokerConfig, bound_ports: Mapping[str, int], hostname: str
) -> list[ListenAddress]:
    """Return the endpoints of this broker for clients. They are taken from `advertised.listeners`,
    or from the listeners if this setting is missing.

    A listener on every interface is advertised with the machine's name. If the system chose the
    port of a listener, the chosen port is advertised.
    """
    advertised = {endpoint.name: endpoint for endpoint in config.advertised_listeners}
    found = []
    for listener in config.listeners:
        endpoint = advertised.get(listener.name, listener)
        found.append(
            endpoint._replace(
                host=endpoint.host or hostname,
                port=endpoint.port or bound_ports.get(listener.name, listener.port),
            )
        )
    return found
