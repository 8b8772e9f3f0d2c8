"""The active controller: turns requests into decisions, appends the records of the decisions, and
sends replies.

Decisions are made one at a time on the speculative image, which contains all appended records,
committed or not. The records of a decision are appended before the next decision is made. A reply
is sent once all records on which it depends are committed. When the leadership ends, the
speculative image is dropped and waiting requests fail with NOT_CONTROLLER.

Decisions that may take long are computed in a thread. This is safe because decisions are pure. They
share only the sessions with the event loop, and the sessions tolerate concurrent access.
`upkeep_driver` does the periodic work of the controller.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import trio

from ottla.controller import client_requests, producer_ids
from ottla.controller.controller_metrics import NS_PER_MS, ControllerCounts
from ottla.controller.decision import Context, Decision, QuorumStatus, decided
from ottla.controller.describe_quorum import quorum_status
from ottla.controller.membership import brokers, controllers
from ottla.controller.membership.sessions import BrokerSessions
from ottla.controller.mutation_quotas import NO_CHARGE, MutationQuotas
from ottla.controller.quorum_seam import Quorum
from ottla.controller.replication import partitions
from ottla.controller.requester import Requester
from ottla.controller.settings_in_force import topic_default
from ottla.controller.snapshot_requests import snapshot_response
from ottla.metadata import fold
from ottla.metadata.audit_log import AuditLog
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.features import bootstrap_records
from ottla.metadata.image import EMPTY, ControllerRegistration, MetadataImage
from ottla.metadata.record_levels import check_writable
from ottla.metadata.records import Record
from ottla.metadata.standard_authorizer import StandardAuthorizer
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NO_OFFSET, Epoch, NodeId, Offset
from ottla.model.log_events import event
from ottla.model.quotas.quota_callback import CustomLimits, load_callback
from ottla.model.quotas.rates import WindowShape
from ottla.model.seams import Clock, Rng
from ottla.model.security.authorizer import Authorizer
from ottla.model.settings.controller import ControllerConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.collector_pause_driver import COLLECTOR_PAUSE
from ottla.node.seams import Compute, compute_inline
from ottla.proto import controller_pb2 as pb
from ottla.raft.messages import VoterChangeRequest, VoterChangeResponse
from ottla.raft.voters import QuorumIdentity
from ottla.wire.apis import DESCRIBE_QUORUM, request_class, response_class
from ottla.wire.codec import decode, encode
from ottla.wire.codec_types import Message
from ottla.wire.messages.write_snapshot_request import WriteSnapshotRequest

_LOGGER = logging.getLogger(__name__)

R = TypeVar("R")

USER_PRINCIPAL = "User:"
"""Prefix of a user's name in a Kafka principal."""

NO_RECORDS = Offset(0)
"""Metadata offset in the reply to a decision without records. Every metadata image includes all
records before offset 0."""


OFFSET_ATTEMPTS_MAX = 3
"""Maximum number of attempts to append one decision. An attempt fails if the quorum appends a voter
set first, because the offset of the decision has then changed. With one attempt, a client of a
controller that has just become leader gets NOT_CONTROLLER. More than three are unnecessary, because
voter sets change rarely."""

SHORT_PARTITIONS_MAX = 100
SHORT_BYTES_MAX = 4_096
"""Maximum size in bytes of a request that is decided in the event loop. The decision takes a
few ms. For a small request, a thread would cost more. A larger request would delay all other
requests."""


class ClientAnswer(NamedTuple):
    """The response to a client's forwarded request, in Kafka's encoding, with its metadata offset
    and throttle time."""

    body: bytes
    metadata_offset: Offset
    """Offset of the last metadata record that the request has written. NO_RECORDS if the request
    has written no record."""
    throttle_ms: int
    """Throttle time in ms for the client that sent the request."""


class _Step(NamedTuple):
    """One batch of a decision's metadata records, and the metadata images before and after the
    batch."""

    records: tuple[Record, ...]
    batch: bytes
    before: MetadataImage
    after: MetadataImage


