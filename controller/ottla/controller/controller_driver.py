"""The active controller at work: requests become decisions, decisions records, records replies.

One decision at a time is made on the speculative image (all that is appended, committed or not),
and appended before the next; a reply leaves when everything it rests on is committed.  When
leadership ends the speculative image is dropped and whoever waits is told NOT_CONTROLLER.  What
may take long is decided and folded beside the loop, in a thread: decisions are pure, so nothing of
the loop's is touched but the sessions, which bear it.  What the controller does unasked is in
`upkeep_driver`.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import NamedTuple, TypeVar

import trio

from ottla.controller import brokers, client_requests, partitions, producer_ids
from ottla.controller.controller_metrics import NS_PER_MS, ControllerCounts
from ottla.controller.decision import Context, Decision, QuorumStatus, decided
from ottla.controller.describe_quorum import quorum_status
from ottla.controller.mutation_quotas import NO_CHARGE, MutationQuotas
from ottla.controller.quorum_seam import Quorum
from ottla.controller.requester import Requester
from ottla.controller.sessions import BrokerSessions
from ottla.controller.settings_in_force import topic_default
from ottla.metadata import fold
from ottla.metadata.audit_log import AuditLog
from ottla.metadata.features import bootstrap_records
from ottla.metadata.image import EMPTY, MetadataImage
from ottla.metadata.records import Record
from ottla.metadata.standard_authorizer import StandardAuthorizer
from ottla.model.authorizer import Authorizer
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NO_OFFSET, Epoch, NodeId, Offset
from ottla.model.log_events import event
from ottla.model.quotas.quota_callback import CustomLimits, load_callback
from ottla.model.rates import WindowShape
from ottla.model.seams import Clock, Rng
from ottla.model.settings.controller import ControllerConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.collector_pause_driver import COLLECTOR_PAUSE
from ottla.node.seams import Compute, compute_inline
from ottla.proto import controller_pb2 as pb
from ottla.raft.voters import QuorumIdentity
from ottla.wire.apis import request_class
from ottla.wire.codec import decode, encode
from ottla.wire.messages.describe_quorum_request import DescribeQuorumRequest

_LOGGER = logging.getLogger(__name__)

R = TypeVar("R")

USER_PRINCIPAL = "User:"
"""Before a user's name in a principal."""

NO_RECORDS = Offset(0)
"""Said of a decision that wrote nothing: every image has all of it."""


SHORT_PARTITIONS_MAX = 100
SHORT_BYTES_MAX = 4_096
"""What is decided on the loop itself, in a few ms: a thread costs more than a small decision, and a
large one would keep everybody else waiting."""


class ClientAnswer(NamedTuple):
    """The answer to a client's request, in Kafka's encoding, and what belongs to it."""

    body: bytes
    metadata_offset: Offset
    """Where the last record of the decision lies, NO_RECORDS where it has none."""
    throttle_ms: int
    """For how long the client is to be throttled."""


class _Step(NamedTuple):
    """One batch of a decision, and the speculative image before and after it."""

    records: tuple[Record, ...]
    batch: bytes
    before: MetadataImage
    after: MetadataImage


