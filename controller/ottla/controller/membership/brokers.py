"""States of brokers and their transitions: registered, unfenced, fenced, shutting down,
unregistered.

Pure, except that the caller's `BrokerSessions` (sessions.py) are changed. If a broker is fenced,
the changes of its partitions are written before the change of the broker; if it is unfenced, they
are written afterwards. Therefore, if a decision is interrupted between two batches, no partition
has a leader that must not lead. The decision is made again at the broker's next heartbeat, or at
the next check for expired sessions. Invariants:
- OneLiveIncarnation: a second process cannot take over the id of a live broker.
- LeadersAreActive: a broker that is fenced or shutting down leads no partition.
- EpochOfRegistration: a broker epoch is the offset of the record that registered the broker, so it
  increases with every incarnation.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from enum import Enum
from itertools import islice
from uuid import UUID

from ottla.controller.broker_epochs import registered
from ottla.controller.decision import (
    APPEND_RECORDS_MAX,
    Context,
    Decision,
    Draft,
    decided,
    request_uuid,
)
from ottla.controller.membership.sessions import SILENCE_MS, BrokerSessions
from ottla.controller.replication.elections import (
    broker_available,
    brokers_unavailable,
    replicas_lost,
)
from ottla.controller.settings_in_force import is_elr_enabled
from ottla.metadata.directories import is_reserved
from ottla.metadata.image import BrokerRegistration, Endpoint, FeatureRange, MetadataImage
from ottla.metadata.records import (
    Record,
    broker_change_record,
    register_broker_record,
    unregister_broker_record,
)
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NO_OFFSET, NodeId, Offset, TopicIdPartition
from ottla.model.limits import INT16_MAX
from ottla.model.settings.controller import ControllerConfig
from ottla.model.settings.endpoints import PORT_MAX, is_host
from ottla.model.settings.security.authorizer import AUTHORIZER_CLASS
from ottla.proto import controller_pb2 as pb
from ottla.raft.voters import QuorumIdentity
from ottla.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from ottla.wire.messages.unregister_broker_response import UnregisterBrokerResponse

REGISTRATION_LIST_MAX = 1_000
"""Maximum number of listeners, of features or of directories in one broker's registration. It
exceeds the number of disks of any machine."""

SECURITY_PROTOCOL_MAX = 3
"""Highest number of a security protocol: Kafka's number of SASL_SSL."""

NAME_CHARS_SHOWN = 80
"""Maximum number of characters of a listener's name that an error message contains."""

LOST_REPLICAS_MAX = 10_000
"""Maximum number of lost replicas that a broker reports in one registration, because each may
change a partition in the same batch. A broker with more lost replicas reports the remaining ones in
further registrations of the same incarnation."""


class BrokerControlState(Enum):
    """State of a broker, as decided by the controller: it determines the broker's permitted
    actions."""

    FENCED = "registered; leads nothing, is in no ISR"
    UNFENCED = "takes part"
    CONTROLLED_SHUTDOWN = "is being freed of its leaderships"
    SHUTDOWN_NOW = "may stop"


def register(
    image: MetadataImage,
    config: ControllerConfig,
    sessions: BrokerSessions,
    request: pb.RegisterRequest,
    *,
    identity: QuorumIdentity,
    next_offset: Offset,
    now_ms: int,
) -> Decision[pb.RegisterResponse]:
    """Return the decision that registers a broker, or changes the registration of the same
    incarnation.

    `next_offset` is the offset of the decision's first record. A broker that does not report its
    previous broker epoch has stopped uncleanly and may have lost records. It is then removed from
    all ISRs and all sets of eligible replicas (KIP-966). If eligible replicas are disabled, its
    partitions change only as if it were fenced. Replicas that the broker reports as lost are
    treated as out of sync from this decision on, after any kind of shutdown.
    """
    known = image.brokers.get(NodeId(request.broker_id))
    wanted = _read(request)
    _check_authorizer(config, request)
    if known is not None:
        _check_principal(known, request)
    _check_registration(image, request, wanted, identity)
    lost = _read_lost_replicas(request)
    draft = Draft(image)
    if known is not None and known.incarnation_id == wanted.incarnation_id:
        wanted = replace(
            wanted,
            epoch=known.epoch,
            is_fenced=known.is_fenced,
            in_controlled_shutdown=known.in_controlled_shutdown,
        )
    else:
        if known is not None:
            if sessions.is_valid(known, now_ms) and not _has_ended(sessions, known, wanted, now_ms):
                _refuse_second_incarnation(known)
            was_clean = request.previous_broker_epoch == known.epoch
            is_unclean = is_elr_enabled(image) and not was_clean
            draft.add(brokers_unavailable(image, config, (known.id,), is_unclean=is_unclean))
    draft.add(replicas_lost(draft.image, config, wanted.id, lost))
    if wanted.epoch == NO_OFFSET:
        wanted = replace(wanted, epoch=Offset(next_offset + len(draft.records)))
    draft.add([register_broker_record(wanted)])
    sessions.touch(wanted.id, wanted.epoch, NO_OFFSET, now_ms)
    return draft.decision(pb.RegisterResponse(broker_epoch=wanted.epoch))


