"""The active controller at work: requests become decisions, decisions records, records replies.

One decision at a time is made on the speculative image (all that is appended, committed or not),
and appended before the next; a reply leaves when everything it rests on is committed.  When
leadership ends the speculative image is dropped and whoever waits is told NOT_CONTROLLER.  What
the controller does unasked is in `upkeep_driver`.
"""

import logging
from collections.abc import Callable
from typing import TypeVar

import trio

from ottla.controller import brokers, forward, partitions, producer_ids
from ottla.controller.controller_metrics import NS_PER_MS, ControllerCounts
from ottla.controller.decision import Context, Decision, QuorumStatus
from ottla.controller.describe_quorum import quorum_status
from ottla.controller.quorum_seam import Quorum
from ottla.controller.sessions import BrokerSessions
from ottla.controller.settings_in_force import topic_default
from ottla.metadata import fold
from ottla.metadata.features import bootstrap_records
from ottla.metadata.image import EMPTY, MetadataImage
from ottla.metadata.records import Record
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NO_OFFSET, Epoch, NodeId, Offset
from ottla.model.seams import Clock, Rng
from ottla.model.settings.controller import ControllerConfig
from ottla.proto import controller_pb2 as pb
from ottla.raft.voters import QuorumIdentity
from ottla.wire.codec_types import Message

_LOGGER = logging.getLogger(__name__)

R = TypeVar("R")

NO_RECORDS = Offset(0)
"""Said of a decision that wrote nothing: every image has all of it."""


class Controller:
    """This node as controller: active while its quorum member leads, else refusing."""

    def __init__(
        self,
        member: Quorum,
        config: ControllerConfig,
        identity: QuorumIdentity,
        clock: Clock,
        rng: Rng,
    ) -> None:
        self._member = member
        self._config = config
        self._identity = identity
        self._clock = clock
        self._context = Context(config=config, rng=rng, quorum_status=self._quorum_status)
        self.sessions = BrokerSessions(config.session_timeout_ms)
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
            )
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
            )
        )

    async def alter_partition(self, request: pb.AlterPartitionRequest) -> pb.AlterPartitionResponse:
        """Change in-sync replicas as a leader proposes."""
        return await self.decide(
            lambda image, _: partitions.alter_partition(image, self._config, request)
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
            lambda image, _: partitions.assign_replicas_to_dirs(image, self._config, request)
        )

    async def unregister(self, request: pb.UnregisterRequest) -> pb.UnregisterResponse:
        """Forget a broker."""
        await self.decide(
            lambda image, _: brokers.unregister(image, self._config, request.broker_id)
        )
        return pb.UnregisterResponse()

    async def forwarded(
        self, api_key: int, api_version: int, request: Message
    ) -> tuple[Message, Offset]:
        """Decide a client's request that a broker passed on.

        Return with the answer where the last record of it lies, NO_RECORDS when it has none.
        """
        first_offset = NO_RECORDS

        def make(image: MetadataImage, next_offset: Offset) -> Decision[Message]:
            nonlocal first_offset
            first_offset = next_offset
            return forward.decide(image, api_key, api_version, request, self._context)

        answer, last_offset = await self._decided(make)
        return answer, last_offset if last_offset >= first_offset else NO_RECORDS

    # --- the one way in --------------------------------------------------------------------

    async def decide(self, make: Callable[[MetadataImage, Offset], Decision[R]]) -> R:
        """Make a decision on the image and the offset of its first record; reply when committed.

        NOT_CONTROLLER while this node is not active, or when it ceases to be before the commit:
        the decision may or may not hold then.
        """
        reply, _ = await self._decided(make)
        return reply

    async def _decided(
        self, make: Callable[[MetadataImage, Offset], Decision[R]]
    ) -> tuple[R, Offset]:
        asked_ns = self.now_ns()
        async with self._deciding:
            begun_ns = self.now_ns()
            self.counts.queued.observe(begun_ns - asked_ns)
            epoch = await self._ready_epoch()
            decision = make(self.image, self._member.end_offset)
            await self._append(decision, epoch)
            last_offset = self.last_appended
            self.counts.decided.observe(self.now_ns() - begun_ns)
        try:
            await self._member.wait_committed(last_offset, epoch)
        except RefusedError as refusal:
            raise not_controller() from refusal
        return decision.reply, last_offset

    async def attempt(self, make: Callable[[MetadataImage, Offset], Decision[R]]) -> R | None:
        """Decide something of our own; return None when we were not the controller for it."""
        try:
            return await self.decide(make)
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
            records = bootstrap_records(min_insync_replicas=int(minimum))
            await self._append(Decision(records, None, is_atomic=True), epoch)
        return epoch

    async def _append(self, decision: Decision[R], epoch: Epoch) -> None:
        # An asker that goes away must not leave a decision half written.
        with trio.CancelScope(shield=True):
            for records in decision.appends():
                await self._append_batch(records, epoch)

    async def _append_batch(self, records: tuple[Record, ...], epoch: Epoch) -> None:
        # What would not fold must not be written: it is folded first.
        image = fold.apply_all(self.image, records)
        try:
            last_offset = await self._member.append(records, epoch)
        except RefusedError as refusal:
            if refusal.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise not_controller() from refusal
            raise
        if self.epoch != epoch:
            raise not_controller()
        # Nothing may come between the append and this: the image is that of the log.
        before, self.image = self.image, image
        self.last_appended = last_offset
        self.counts.note_elections(before, records)

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

    def _on_leadership(self, epoch: Epoch | None) -> None:
        self.epoch = epoch
        if epoch is None:
            self.image = EMPTY
            _LOGGER.info("no longer the active controller")
        else:
            self.counts.turns.value += 1
            self.image = self._member.image
            self.last_appended = Offset(self._member.applied_end_offset - 1)
            self.sessions.reset(self.image, self._clock.monotonic_ms())
            _LOGGER.info("active controller in epoch %s", epoch)
        turn, self.turn = self.turn, trio.Event()
        turn.set()

    def _is_committed(self, broker: NodeId) -> bool:
        """Say whether a majority agrees on how a broker is registered."""
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
            problems=self._member.problems,
            now_ms=self._clock.monotonic_ms(),
            wall_ms=self._clock.wall_ms(),
        )


def _nothing(_image: MetadataImage, _next_offset: Offset) -> Decision[bool]:
    return Decision((), True)


def not_controller() -> RefusedError:
    """Return the refusal that sends a broker to another controller."""
    return RefusedError(ErrorCode.NOT_CONTROLLER)