class Controller:
    """The controller role of this node.  It is active while its quorum member is the leader, and
    refuses requests otherwise."""

    def __init__(
        self,
        member: Quorum,
        config: ControllerConfig,
        identity: QuorumIdentity,
        clock: Clock,
        rng: Rng,
        compute: Compute = compute_inline,
        first_records: Sequence[Record] = (),
        errors: UnexpectedErrors | None = None,
    ) -> None:
        """Create an inactive controller.

        `errors` counts the exceptions raised by classes that the operator has configured.
        """
        self._first_records = tuple(first_records)
        self._beside = compute
        self._member = member
        self._config = config
        self._identity = identity
        self._clock = clock
        self._context = Context(
            config=config,
            rng=rng,
            quorum_status=self._quorum_status,
            wall_ms=clock.wall_ms,
            cluster_id=identity.cluster_id,
        )
        self.sessions = BrokerSessions(config.session_timeout_ms)
        windows = config.mutation_quotas
        self.mutations = MutationQuotas(
            WindowShape(windows.window_count, windows.window_s * 1_000),
            _custom_limits(config, UnexpectedErrors() if errors is None else errors),
        )
        self.authorizer = make_authorizer(config, clock)
        """Authorizer of clients, used by the task that makes decisions. None if every operation is
        allowed."""
        self._deciding = trio.Lock()
        self.epoch: Epoch | None = None
        """Epoch in which this node is the active controller.  None while it is not active."""
        self.image: MetadataImage = EMPTY
        """The speculative metadata image: all appended records, committed or not."""
        self.last_appended = NO_OFFSET
        self.counts = ControllerCounts()
        self.now_ns: Callable[[], int] = lambda: clock.monotonic_ms() * NS_PER_MS
        """Clock that measures durations, in ns. The process may replace it by a more precise
        one."""
        self.turn = trio.Event()
        """Event that is set whenever this controller becomes active or inactive. A new event then
        replaces it."""
        self.session_ended = trio.Event()
        """Event that is set whenever a broker's session is ended early. A new event then replaces
        it."""
        self._registrations: dict[NodeId, ControllerRegistration] = {}
        """Controllers that registered since this controller became active. Used only at levels of
        ottla.version that do not store registrations as records."""

    @property
    def node_id(self) -> NodeId:
        """Node id of this controller."""
        return self._identity.node_id

    @property
    def known_image(self) -> MetadataImage:
        """The latest metadata image that this node knows: the speculative image while this
        controller is active, or else the image of committed records."""
        return self._member.image if self.epoch is None else self.image

    @property
    def high_watermark(self) -> Offset:
        """Offset after the last committed metadata record, as far as this node knows."""
        return self._member.high_watermark

    # --- requests ----------------------------------------------------------------------------

    async def register(self, request: pb.RegisterRequest) -> pb.RegisterResponse:
        """Register a broker. Returns the response, which contains the broker's new epoch."""
        return await self.decide(
            lambda image, next_offset: brokers.register(
                image,
                self._config,
                self.sessions,
                request,
                identity=self._member.identity,
                next_offset=next_offset,
                now_ms=self.session_time_ms(),
            ),
            is_long=self._holds_much(request.broker_id),
        )

    async def heartbeat(self, request: pb.HeartbeatRequest) -> pb.HeartbeatResponse:
        """Renew a broker's session, and move the broker to the state that its heartbeat requests,
        if permitted. Returns the response.

        The session is renewed before the heartbeat waits for other decisions. A heartbeat that only
        renews the session is answered immediately, without a commit by a majority.
        """
        if self.epoch is None:
            raise not_controller()
        steady = brokers.steady_heartbeat(
            self.image, self.sessions, request, now_ms=self.session_time_ms()
        )
        if steady is not None and self._is_committed(NodeId(request.broker_id)):
            return steady
        return await self.decide(
            lambda image, next_offset: brokers.heartbeat(
                image,
                self._config,
                self.sessions,
                request,
                next_offset=next_offset,
                now_ms=self.session_time_ms(),
            ),
            is_long=self._holds_much(request.broker_id),
        )

    async def alter_partition(self, request: pb.AlterPartitionRequest) -> pb.AlterPartitionResponse:
        """Change the in-sync replicas of partitions as the partition leader proposes. Returns the
        result for each partition."""
        return await self.decide(
            lambda image, _: partitions.alter_partition(image, self._config, request),
            is_long=request.ByteSize() > SHORT_BYTES_MAX,
        )

    async def allocate_producer_ids(
        self, request: pb.AllocateProducerIdsRequest
    ) -> pb.AllocateProducerIdsResponse:
        """Allocate a block of producer ids for a broker, and return the block."""
        return await self.decide(
            lambda image, _: producer_ids.allocate_producer_ids(image, request)
        )

    async def assign_replicas_to_dirs(
        self, request: pb.AssignReplicasToDirsRequest
    ) -> pb.AssignReplicasToDirsResponse:
        """Record the log directories in which a broker stores its replicas."""
        return await self.decide(
            lambda image, _: partitions.assign_replicas_to_dirs(image, self._config, request),
            is_long=request.ByteSize() > SHORT_BYTES_MAX,
        )

    async def unregister(self, request: pb.UnregisterRequest) -> pb.UnregisterResponse:
        """Delete the registration of a broker."""
        await self.decide(
            lambda image, _: brokers.unregister(image, self._config, request.broker_id),
            is_long=self._holds_much(request.broker_id),
        )
        return pb.UnregisterResponse()

    async def register_controller(
        self, request: pb.RegisterControllerRequest
    ) -> pb.RegisterControllerResponse:
        """Register a controller of the cluster, which may be this one."""
        turn = self.turn
        registration = await self.decide(
            lambda image, _: controllers.register_controller(image, self._member.identity, request)
        )
        if self.turn is turn:
            self._registrations[registration.id] = registration
        return pb.RegisterControllerResponse()

    async def decide_client_request(
        self,
        api_key: int,
        api_version: int,
        body: bytes,
        *,
        principal: str = "",
        host: str = "",
        client_id: str = "",
        is_token: bool = False,
    ) -> ClientAnswer:
        """Decide a client's request that a broker has forwarded, and return the response. The
        request and the response are in Kafka's encoding.

        The client determines the size of the request. A large request is therefore decoded,
        decided, applied and answered in a thread, so that the event loop can still process
        heartbeats. The thread also checks the client's quota. This is safe because decisions are
        made one at a time: no other decision uses the token buckets or the authorizer's cache. A
        request without a principal was sent by the broker itself.
        """
        first_offset = NO_RECORDS
        charge = NO_CHARGE
        made: Decision[Message] | None = None
        context = self._context
        if api_key == DESCRIBE_QUORUM:
            # The quorum status can only be read in the event loop.
            status = self._quorum_status()
            context = replace(context, quorum_status=lambda: status)
        registrations = dict(self._registrations)
        voter_ids = self._member.identity.voters.ids

        def make(image: MetadataImage, next_offset: Offset) -> Decision[bytes]:
            nonlocal first_offset, charge, made
            first_offset = next_offset
            request = decode(request_class(api_key), api_version, body)
            charge = self.mutations.charge(
                image.client_quotas,
                api_key=api_key,
                api_version=api_version,
                user=principal.removeprefix(USER_PRINCIPAL),
                client_id=client_id,
                now_ms=self._clock.monotonic_ms(),
            )
            requester = Requester(principal, host, self._authorizer_of(image), is_token=is_token)
            made = client_requests.decide(
                image,
                api_key,
                request,
                replace(
                    context,
                    charge=charge,
                    requester=requester,
                    api_version=api_version,
                    controllers=controllers.registered_controllers(image, registrations),
                    voter_ids=voter_ids,
                ),
            )
            is_large = len(body) > SHORT_BYTES_MAX
            return made.with_reply(encode(made.reply, api_version, is_large=is_large))

        answer, last_offset = await self._decided(make, is_long=True)
        if made is not None and made.voter_change is not None:
            answer = await self._changed_voters(made.voter_change, api_key, api_version)
        elif made is not None and made.snapshot_request is not None:
            answer = await self._written_snapshot(made.snapshot_request, api_version)
        return ClientAnswer(
            answer,
            last_offset if last_offset >= first_offset else NO_RECORDS,
            charge.throttle_ms(self._clock.monotonic_ms()),
        )

    async def _written_snapshot(self, request: WriteSnapshotRequest, api_version: int) -> bytes:
        """Write a metadata snapshot that a client has requested, and return the encoded response.
        Nothing is written if the request is only to be validated."""
        report = await self._member.report_snapshot(writes=not request.validate_only)
        return encode(snapshot_response(self._identity.node_id, report), api_version)

    async def _changed_voters(
        self, change: VoterChangeRequest, api_key: int, api_version: int
    ) -> bytes:
        """Request a change of the voter set from the quorum, and return the encoded response to the
        client.

        If this leader loses its leadership meanwhile, the response contains NOT_LEADER_OR_FOLLOWER.
        The forwarding broker gets no error, because it would send the request again although the
        change may have taken effect.
        """
        response = await self._member.answer(change)
        assert isinstance(response, VoterChangeResponse)
        kind: Any = response_class(api_key)
        reply = kind(error_code=response.error, error_message=response.message)
        return encode(reply, api_version)

    def _authorizer_of(self, image: MetadataImage) -> Authorizer | None:
        """Return an authorizer over the ACLs of a metadata image, or None if no authorizer is
        configured. The image may contain uncommitted records.

        A response to a client is sent only after all records on which its decision depends are
        committed, including the ACLs.
        """
        if self.authorizer is not None:
            self.authorizer.take(image.acls)
        return self.authorizer

    def wall_ms(self) -> int:
        """Return the wall time in ms since 1970."""
        return self._clock.wall_ms()

    # --- decisions ---------------------------------------------------------------------------

    async def decide(
        self, make: Callable[[MetadataImage, Offset], Decision[R]], *, is_long: bool = False
    ) -> R:
        """Call `make` with the metadata image and the next offset of the metadata log to make a
        decision. Returns the reply once the records of the decision are committed.

        A decision that may take long (`is_long`) is made in a thread. Raises
        RefusedError(NOT_CONTROLLER) if this controller is not active, or becomes inactive before
        the records are committed. In the latter case, the decision may or may not take effect.
        """
        reply, _ = await self._decided(make, is_long=is_long)
        return reply

    async def _decided(
        self,
        make: Callable[[MetadataImage, Offset], Decision[R]],
        *,
        is_long: bool,
    ) -> tuple[R, Offset]:
        asked_ns = self.now_ns()
        async with self._deciding:
            begun_ns = self.now_ns()
            self.counts.queued.observe(begun_ns - asked_ns)
            epoch = await self._ready_epoch()
            reply = await self._appended(make, epoch, is_long=is_long)
            last_offset = self.last_appended
            self.counts.decided.observe(self.now_ns() - begun_ns)
        try:
            await self._member.wait_committed(last_offset, epoch)
        except RefusedError as refusal:
            raise not_controller() from refusal
        return reply, last_offset

    async def _appended(
        self,
        make: Callable[[MetadataImage, Offset], Decision[R]],
        epoch: Epoch,
        *,
        is_long: bool,
    ) -> R:
        """Make a decision and append its records to the metadata log. Returns the decision's reply.

        At its start, a new leader of the quorum may append a voter set at the offset for which the
        decision was made. The decision is then made again, because it may depend on the offset.
        """
        for _ in range(OFFSET_ATTEMPTS_MAX):
            image, next_offset = self.image, self._member.end_offset
            compute = self._beside if is_long else compute_inline
            prepare = partial(self._made_and_prepared, make, image, next_offset)
            try:
                with COLLECTOR_PAUSE.paused() if is_long else nullcontext():
                    reply, steps = await compute(prepare)
            except Exception:
                if self.epoch != epoch:
                    raise not_controller() from None  # it was decided on an image that was dropped
                raise
            try:
                await self._append(steps, epoch, at=next_offset)
            except RefusedError:
                is_taken = self.epoch == epoch and self._member.end_offset != next_offset
                if not is_taken or self.image is not image:
                    raise
            else:
                return reply
        raise not_controller()

    def _made_and_prepared(
        self,
        make: Callable[[MetadataImage, Offset], Decision[R]],
        image: MetadataImage,
        next_offset: Offset,
    ) -> "tuple[R, list[_Step]]":
        return self._prepared(make(image, next_offset), image)

    def _prepared(self, decision: Decision[R], image: MetadataImage) -> "tuple[R, list[_Step]]":
        """Return the reply of a decision and the record batches to append. May be called in a
        thread.

        The decision already contains the metadata image after its last batch, so only the images
        after the other batches are computed.
        """
        check_writable(decision.records, decision.image)
        steps = []
        count_left = len(decision.records)
        for records in decision.appends():
            count_left -= len(records)
            after = fold.apply_all(image, records) if count_left else decision.image
            steps.append(_Step(records, self._member.batch_of(records), image, after))
            image = after
        return decision.reply, steps

    async def attempt(
        self, make: Callable[[MetadataImage, Offset], Decision[R]], *, is_long: bool = False
    ) -> R | None:
        """Make a decision for the controller's own periodic work, and return its reply once the
        records are committed.

        Returns None if this controller is not active, or becomes inactive before the records are
        committed.
        """
        try:
            return await self.decide(make, is_long=is_long)
        except RefusedError as refusal:
            if refusal.code is not ErrorCode.NOT_CONTROLLER:
                raise
            return None

    async def _ready_epoch(self) -> Epoch:
        """Return the epoch of this controller, under which it appends to the metadata log. In a new
        cluster, write the cluster's initial records first."""
        epoch = self.epoch
        if epoch is None:
            raise not_controller()
        if not self.image.features:
            minimum = topic_default(EMPTY, self._config, "min.insync.replicas").value
            assert minimum is not None
            records = bootstrap_records(min_insync_replicas=int(minimum), more=self._first_records)
            first = decided(self.image, records, None, is_atomic=True)
            await self._append(self._prepared(first, self.image)[1], epoch)
        return epoch

    async def _append(
        self, steps: "Sequence[_Step]", epoch: Epoch, *, at: Offset | None = None
    ) -> None:
        """Append the record batches of a decision to the metadata log. `at` is the offset for which
        the decision was made. A decision may depend on this offset, because broker epochs are
        offsets of records."""
        # If the request is cancelled, its decision must not be left half written.
        with trio.CancelScope(shield=True):
            for step in steps:
                await self._append_step(step, epoch, at)
                at = None

    async def _append_step(self, step: "_Step", epoch: Epoch, at: Offset | None) -> None:
        if self.epoch != epoch:
            raise not_controller()
        assert self.image is step.before
        try:
            last_offset = await self._member.append(step.batch, epoch, at=at)
        except RefusedError as refusal:
            if refusal.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise not_controller() from refusal
            raise
        if self.epoch != epoch:
            raise not_controller()
        # No `await` may come between the append and this line: the image must match the log.
        self.image = step.after
        self.last_appended = last_offset
        self.counts.note_elections(step.before, step.records)

    # --- the image of committed records -----------------------------------------------------

    @property
    def name(self) -> str:
        """Name of this metadata publisher (a component that receives each new metadata image)."""
        return "controller"

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Receive the image of committed records. Once it contains all appended records, it
        replaces the equal speculative image, so that this process holds each partition once.

        While a decision is being made or appended, its image must not be replaced. The commit of
        its records is published later.
        """
        is_whole = image.provenance.offset == self.last_appended
        if self.epoch is not None and is_whole and not self._deciding.locked():
            self.image = image

    # --- leadership --------------------------------------------------------------------------

    def allow_activation(self) -> None:
        """Allow this controller to become active whenever the quorum elects this node."""
        self._member.on_leadership(self._on_leadership)

    async def wait_active(self) -> None:
        """Wait until this controller is active and the first records of the cluster are
        committed."""
        while True:
            turn = self.turn
            if self.epoch is not None and await self.attempt(_nothing):
                return
            await turn.wait()

    def session_time_ms(self) -> int:
        """Return the time, in ms, of the clock by which brokers' sessions expire. If this process
        was suspended, all sessions are first extended by the length of the suspension."""
        now_ms = self._clock.monotonic_ms()
        stall_ms = self.sessions.look(now_ms)
        if stall_ms:
            _LOGGER.warning(
                "this process was stopped for %s ms: brokers' sessions are extended by that time",
                stall_ms,
            )
        return now_ms

    def end_session(self, broker: NodeId) -> int:
        """End the session of a broker whose process has ended. Returns the remaining time of the
        session in ms.

        The broker may register again immediately.
        """
        left_ms = self.sessions.end(broker, self.session_time_ms())
        self.counts.early_ends.value += 1
        ended, self.session_ended = self.session_ended, trio.Event()
        ended.set()
        return left_ms

    def _on_leadership(self, epoch: Epoch | None) -> None:
        self.epoch = epoch
        self.mutations.forget_all()
        self._registrations.clear()
        if epoch is None:
            self.image = EMPTY
            _LOGGER.info("no longer the active controller", extra=event("controller.inactive"))
        else:
            self.counts.turns.value += 1
            self.image = self._member.image
            self.last_appended = Offset(self._member.applied_end_offset - 1)
            self.sessions.reset(self.image, self._clock.monotonic_ms())
            named = event("controller.active", epoch=int(epoch))
            _LOGGER.info("active controller in epoch %s", epoch, extra=named)
        turn, self.turn = self.turn, trio.Event()
        turn.set()

    def _holds_much(self, broker: int) -> bool:
        """Return whether fencing or unfencing a broker takes long, because the broker has many
        partitions."""
        held = self.image.partitions_by_broker.get(NodeId(broker))
        return held is not None and len(held) > SHORT_PARTITIONS_MAX

    def _is_committed(self, broker: NodeId) -> bool:
        """Return whether the record that registered a broker is committed."""
        if self._member.high_watermark > self.last_appended:
            return True
        return self._member.image.brokers.get(broker) == self.image.brokers.get(broker)

    def _quorum_status(self) -> QuorumStatus:
        # A controller that becomes active before it decides the request is too late to read it.
        description = None if self.epoch is None else self._member.describe()
        if description is None:
            raise not_controller()
        return quorum_status(
            description,
            self._member.identity.voters,
            problems=(*self._member.disk_problems, *self._member.problems),
            warnings=self._member.disk_warnings,
            now_ms=self._clock.monotonic_ms(),
            wall_ms=self._clock.wall_ms(),
        )


def _nothing(image: MetadataImage, _next_offset: Offset) -> Decision[bool]:
    return decided(image, (), True)


def make_authorizer(config: ControllerConfig, clock: Clock) -> StandardAuthorizer | None:
    """Return an authorizer for exclusive use by one task or thread, or None if no authorizer is
    configured."""
    if not config.authorizer.is_on:
        return None
    return StandardAuthorizer(config.authorizer, AuditLog(clock.monotonic_ms))


def not_controller() -> RefusedError:
    """Return the error NOT_CONTROLLER. A broker that receives this error searches for another
    controller."""
    return RefusedError(ErrorCode.NOT_CONTROLLER)


def _custom_limits(config: ControllerConfig, errors: UnexpectedErrors) -> CustomLimits | None:
    """Return the quota limits computed by the class in `client.quota.callback.class`, or None if
    the setting is not set.

    Raises ConfigError if the class cannot be loaded.
    """
    name = config.mutation_quotas.callback_class
    if name is None:
        return None
    return CustomLimits("CONTROLLER_MUTATION", load_callback(name, config.texts), errors)