def heartbeat(
    image: MetadataImage,
    config: ControllerConfig,
    sessions: BrokerSessions,
    request: pb.HeartbeatRequest,
    *,
    next_offset: Offset,
    now_ms: int,
) -> Decision[pb.HeartbeatResponse]:
    """Return the decision that moves a broker to the state that its heartbeat requests, if
    permitted."""
    steady = steady_heartbeat(image, sessions, request, now_ms=now_ms)
    if steady is not None:
        return decided(image, (), steady)
    broker = registered(image, request.broker_id, request.broker_epoch)
    session = sessions.of(broker)
    offline = _newly_offline(broker, request)
    draft = Draft(image)
    draft.add(_directories_go_offline(image, config, broker, offline))
    broker = draft.image.brokers[broker.id]
    if (cordoned := _newly_cordoned(broker, request)) is not None:
        draft.add([broker_change_record(broker, cordoned_log_dirs=cordoned)])
        broker = draft.image.brokers[broker.id]
    if broker.in_controlled_shutdown and session.shutdown_offset is None:
        # Another controller began the shutdown, so other brokers may not have seen its partition
        # changes yet.
        session.shutdown_offset = Offset(next_offset - 1)
    state = next_state(draft.image, sessions, broker, request, session.shutdown_offset)
    draft.add(_enter(draft.image, config, broker, state))
    if state is BrokerControlState.CONTROLLED_SHUTDOWN and session.shutdown_offset is None:
        session.shutdown_offset = Offset(next_offset + len(draft.records) - 1)
    elif state in (BrokerControlState.FENCED, BrokerControlState.UNFENCED):
        session.shutdown_offset = None
    elif state is BrokerControlState.SHUTDOWN_NOW:
        # The broker has shut down, so its next incarnation need not wait until this session ends.
        sessions.forget(broker.id)
    return draft.decision(_heartbeat_reply(broker, request, state))


def steady_heartbeat(
    image: MetadataImage,
    sessions: BrokerSessions,
    request: pb.HeartbeatRequest,
    *,
    now_ms: int,
) -> pb.HeartbeatResponse | None:
    """Renew a broker's session. Returns the reply, or None if the heartbeat also requires another
    change.

    The reply depends only on the broker's registration, and reports no new decision, so it needs no
    commit by a majority. A controller that has lost its majority without noticing may also send the
    reply, until its quorum member resigns (1.5 fetch timeouts, much less than a session). Brokers
    intentionally continue to serve clients in that time.
    """
    broker = registered(image, request.broker_id, request.broker_epoch)
    metadata_offset = Offset(request.current_metadata_offset)
    session = sessions.touch(broker.id, broker.epoch, metadata_offset, now_ms)
    has_produced = request.HasField("produce_p99_us")
    session.produce_p99_us = request.produce_p99_us if has_produced else None
    if broker.in_controlled_shutdown or request.want_shut_down or _newly_offline(broker, request):
        return None
    if _newly_cordoned(broker, request) is not None:
        return None
    state = next_state(image, sessions, broker, request, shutdown_offset=None)
    if broker.is_fenced != (state is BrokerControlState.FENCED):
        return None
    session.shutdown_offset = None
    return _heartbeat_reply(broker, request, state)


def _newly_offline(broker: BrokerRegistration, request: pb.HeartbeatRequest) -> tuple[UUID, ...]:
    named = set(map(request_uuid, request.offline_log_dirs))
    return tuple(found for found in broker.log_dirs if found in named)


