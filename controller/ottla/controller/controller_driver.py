"""The active controller at work: requests become decisions, decisions records, records replies.

One decision at a time is made on the speculative image (all that is appended, committed or not),
and appended before the next; a reply leaves when everything it rests on is committed.  When
leadership ends the speculative image is dropped and whoever waits is told NOT_CONTROLLER.  Broker
sessions are timed by this node's own monotonic clock.
"""

import logging
from collections.abc import Callable
from typing import TypeVar

import trio

from ottla.controller import brokers, elections, forward, partitions, producer_ids
from ottla.controller.decision import Context, Decision, QuorumStatus, ReplicaStatus
from ottla.controller.sessions import BrokerSessions
from ottla.controller.settings_in_force import topic_default
from ottla.metadata import fold
from ottla.metadata.features import bootstrap_records
from ottla.metadata.image import EMPTY, MetadataImage
from ottla.metadata.records import Record
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NO_OFFSET, Epoch, Offset
from ottla.model.seams import Clock, Rng
from ottla.model.settings.controller import ControllerConfig
from ottla.node.quorum_driver import QuorumMember
from ottla.proto import controller_pb2 as pb
from ottla.raft.progress import ReplicaStatus as RaftReplicaStatus
from ottla.raft.voters import QuorumIdentity
from ottla.wire.codec_types import Message

_LOGGER = logging.getLogger(__name__)

R = TypeVar("R")

UNKNOWN_INSTANT_MS = -1


