"""Follower tasks: one task and one connection for each leader that this broker follows.

Each task sends a fetch, applies the response partition by partition and runs the resulting disk
work (`follower_duties_driver`). Then it fetches again. A task stops following a partition
immediately: its caller waits for disk work on the log, but not for the network. A new partition is
fetched without waiting for the end of a long poll.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial

import trio

from ottla.broker.cluster.peer_connection_driver import expected_peer
from ottla.broker.quotas.replication_quota import ReplicationQuota
from ottla.broker.replicas.follower_duties import DiskDuty
from ottla.broker.replicas.follower_duties_driver import FollowerDuties
from ottla.broker.replicas.follower_fetch import (
    BeginAfterTier,
    FindLogRange,
    FindTierStart,
    Flush,
    FollowedPartition,
    FollowerFetch,
    RaiseStart,
    Truncate,
    TruncateFully,
    place_of,
)
from ottla.broker.replicas.leader_offsets_driver import LeaderOffsets
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.broker.replicas.tier_start import NoTierStarts, TierStarts
from ottla.client.network.connection import BrokerConnection, ConnectionLostError, open_connection
from ottla.client.network.login import starter_of
from ottla.model.errors import (
    ErrorCode,
    OttlaError,
    ProtocolError,
    RefusedError,
    only_error,
)
from ottla.model.ids import NO_NODE, NodeId, Offset, TopicIdPartition
from ottla.model.seams import Clock
from ottla.model.settings.broker import BrokerConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.part_registry import PartRegistry
from ottla.telemetry.metrics.instruments import Family
from ottla.telemetry.metrics.kafka_families import gauges
from ottla.wire.messages.fetch_request import FetchRequest
from ottla.wire.messages.fetch_response import FetchResponse
from ottla.wire.offset_timestamps import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
)

logger = logging.getLogger("ottla.broker.replicas")

CONNECT_TIMEOUT_S = 5.0
RECONNECT_MS_FIRST = 20
RECONNECT_MS_MAX = 1_000
"""Maximum milliseconds between two attempts of a follower to connect to a leader. With a smaller
value, a restarted leader is found sooner. With a larger value, fewer attempts are made while a
machine is down."""

FAILURES_TOLERATED = 6
"""Number of consecutive failures to fetch from a leader after which the failure is logged, once.
This number of failures takes about two seconds."""

Left = Callable[[], Awaitable[None]]
"""Function that waits until disk work has ended on the log of a partition that is no longer
followed."""

LONG_POLL_MS = 20
"""Milliseconds after which a follower's unanswered fetch counts as a long poll. The fetcher may
then abandon the fetch for a request that includes more partitions. With a smaller value, it
abandons responses that are already being sent. A larger value delays failovers."""

TURN_BYTES = 1 << 20
"""Number of bytes of fetched records that a follower appends per event-loop iteration. Other tasks
run before the next iteration."""

PARTITIONS_PER_SLICE = 1_000
"""Number of followed partitions that are read for metrics before other tasks run."""


class ReplicaFetchers:
    """Partitions that this broker follows, and one fetcher for each of their leaders."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        table: PartitionTable,
        clock: Clock,
        broker_epoch: Callable[[], int],
        quota: ReplicationQuota,
        errors: UnexpectedErrors | None = None,
    ) -> None:
        """Create the fetchers of this broker's followers, without partitions at first. `quota` is
        the replication quota for throttled replicas, shared by all leaders."""
        self.tier_starts: TierStarts = NoTierStarts()
        """Finder of the copied segment after which a follower's log begins."""
        self._config = config
        self._quota = quota
        self._table = table
        self._clock = clock
        self._broker_epoch = broker_epoch
        self._errors = errors or UnexpectedErrors()
        self._fetchers: dict[NodeId, LeaderFetcher] = {}
        self._of: dict[TopicIdPartition, LeaderFetcher] = {}
        self._nursery: trio.Nursery | None = None
        self._start_soon: Callable[..., None]

    def __len__(self) -> int:
        return len(self._of)

    def register_with(self, parts: PartRegistry) -> None:
        """Register the background task that fetches from leaders, its metrics and its problem
        reports."""
        parts.task("follower", self.run)
        parts.families(self.families)
        parts.figures(lambda: {"partitions.followed": len(self)})
        parts.problems(self.problems)

    def families(self) -> Iterator[Family | None]:
        """Yield the metric families of followers. Yields None between slices of partitions, where
        the caller may pause."""
        longest = 0
        for at, followed in enumerate(self.followed()):
            if not at % PARTITIONS_PER_SLICE:
                yield None
            longest = max(longest, followed.lag)
        manager = "kafka.server:type=ReplicaFetcherManager,name="
        for name, text, value in (
            ("MaxLag", "Most committed records that a follower on this broker lacks.", longest),
            (
                "FailedPartitionsCount",
                "Partitions whose replication failed and is paused until its next retry.",
                self.failed_count,
            ),
        ):
            yield gauges(f"{manager}{name}", text, ("clientId",), ((("Replica",), value),))

    async def run(self) -> None:
        """Fetch records from the leaders of all followed partitions until cancelled."""
        async with trio.open_nursery() as nursery:
            self._start_soon = starter_of(nursery)
            self._nursery = nursery
            for fetcher in self._fetchers.values():
                self._start_soon(fetcher.run)
            try:
                await trio.sleep_forever()
            finally:
                # Before the nursery closes, since metadata may still add partitions to follow.
                self._nursery = None

    def follow(self, partition: Partition) -> None:
        """Start to fetch a partition from its leader. Has no effect if the partition is followed
        already. The partition must have a log."""
        key = partition.key
        leader_id = partition.leader_id
        if key in self._of or leader_id in (NO_NODE, self._config.node_id):
            return
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = LeaderFetcher(
                FollowerFetch(leader_id, self._config, self._quota),
                self._config,
                table=self._table,
                clock=self._clock,
                broker_epoch=self._broker_epoch,
                tier_starts=lambda: self.tier_starts,
                errors=self._errors,
            )
            if self._nursery is not None:
                self._start_soon(fetcher.run)
        self._of[key] = fetcher
        fetcher.follow(partition)

    def leave(self, partitions: Iterable[TopicIdPartition]) -> dict[TopicIdPartition, Left]:
        """Stop following partitions. Returns a wait function for each partition whose log is still
        being changed by disk work. The function returns when the disk work has ended."""
        busy: dict[TopicIdPartition, Left] = {}
        for key in partitions:
            fetcher = self._of.pop(key, None)
            followed = None if fetcher is None else fetcher.core.leave(key)
            if fetcher is None or followed is None:
                continue
            if fetcher.duties.is_changing(followed):
                busy[key] = partial(fetcher.duties.wait_done_with, followed)
            if not len(fetcher.core):
                del self._fetchers[fetcher.core.leader_id]
                fetcher.stop()
        return busy

    def followed(self) -> Iterator[FollowedPartition]:
        """Yield the state of every partition that this broker follows."""
        for fetcher in list(self._fetchers.values()):
            yield from list(fetcher.core.followed)

    @property
    def failed_count(self) -> int:
        """Number of followed partitions that failed and are not fetched until their retry."""
        return sum(fetcher.core.failed_count for fetcher in self._fetchers.values())

    def problems(self) -> Iterator[str]:
        """Yield a problem description for each leader or partition that cannot be followed."""
        for fetcher in self._fetchers.values():
            yield from fetcher.problems()