class Controller:
    """This node as controller: active while its quorum member leads, else refusing."""

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
        """`errors` notes what code of the operator's own raises."""
        self._first_records = tuple(first_records)
        self._beside = compute
        self._member = member
        self._config = config
        self._identity = identity
        self._clock = clock
        self._context = Context(
            config=config, rng=rng, quorum_status=self._quorum_status, wall_ms=clock.wall_ms
        )
        self.sessions = BrokerSessions(config.session_timeout_ms)
        windows = config.mutation_quotas
        self.mutations = MutationQuotas(
            WindowShape(windows.window_count, windows.window_s * 1_000),
            _custom_limits(config, UnexpectedErrors() if errors is None else errors),
        )
        self.authorizer = make_authorizer(config, clock)
        """What decides of requests in the turn of the active controller, if anything does."""
        self._deciding = trio.Lock()
        self.epoch: Epoch | None = None
        """The epoch this node is the active controller in, if it is."""
        self.image: MetadataImage = EMPTY
        """The speculative image: all that is appended, committed or not."""
        self.last_appended = NO_OFFSET
        self.counts = ControllerCounts()
        self.now_ns: Callable[[], int] = lambda: clock.monotonic_ms() * NS_PER_MS
        """A stopwatch, to be set to a finer one."""
        self.turn = trio.Event()
        """Set, and replaced, whenever this node becomes or ceases to be the controller."""
        self.session_ended = trio.Event()
        """Set, and replaced, whenever a session ends before its time."""

    @property
    def known_image(self) -> MetadataImage:
        """The newest image that this node has: all that is appended while it is active."""
        return self._member.image if self.epoch is None else self.image

    # --- requests --------------------------------------------------------------------------

    async def register(self, request: pb.RegisterRequest) -> pb.RegisterResponse:
        """Register a broker."""
        return await self.decide(
            lambda image, next_offset: brokers.register(
                image,
                self._config,
                self.sessions,
                request,
                identity=self._identity,
                next_offset=next_offset,
                now_ms=self.session_time_ms(),
            ),
            is_long=self._holds_much(request.broker_id),
        )

    async def heartbeat(self, request: pb.HeartbeatRequest) -> pb.HeartbeatResponse:
        """Keep a broker's session, and move it to the state it wants if it may.

        The session is kept before the heartbeat queues behind other decisions, and one that
        changes nothing is answered without queueing or waiting for a majority.
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
        """Change in-sync replicas as a leader proposes."""
        return await self.decide(
            lambda image, _: partitions.alter_partition(image, self._config, request),
            is_long=request.ByteSize() > SHORT_BYTES_MAX,
        )

    async def allocate_producer_ids(
        self, request: pb.AllocateProducerIdsRequest
    ) -> pb.AllocateProducerIdsResponse:
        """Hand out a block of producer ids."""
        return await self.decide(
            lambda image, _: producer_ids.allocate_producer_ids(image, request)
        )

    async def assign_replicas_to_dirs(
        self, request: pb.AssignReplicasToDirsRequest
    ) -> pb.AssignReplicasToDirsResponse:
        """Note in which directories a broker keeps its replicas."""
        return await self.decide(
            lambda image, _: partitions.assign_replicas_to_dirs(image, self._config, request),
            is_long=request.ByteSize() > SHORT_BYTES_MAX,
        )

    async def unregister(self, request: pb.UnregisterRequest) -> pb.UnregisterResponse:
        """Forget a broker."""
        await self.decide(
            lambda image, _: brokers.unregister(image, self._config, request.broker_id),
            is_long=self._holds_much(request.broker_id),
        )
        return pb.UnregisterResponse()

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
        """Decide a client's request that a broker passed on, both in Kafka's encoding.

        A stranger chooses how much of everything a request asks for, so it is read, decided, folded
        and answered beside the loop: whatever it costs, the loop keeps its heartbeats.  The same
        goes for the charge: decisions are made one at a time, so one of them has the buckets, and
        what the authorizer remembers.  A request without a principal is a broker's own.
        """
        first_offset = NO_RECORDS
        charge = NO_CHARGE
        context = self._context
        if api_key == DescribeQuorumRequest.API_KEY and self.epoch is not None:
            # What the quorum does at present is asked of it on its own loop.
            status = self._quorum_status()
            context = replace(context, quorum_status=lambda: status)

        def make(image: MetadataImage, next_offset: Offset) -> Decision[bytes]:
            nonlocal first_offset, charge
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
            decision = client_requests.decide(
                image,
                api_key,
                api_version,
                request,
                replace(context, charge=charge, requester=requester),
            )
            reply = encode(decision.reply, api_version, is_large=len(body) > SHORT_BYTES_MAX)
            return decision.with_reply(reply)

        answer, last_offset = await self._decided(make, is_long=True)
        return ClientAnswer(
            answer,
            last_offset if last_offset >= first_offset else NO_RECORDS,
            charge.throttle_ms(self._clock.monotonic_ms()),
        )

    def _authorizer_of(self, image: MetadataImage) -> Authorizer | None:
        """Return what decides by the entries of an image that may not be committed yet.

        An answer waits for all that its decision rests on, the entries included.
        """
        if self.authorizer is not None:
            self.authorizer.take(image.acls)
        return self.authorizer

    def wall_ms(self) -> int:
        """Return the time of the Unix epoch."""
        return self._clock.wall_ms()

    # --- the one way in --------------------------------------------------------------------

    async def decide(
        self, make: Callable[[MetadataImage, Offset], Decision[R]], *, is_long: bool = False
    ) -> R:
        """Make a decision on the image and the offset of its first record; reply when committed.

        One that may take long is made beside the loop.
        NOT_CONTROLLER while this node is not active, or when it ceases to be before the commit:
        the decision may or may not hold then.
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
            image, next_offset = self.image, self._member.end_offset
            compute = self._beside if is_long else compute_inline
            try:
                with COLLECTOR_PAUSE.paused() if is_long else nullcontext():
                    reply, steps = await compute(
                        lambda: self._prepared(make(image, next_offset), image)
                    )
            except Exception:
                if self.epoch != epoch:
                    raise not_controller() from None  # it was made of what is gone
                raise
            await self._append(steps, epoch)
            last_offset = self.last_appended
            self.counts.decided.observe(self.now_ns() - begun_ns)
        try:
            await self._member.wait_committed(last_offset, epoch)
        except RefusedError as refusal:
            raise not_controller() from refusal
        return reply, last_offset

    def _prepared(self, decision: Decision[R], image: MetadataImage) -> "tuple[R, list[_Step]]":
        """Return the reply, and what is appended batch by batch; it may run beside the loop.

        The last batch comes to the image of the decision; only those before it are folded here.
        """
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
        """Decide something of our own; return None when we were not the controller for it."""
        try:
            return await self.decide(make, is_long=is_long)
        except RefusedError as refusal:
            if refusal.code is not ErrorCode.NOT_CONTROLLER:
                raise
            return None

    async def _ready_epoch(self) -> Epoch:
        """Return the epoch to append in, with a new cluster's first records written."""
        epoch = self.epoch
        if epoch is None:
            raise not_controller()
        if not self.image.features:
            minimum = topic_default(EMPTY, self._config, "min.insync.replicas").value
            assert minimum is not None
            records = bootstrap_records(min_insync_replicas=int(minimum)) + self._first_records
            first = decided(self.image, records, None, is_atomic=True)
            await self._append(self._prepared(first, self.image)[1], epoch)
        return epoch

    async def _append(self, steps: "Sequence[_Step]", epoch: Epoch) -> None:
        # An asker that goes away must not leave a decision half written.
        with trio.CancelScope(shield=True):
            for step in steps:
                await self._append_step(step, epoch)

    async def _append_step(self, step: "_Step", epoch: Epoch) -> None:
        if self.epoch != epoch:
            raise not_controller()
        assert self.image is step.before
        try:
            last_offset = await self._member.append(step.batch, epoch)
        except RefusedError as refusal:
            if refusal.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise not_controller() from refusal
            raise
        if self.epoch != epoch:
            raise not_controller()
        # Nothing may come between the append and this: the image is that of the log.
        self.image = step.after
        self.last_appended = last_offset
        self.counts.note_elections(step.before, step.records)

    # --- being the controller, or not --------------------------------------------------------

    def take_part(self) -> None:
        """Be the controller, from now on, whenever the quorum elects this node."""
        self._member.on_leadership(self._on_leadership)

    async def wait_active(self) -> None:
        """Wait until this node leads a cluster whose first records are committed."""
        while True:
            turn = self.turn
            if self.epoch is not None and await self.attempt(_nothing):
                return
            await turn.wait()

    def session_time_ms(self) -> int:
        """Return the time for sessions, which have been told how long this loop slept."""
        now_ms = self._clock.monotonic_ms()
        stall_ms = self.sessions.look(now_ms)
        if stall_ms:
            _LOGGER.warning("stood still for %s ms: brokers' sessions are longer by it", stall_ms)
        return now_ms

    def end_session(self, broker: NodeId) -> int:
        """Have a broker fenced whose process is gone; return what was left of its session, in ms.

        It may register again at once.
        """
        left_ms = self.sessions.end(broker, self.session_time_ms())
        self.counts.early_ends.value += 1
        ended, self.session_ended = self.session_ended, trio.Event()
        ended.set()
        return left_ms

    def _on_leadership(self, epoch: Epoch | None) -> None:
        self.epoch = epoch
        self.mutations.forget_all()
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
        """Return whether what becomes of a broker changes many partitions."""
        held = self.image.partitions_by_broker.get(NodeId(broker))
        return held is not None and len(held) > SHORT_PARTITIONS_MAX

    def _is_committed(self, broker: NodeId) -> bool:
        """Return whether a majority agrees on how a broker is registered."""
        if self._member.high_watermark > self.last_appended:
            return True
        return self._member.image.brokers.get(broker) == self.image.brokers.get(broker)

    def _quorum_status(self) -> QuorumStatus:
        description = self._member.describe()
        if description is None:
            raise not_controller()
        return quorum_status(
            description,
            self._identity.voters,
            problems=(*self._member.disk_problems, *self._member.problems),
            warnings=self._member.disk_warnings,
            now_ms=self._clock.monotonic_ms(),
            wall_ms=self._clock.wall_ms(),
        )


def _nothing(image: MetadataImage, _next_offset: Offset) -> Decision[bool]:
    return decided(image, (), True)


def make_authorizer(config: ControllerConfig, clock: Clock) -> StandardAuthorizer | None:
    """Return an authorizer of this node, for one task or thread; None where nothing is decided."""
    if not config.authorizer.is_on:
        return None
    return StandardAuthorizer(config.authorizer, AuditLog(clock.monotonic_ms))


def not_controller() -> RefusedError:
    """Return the refusal that sends a broker to another controller."""
    return RefusedError(ErrorCode.NOT_CONTROLLER)


def _custom_limits(config: ControllerConfig, errors: UnexpectedErrors) -> CustomLimits | None:
    """Return the limits of `client.quota.callback.class`, None without it.

    Raises ConfigError if the class cannot be loaded.
    """
    name = config.mutation_quotas.callback_class
    if name is None:
        return None
    return CustomLimits("CONTROLLER_MUTATION", load_callback(name, config.texts), errors)