def _newly_cordoned(
    broker: BrokerRegistration, request: pb.HeartbeatRequest
) -> tuple[UUID, ...] | None:
    """Return the cordoned log directories of a broker, which accept no new replicas, or None if the
    broker's heartbeat does not change the set of these directories."""
    if not request.HasField("cordoned_log_dirs"):
        return None
    named = set(map(request_uuid, request.cordoned_log_dirs.ids))
    cordoned = tuple(found for found in broker.log_dirs if found in named)
    return None if set(cordoned) == set(broker.cordoned_log_dirs) else cordoned


def _heartbeat_reply(
    broker: BrokerRegistration, request: pb.HeartbeatRequest, state: BrokerControlState
) -> pb.HeartbeatResponse:
    return pb.HeartbeatResponse(
        is_caught_up=request.current_metadata_offset >= broker.epoch,
        is_fenced=state in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW),
        should_shut_down=state is BrokerControlState.SHUTDOWN_NOW,
    )


def next_state(
    image: MetadataImage,
    sessions: BrokerSessions,
    broker: BrokerRegistration,
    request: pb.HeartbeatRequest,
    shutdown_offset: Offset | None,
) -> BrokerControlState:
    """Return the state (such as fenced or shutting down) to which a heartbeat moves its broker."""
    if broker.is_fenced:
        if request.want_shut_down:
            return BrokerControlState.SHUTDOWN_NOW
        if not request.want_fence and request.current_metadata_offset >= broker.epoch:
            return BrokerControlState.UNFENCED
        return BrokerControlState.FENCED
    if broker.in_controlled_shutdown:
        if _leads_anything(image, broker.id):
            return BrokerControlState.CONTROLLED_SHUTDOWN
        lowest = sessions.lowest_active_offset(image)
        assert shutdown_offset is not None
        if lowest is None or lowest >= shutdown_offset:
            return BrokerControlState.SHUTDOWN_NOW
        return BrokerControlState.CONTROLLED_SHUTDOWN
    if request.want_fence:
        return (
            BrokerControlState.SHUTDOWN_NOW if request.want_shut_down else BrokerControlState.FENCED
        )
    if request.want_shut_down:
        leads = _leads_anything(image, broker.id)
        return BrokerControlState.CONTROLLED_SHUTDOWN if leads else BrokerControlState.SHUTDOWN_NOW
    return BrokerControlState.UNFENCED


def fence_expired(
    image: MetadataImage,
    config: ControllerConfig,
    sessions: BrokerSessions,
    now_ms: int,
    *,
    changes_max: int = APPEND_RECORDS_MAX,
) -> Decision[tuple[NodeId, ...]]:
    """Return the decision that fences the brokers whose sessions have expired, after electing new
    leaders for their partitions.

    The reply lists the brokers that were fenced. If more than `changes_max` partitions have to
    change, the decision changes only `changes_max` partitions and fences no broker; the caller then
    requests another decision. One decision therefore never blocks the event loop for long.
    """
    expired = sessions.expired(image, now_ms)
    ids = tuple(broker.id for broker in expired)
    changes = tuple(islice(brokers_unavailable(image, config, ids), changes_max))
    if len(changes) == changes_max:
        return decided(image, changes, ())
    return decided(image, (*changes, *map(_fencing, expired)), ids)


def unregister(image: MetadataImage, config: ControllerConfig, broker_id: int) -> Decision[None]:
    """Return the decision that deletes a broker's registration. A broker that is still alive then
    registers again.

    Raises RefusedError if the broker is not registered.
    """
    broker = image.brokers.get(NodeId(broker_id))
    if broker is None:
        raise RefusedError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered"
        )
    # A broker that later registers under this id may have empty disks, so it must not be an
    # eligible replica of any partition.
    leaving = brokers_unavailable(image, config, (broker.id,), is_unclean=is_elr_enabled(image))
    return decided(image, (*leaving, unregister_broker_record(broker)), None)


def unregister_broker(
    image: MetadataImage, context: Context, request: UnregisterBrokerRequest
) -> Decision[UnregisterBrokerResponse]:
    """Return the decision on a client's UnregisterBroker request, which deletes a broker's
    registration.

    Raises RefusedError if the broker is not registered.
    """
    decision = unregister(image, context.config, request.broker_id)
    return decision.with_reply(UnregisterBrokerResponse(error_message=None))