class Controller:
    """This node as controller: active while its quorum member leads, else refusing."""

    def __init__(
        self,
        member: QuorumMember,
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
        self._sessions = BrokerSessions(config.session_timeout_ms)
        self._deciding = trio.Lock()
        self._epoch: Epoch | None = None
        self._speculative: MetadataImage = EMPTY
        self._last_appended = NO_OFFSET
        self._turn = trio.Event()
        """Set, and replaced, whenever this node becomes or ceases to be the controller."""

    # --- requests --------------------------------------------------------------------------

    async def register(self, request: pb.RegisterRequest) -> pb.RegisterResponse:
        """Register a broker."""
        return await self.decide(
            lambda image, next_offset: brokers.register(
                image,
                self._config,
                self._sessions,
                request,
                cluster_id=self._identity.cluster_id,
                next_offset=next_offset,
                now_ms=self._clock.monotonic_ms(),
            )
        )

    async def heartbeat(self, request: pb.HeartbeatRequest) -> pb.HeartbeatResponse:
        """Keep a broker's session, and move it to the state it wants if it may."""
        return await self.decide(
            lambda image, next_offset: brokers.heartbeat(
                image,
                self._config,
                self._sessions,
                request,
                next_offset=next_offset,
                now_ms=self._clock.monotonic_ms(),
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

    async def forwarded(self, api_key: int, api_version: int, request: Message) -> Message:
        """Decide a client's request that a broker passed on."""
        return await self.decide(
            lambda image, _: forward.decide(image, api_key, api_version, request, self._context)
        )

    # --- the one way in --------------------------------------------------------------------

    async def decide(self, make: Callable[[MetadataImage, Offset], Decision[R]]) -> R:
        """Make a decision on the image and the offset of its first record; reply when committed.

        NOT_CONTROLLER while this node is not active, or when it ceases to be before the commit:
        the decision may or may not hold then.
        """
        async with self._deciding:
            epoch = await self._ready_epoch()
            decision = make(self._speculative, self._member.end_offset)
            if decision.records:
                await self._append(decision.records, epoch)
            last_offset = self._last_appended
        try:
            await self._member.wait_committed(last_offset, epoch)
        except RefusedError as refusal:
            raise not_controller() from refusal
        return decision.reply

    async def _ready_epoch(self) -> Epoch:
        """Return the epoch to append in, with a new cluster's first records written."""
        epoch = self._epoch
        if epoch is None:
            raise not_controller()
        if not self._speculative.features:
            minimum = topic_default(EMPTY, self._config, "min.insync.replicas").value
            assert minimum is not None
            await self._append(bootstrap_records(min_insync_replicas=int(minimum)), epoch)
        return epoch

    async def _append(self, records: tuple[Record, ...], epoch: Epoch) -> None:
        # What would not fold must not be written: it is folded first.
        image = fold.apply_all(self._speculative, records)
        try:
            last_offset = await self._member.append(records, epoch)
        except RefusedError as refusal:
            if refusal.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise not_controller() from refusal
            raise
        if self._epoch != epoch:
            raise not_controller()
        self._speculative = image
        self._last_appended = last_offset

    # --- tasks -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Be the controller whenever the quorum elects this node."""
        self._member.on_leadership(self._on_leadership)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write_first_records)
            nursery.start_soon(self._fence_silent_brokers)
            nursery.start_soon(self._elect_periodically)

    async def wait_active(self) -> None:
        """Wait until this node leads a cluster whose first records are committed."""
        while True:
            turn = self._turn
            if self._epoch is not None and await self._attempt(_nothing):
                return
            await turn.wait()

    def _on_leadership(self, epoch: Epoch | None) -> None:
        self._epoch = epoch
        if epoch is None:
            self._speculative = EMPTY
            _LOGGER.info("no longer the active controller")
        else:
            self._speculative = self._member.image
            self._last_appended = Offset(self._member.applied_end_offset - 1)
            self._sessions.reset(self._speculative, self._clock.monotonic_ms())
            _LOGGER.info("active controller in epoch %s", epoch)
        turn, self._turn = self._turn, trio.Event()
        turn.set()

    async def _write_first_records(self) -> None:
        """Have a new cluster's first records written as soon as there is an active controller."""
        while True:
            turn = self._turn
            if self._epoch is not None:
                await self._attempt(_nothing)
            await turn.wait()

    async def _fence_silent_brokers(self) -> None:
        """Sleep until the next session could end: none can begin and end meanwhile."""
        while True:
            now_ms = self._clock.monotonic_ms()
            expiry_ms = self._sessions.next_expiry_ms(self._speculative)
            latest_ms = now_ms + self._config.session_timeout_ms
            wake_ms = latest_ms if expiry_ms is None else min(expiry_ms, latest_ms)
            await trio.sleep(max(1, wake_ms - now_ms) / 1000)
            if self._sessions.expired(self._speculative, self._clock.monotonic_ms()):
                await self._attempt(self._fence)

    def _fence(self, image: MetadataImage, _next_offset: Offset) -> Decision[None]:
        now_ms = self._clock.monotonic_ms()
        decision = brokers.fence_expired(image, self._config, self._sessions, now_ms)
        _LOGGER.info("fencing brokers %s: their sessions ended", decision.reply)
        return Decision(decision.records, None)

    async def _elect_periodically(self) -> None:
        interval_s = self._config.leader_imbalance_check_interval_seconds
        while True:
            await trio.sleep(interval_s)
            await self._attempt(
                lambda image, _: Decision(elections.rebalance(image, self._config), None)
            )
            await self._attempt(
                lambda image, _: Decision(
                    elections.elect_where_nobody_leads(image, self._config), None
                )
            )

    async def _attempt(self, make: Callable[[MetadataImage, Offset], Decision[None]]) -> bool:
        """Decide something of our own; say whether we were the controller for it."""
        try:
            await self.decide(make)
        except RefusedError as refusal:
            if refusal.code is not ErrorCode.NOT_CONTROLLER:
                raise
            return False
        return True

    # --- what DescribeQuorum tells -----------------------------------------------------------

    def _quorum_status(self) -> QuorumStatus:
        description = self._member.describe()
        if description is None:
            raise not_controller()
        return QuorumStatus(
            leader_id=description.leader_id,
            leader_epoch=description.leader_epoch,
            high_watermark=description.high_watermark,
            voters=tuple(self._replica_status(status) for status in description.voters),
            observers=tuple(self._replica_status(status) for status in description.observers),
        )

    def _replica_status(self, status: RaftReplicaStatus) -> ReplicaStatus:
        endpoints = self._identity.voters.endpoints_of(status.key.id)
        return ReplicaStatus(
            id=status.key.id,
            directory_id=status.key.directory_id,
            end_offset=status.end_offset,
            last_fetch_ms=self._wall_ms(status.last_fetch_ms),
            last_caught_up_ms=self._wall_ms(status.last_caught_up_ms),
            endpoints=tuple((name, host, port) for name, host, port in endpoints),
        )

    def _wall_ms(self, monotonic_ms: int) -> int:
        """Return when a monotonic instant was, by the wall clock's present idea."""
        if monotonic_ms == UNKNOWN_INSTANT_MS:
            return UNKNOWN_INSTANT_MS
        return self._clock.wall_ms() - (self._clock.monotonic_ms() - monotonic_ms)


def _nothing(_image: MetadataImage, _next_offset: Offset) -> Decision[None]:
    return Decision((), None)


def not_controller() -> RefusedError:
    """Return the refusal that sends a broker to another controller."""
    return RefusedError(ErrorCode.NOT_CONTROLLER)