class LeaderFetcher:
    """Fetches partitions from one leader. Its task ends when this broker follows no partition of
    that leader."""

    def __init__(
        self,
        core: FollowerFetch,
        config: BrokerConfig,
        *,
        table: PartitionTable,
        clock: Clock,
        broker_epoch: Callable[[], int],
        tier_starts: Callable[[], TierStarts],
        errors: UnexpectedErrors,
    ) -> None:
        self.core = core
        self._tier_starts = tier_starts
        self._config = config
        self._table = table
        self._clock = clock
        self._broker_epoch = broker_epoch
        self._errors = errors
        self._scope = trio.CancelScope()
        self._asking: trio.CancelScope | None = None
        self._asked_at = 0.0
        self._is_new_wanted = False
        self._has_more = trio.Event()
        self.duties = FollowerDuties(core, clock, errors, on_late=self._interrupt_long_poll)
        self._failure: str | None = None
        self._failure_count = 0
        """Number of failures to fetch since the leader's last response."""

    # ---- interface

    def follow(self, partition: Partition) -> None:
        """Follow one more partition. A fetch that waits at the leader is abandoned, since it does
        not include the partition."""
        self.core.follow(partition)
        self._interrupt_long_poll()

    def _interrupt_long_poll(self) -> None:
        """Abandon a fetch that waits at the leader, if it does not include a partition that must be
        fetched now."""
        self._has_more.set()
        if self._asking is not None:
            self._is_new_wanted = True
            parked_at = self._asked_at + LONG_POLL_MS / 1000
            self._asking.deadline = min(self._asking.deadline, parked_at)

    def stop(self) -> None:
        """Stop the task that fetches from this leader. Disk work in progress on the followers' logs
        is completed first."""
        self._scope.cancel()

    def problems(self) -> Iterator[str]:
        """Yield a problem description for each reason why the leader or one of its partitions
        cannot be followed."""
        if self._failure is not None:
            yield f"broker {self.core.leader_id} cannot be followed: {self._failure}"
        yield from self.core.problems()

    # ---- task

    async def run(self) -> None:
        """Send fetches to the leader and apply its responses. Reconnects whenever the connection is
        lost."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                self.duties.set_nursery(nursery)
                await self._follow_on()

    async def _follow_on(self) -> None:
        while True:
            try:
                host, port = self._address()
                async with open_connection(
                    host,
                    port,
                    client_id=self._client_id,
                    timeout_s=CONNECT_TIMEOUT_S,
                    expected=expected_peer(self.core.leader_id),
                ) as connection:
                    await self._fetch_over(connection)
            # `except*`, since a bug may arrive together with a cancellation, which continues.
            except* Exception as group:
                error = only_error(group)
                if not isinstance(error, OttlaError):
                    self._errors.note("follower", f"of broker {self.core.leader_id}", error)
                self._note_failure(error)
            if self._failure is not None:
                backoff_ms = RECONNECT_MS_FIRST << min(self._failure_count - 1, 16)
                await trio.sleep(min(backoff_ms, RECONNECT_MS_MAX) / 1000)
            self.core.session.reset()

    @property
    def _client_id(self) -> str:
        return f"broker-{self._config.node_id}-follower"

    def _address(self) -> tuple[str, int]:
        name = self._config.inter_broker_listener
        broker = self._table.image.brokers.get(self.core.leader_id)
        endpoint = None if broker is None else broker.endpoint(name)
        if endpoint is None:
            raise RefusedError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"it is not registered with a listener {name}"
            )
        return endpoint.host, endpoint.port

    def _note_failure(self, error: BaseException) -> None:
        self._failure = str(error) or repr(error)
        self._failure_count += 1
        if self._failure_count == FAILURES_TOLERATED:
            # A leader that restarts is back sooner than this, or no longer leads.
            logger.warning("broker %s cannot be followed: %s", self.core.leader_id, error)

    def _note_success(self) -> None:
        if self._failure_count >= FAILURES_TOLERATED:
            logger.warning("broker %s is followed again", self.core.leader_id)
        self._failure, self._failure_count = None, 0

    async def _fetch_over(self, connection: BrokerConnection) -> None:
        """Fetch from the leader over one connection. Returns when the connection is lost, or is
        closed to abandon a waiting fetch."""
        while True:
            self._has_more = trio.Event()
            await self._flush_all(self.core.take_unflushed())
            request = self.core.request(self._clock.monotonic_ms(), self._broker_epoch())
            if request is None:
                # A failed partition that is due for its retry may need a flush first.
                if not self.core.has_unflushed:
                    await self._wait_for_work()
                continue
            response = await self._answer(connection, request)
            if response is None:
                return
            if self._failure is not None:
                self._note_success()
            try:
                self.core.session.take(response)
            except RefusedError as error:
                logger.debug("fetch session with broker %s: %s", self.core.leader_id, error)
                await trio.lowlevel.checkpoint()
                continue
            await self._take(connection, response)

    async def _wait_for_work(self) -> None:
        retry_ms = self.core.next_retry_ms
        now_ms = self._clock.monotonic_ms()
        seconds = float("inf") if retry_ms is None else max(0, retry_ms - now_ms) / 1000
        with trio.move_on_after(seconds):
            await self._has_more.wait()

    async def _answer(
        self, connection: BrokerConnection, request: FetchRequest
    ) -> FetchResponse | None:
        """Return the leader's response to a fetch, or None if the fetch was abandoned for a
        different fetch."""
        patience_ms = self._config.replica_socket_timeout_ms + request.max_wait_ms
        retry_ms = self.core.next_retry_ms
        if retry_ms is not None:
            # The retry of a failed partition must not wait behind a long poll for the others.
            wait_ms = max(0, retry_ms - self._clock.monotonic_ms())
            request.max_wait_ms = min(request.max_wait_ms, wait_ms)
        self._is_new_wanted = False
        self._asked_at = trio.current_time()
        with trio.CancelScope(deadline=self._asked_at + patience_ms / 1000) as self._asking:
            try:
                return await connection.request(request, FetchResponse)
            finally:
                self._asking = None
        if self._is_new_wanted:
            return None
        raise ConnectionLostError(f"{connection.address} did not answer in {patience_ms} ms")

    async def _take(self, connection: BrokerConnection, response: FetchResponse) -> None:
        lost: list[FollowedPartition] = []
        tiered: list[FollowedPartition] = []
        turn_bytes = 0
        for topic in response.responses:
            for data in topic.partitions:
                followed = self.core.find(TopicIdPartition(topic.topic_id, data.partition_index))
                if followed is None:
                    continue
                try:
                    duty = self.core.take(
                        followed,
                        data,
                        now_ms=self._clock.monotonic_ms(),
                        wall_ms=self._clock.wall_ms(),
                    )
                except Exception as error:
                    self._mark_failed(followed, error)
                    continue
                if isinstance(duty, FindLogRange):
                    lost.append(followed)
                elif isinstance(duty, FindTierStart):
                    tiered.append(followed)
                elif duty is not None:
                    self.duties.begin(followed, duty)
                turn_bytes += 0 if data.records is None else len(data.records)
                if turn_bytes >= TURN_BYTES:
                    turn_bytes = 0
                    await trio.lowlevel.checkpoint()
        await self._find_places(connection, lost, self._place_of)
        await self._find_places(connection, tiered, self._begin_after_tier)
        await self.duties.wait()

    async def _flush_all(self, unflushed: list[FollowedPartition]) -> None:
        for followed in unflushed:
            self.duties.begin(followed, Flush())
        await self.duties.wait()

    # ---- position in the leader's log

    async def _find_places(
        self,
        connection: BrokerConnection,
        lost: list[FollowedPartition],
        place_of: Callable[[BrokerConnection, FollowedPartition], Awaitable[DiskDuty | None]],
    ) -> None:
        while lost:
            followed = lost[-1]
            try:
                duty = await place_of(connection, followed)
            except (ConnectionLostError, ProtocolError):
                for unplaced in lost:
                    self.core.done(unplaced)
                raise
            except OttlaError as error:
                self.core.mark_failed(followed, error, self._clock.monotonic_ms())
            except Exception as error:
                self._mark_failed(followed, error)
            else:
                if duty is not None:
                    self.duties.begin(followed, duty)
            lost.pop()

    def _mark_failed(self, followed: FollowedPartition, error: Exception) -> None:
        """Stop fetching a partition until its retry, because an unexpected exception (a bug) was
        raised. Other partitions are still fetched."""
        self._errors.note("partition", followed.name, error)
        self.core.mark_failed(followed, error, self._clock.monotonic_ms())

    async def _place_of(
        self, connection: BrokerConnection, followed: FollowedPartition
    ) -> Truncate | TruncateFully | RaiseStart | None:
        """Request the leader's log start and end offsets. Returns the work (`Duty`) that moves the
        follower's log into this range, or None."""
        leader = self._leader_offsets(connection, followed)
        end = (await leader.offset_of(LATEST)).offset
        start = (await leader.offset_of(EARLIEST)).offset
        if self.core.find(followed.key) is not followed:
            return None
        return place_of(followed, start, end)

    async def _begin_after_tier(
        self, connection: BrokerConnection, followed: FollowedPartition
    ) -> None:
        """Request the offset at which the leader's local records begin, and find the copied segment
        before this offset in the background. The partition's log then begins after that segment."""
        leader = self._leader_offsets(connection, followed)
        log = followed.log
        is_late_start = self._tier_starts().is_after_last and not log.end_offset
        target = await leader.offset_of(
            EARLIEST_PENDING_UPLOAD if is_late_start else EARLIEST_LOCAL
        )
        start = (await leader.offset_of(EARLIEST)).offset
        if target.offset < start or target.offset == 0:
            raise RefusedError(
                ErrorCode.OFFSET_NOT_AVAILABLE, "the leader does not know what is copied yet"
            )
        before = await leader.epoch_before(target)
        if self.core.find(followed.key) is not followed:
            return

        async def find() -> BeginAfterTier:
            previous = Offset(target.offset - 1)
            found = await self._tier_starts().find(followed.key, previous, before)
            return BeginAfterTier(found, start, self._clock.wall_ms())

        self.duties.begin_found(followed, find)

    def _leader_offsets(
        self, connection: BrokerConnection, followed: FollowedPartition
    ) -> LeaderOffsets:
        return LeaderOffsets(
            connection,
            followed.partition,
            leader_epoch=followed.leader_epoch,
            timeout_s=self._config.replica_socket_timeout_ms / 1000,
        )