def _read(request: pb.RegisterRequest) -> BrokerRegistration:
    return BrokerRegistration(
        id=NodeId(request.broker_id),
        epoch=NO_OFFSET,
        incarnation_id=request_uuid(request.incarnation_id),
        endpoints=tuple(
            Endpoint(found.name, found.host, found.port, found.security_protocol)
            for found in request.listeners
        ),
        features=tuple(
            FeatureRange(found.name, found.min_supported_version, found.max_supported_version)
            for found in request.features
        ),
        rack=request.rack if request.HasField("rack") else None,
        host=request.host if request.HasField("host") else None,
        log_dirs=tuple(map(request_uuid, request.log_dirs)),
        cordoned_log_dirs=tuple(map(request_uuid, request.cordoned_log_dirs)),
        principal=request.principal,
    )


def _read_lost_replicas(request: pb.RegisterRequest) -> list[TopicIdPartition]:
    if sum(len(topic.partitions) for topic in request.lost_replicas) > LOST_REPLICAS_MAX:
        _invalid(f"More than {LOST_REPLICAS_MAX} lost replicas in one request")
    found: dict[TopicIdPartition, None] = {}
    for topic in request.lost_replicas:
        topic_id = request_uuid(topic.topic_id)
        found.update((TopicIdPartition(topic_id, index), None) for index in topic.partitions)
    return list(found)


def _check_registration(
    image: MetadataImage,
    request: pb.RegisterRequest,
    wanted: BrokerRegistration,
    identity: QuorumIdentity,
) -> None:
    if request.cluster_id != identity.cluster_id:
        raise RefusedError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {identity.cluster_id}, but got cluster ID {request.cluster_id}",
        )
    if wanted.id < 0:
        _invalid(f"Invalid node id {wanted.id}")
    lists = (wanted.endpoints, wanted.features, wanted.log_dirs, wanted.cordoned_log_dirs)
    if max(map(len, lists)) > REGISTRATION_LIST_MAX:
        _invalid(f"More than {REGISTRATION_LIST_MAX} listeners, features or directories")
    if identity.voters.get(wanted.id) is not None and not request.is_controller:
        _invalid(f"Node id {wanted.id} is a controller's; give this broker another node.id")
    if not wanted.endpoints:
        _invalid("No listeners specified in request")
    _check_endpoints(wanted)
    if not wanted.log_dirs:
        _invalid("No directories specified in request")
    if not set(wanted.cordoned_log_dirs) <= set(wanted.log_dirs):
        _invalid("Cordoned directories that are not among the directories in request")
    if len(set(wanted.log_dirs)) != len(wanted.log_dirs):
        _invalid("Duplicate directory ID in request")
    for directory in wanted.log_dirs:
        if is_reserved(directory):
            _invalid(f"Reserved directory ID {directory} in request")
    for other in image.brokers.values():
        shared = set(wanted.log_dirs).intersection(other.log_dirs)
        if other.id != wanted.id and shared:
            _invalid(f"Broker {other.id} is already registered with directory {min(shared)}")
    ranges = {found.name: found for found in wanted.features}
    for name, level in image.features.items():
        found = ranges.get(name, FeatureRange(name, 0, 0))
        if not found.lowest <= level <= found.highest:
            raise RefusedError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} "
                f"of {name}. The broker wants a version between {found.lowest} and "
                f"{found.highest}, inclusive.",
            )


def _check_endpoints(wanted: BrokerRegistration) -> None:
    """Raise RefusedError if a broker's registration has addresses that clients cannot read or
    resolve. Every Metadata response would contain these addresses."""
    names = [endpoint.name for endpoint in wanted.endpoints]
    if len(set(names)) != len(names):
        _invalid("Duplicate listener name in request")
    for name, host, port, protocol in wanted.endpoints:
        if not is_host(host):
            _invalid(f"Listener {name[:NAME_CHARS_SHOWN]} advertises no valid host name or address")
        if not 0 < port <= PORT_MAX:
            _invalid(f"Listener {name[:NAME_CHARS_SHOWN]} advertises no port, but {port}")
        if not 0 <= protocol <= SECURITY_PROTOCOL_MAX:
            _invalid(f"Listener {name[:NAME_CHARS_SHOWN]} has no security protocol, but {protocol}")
    texts = (*names, wanted.rack or "", wanted.host or "")
    if max(len(text.encode()) for text in texts) > INT16_MAX:
        _invalid(f"A listener's name, rack or host of more than {INT16_MAX} bytes")


def _invalid(message: str) -> None:
    raise RefusedError(ErrorCode.INVALID_REGISTRATION, message)


def _check_authorizer(config: ControllerConfig, request: pb.RegisterRequest) -> None:
    """Raise RefusedError for a broker that has an authorizer if this controller has none, because
    this controller would then allow any request."""
    if request.has_authorizer and not config.authorizer.is_on:
        raise RefusedError(
            ErrorCode.INVALID_REGISTRATION,
            f"Broker {request.broker_id} has {AUTHORIZER_CLASS}, and controller {config.node_id} "
            "has not, so it would do for every client what the broker does not decide. Set it on "
            "all controllers first.",
        )


def _check_principal(known: BrokerRegistration, request: pb.RegisterRequest) -> None:
    """Raise RefusedError if the request's certificate is neither the certificate with which the
    broker's id was registered nor one that contains the id.

    A sender without a principal used a plaintext listener, where ids are not bound to certificates.
    """
    if request.is_named_by_certificate or not (known.principal and request.principal):
        return
    if known.principal != request.principal:
        raise RefusedError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"Broker ID {known.id} was registered by {known.principal}, and {request.principal} "
            "asks for it. Use that certificate, or one that names the id, or unregister the "
            "broker first.",
        )


def _has_ended(
    sessions: BrokerSessions, known: BrokerRegistration, wanted: BrokerRegistration, now_ms: int
) -> bool:
    """Return whether the known incarnation of a broker has ended although its session has not
    expired.

    The new incarnation must have one of the known incarnation's log directories, because a
    directory is locked by one process at a time. A copy of a directory has no such lock, so the
    known incarnation must also be silent, in one of two ways:
    - It has sent nothing since this controller became active. A living broker sends a heartbeat
      within one interval.
    - Its call was cut off, and it has not called again for `SILENCE_MS`.

    Kafka waits for the session timeout.
    """
    is_silent = (
        sessions.contact_count(known.id) == 0 or sessions.silent_ms(known.id, now_ms) >= SILENCE_MS
    )
    return is_silent and not set(known.log_dirs).isdisjoint(wanted.log_dirs)


def _refuse_second_incarnation(known: BrokerRegistration) -> None:
    if not known.in_controlled_shutdown:
        raise RefusedError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"Another broker is registered with broker ID {known.id}. If the broker was recently "
            "restarted this should self-resolve once its session expires.",
        )


def _leads_anything(image: MetadataImage, broker: NodeId) -> bool:
    return any(state.leader == broker for _, state in image.partitions_of(broker))


def _enter(
    image: MetadataImage,
    config: ControllerConfig,
    broker: BrokerRegistration,
    state: BrokerControlState,
) -> Iterator[Record]:
    """Yield the metadata records that move a broker to a state. Yields none if the broker is
    already in that state."""
    match state:
        case BrokerControlState.UNFENCED if broker.is_fenced:
            yield broker_change_record(broker, is_fenced=False)
            yield from broker_available(image, config, broker.id)
        case BrokerControlState.CONTROLLED_SHUTDOWN if not broker.in_controlled_shutdown:
            yield from brokers_unavailable(image, config, (broker.id,))
            yield broker_change_record(broker, in_controlled_shutdown=True)
        case BrokerControlState.FENCED | BrokerControlState.SHUTDOWN_NOW if not broker.is_fenced:
            yield from brokers_unavailable(image, config, (broker.id,))
            yield _fencing(broker)


def _fencing(broker: BrokerRegistration) -> Record:
    if broker.in_controlled_shutdown:
        return broker_change_record(broker, is_fenced=True, in_controlled_shutdown=False)
    return broker_change_record(broker, is_fenced=True)


def _directories_go_offline(
    image: MetadataImage,
    config: ControllerConfig,
    broker: BrokerRegistration,
    offline: Collection[UUID],
) -> Iterator[Record]:
    if offline:
        yield from brokers_unavailable(image, config, (broker.id,), only_directories=offline)
        yield broker_change_record(
            broker, log_dirs=[found for found in broker.log_dirs if found not in offline]
        )
