"""The consumer: reads partitions in order, from where it is told to.

`async with open_consumer(…) as consumer`, then `assign` (or `subscribe`, as a member of a group),
then `poll` or `async for`.  Records are fetched ahead in the background; a position moves when a
record is handed out.  Errors that nothing can mend come out of the next poll.
"""

import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import NoReturn, TypeVar

import trio

from ottla.client.fetch.fetch_link import FetchLink
from ottla.client.fetch.offset_lookup import FoundOffset, find_offsets
from ottla.client.fetch.positions import PartitionPlace, Positions
from ottla.client.fetch.record_batch import ConsumerRecord, RecordBatch
from ottla.client.groups.committer import PendingCommit
from ottla.client.groups.group import LEAVE_PATIENCE_S, NO_LONGER_OURS, Group
from ottla.client.groups.group_member import Membership
from ottla.client.groups.group_offsets import Committed
from ottla.client.groups.handover import Listener
from ottla.client.groups.subscription import Subscription, SubscriptionPattern
from ottla.client.instrumentation.detect import instrumented
from ottla.client.instrumentation.metric_sources import report_consumer
from ottla.client.instrumentation.metrics_push import (
    MetricsPush,
    ReportingClient,
    open_metrics_push,
)
from ottla.client.network.arguments import check_all_calls
from ottla.client.network.background import Bell, Turn, now_ms, open_background
from ottla.client.network.bootstrap import addresses_of, config_of
from ottla.client.network.cluster import Cluster, open_cluster
from ottla.client.network.connection import ConnectionLostError
from ottla.client.telemetry.client_metrics import ClientKind
from ottla.client.telemetry.measures import PollIdleTime
from ottla.model.errors import ErrorCode, ProtocolError, RefusedError
from ottla.model.ids import NO_EPOCH, Epoch, NodeId, Offset, OffsetAndEpoch, TopicPartition
from ottla.model.settings.client import ConsumerConfig
from ottla.model.settings.offset_reset import parse_offset_reset
from ottla.wire.offset_timestamps import EARLIEST, LATEST

TRACED = "ottla.client.traced_consumer:TracedConsumer"
"""The consumer of programs that have set an OpenTelemetry provider."""

T = TypeVar("T")

RECORDS_PER_LOOK = 64
"""How many records the iterator gives before it is looked whether others get their turn."""


class Consumer(ReportingClient):
    """A consumer at work; made by `open_consumer`."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        nursery: trio.Nursery,
        *,
        metrics_push: MetricsPush | None = None,
    ) -> None:
        # One answer is read while the next one comes.
        self.positions = Positions(
            parse_offset_reset(config.auto_offset_reset),
            2 * config.partition_bytes_max,
            retry_backoff_ms=config.retry_backoff_ms,
            wall_ms=lambda: time.time_ns() // 1_000_000,
        )
        """Partitions that are read, and where each stands; for the client's own use."""
        self._cluster = cluster
        self._config = config
        self._nursery = nursery
        self._links: dict[NodeId, FetchLink] = {}
        self._bell = Bell()
        self._records = trio.lowlevel.ParkingLot()
        self._placed = trio.lowlevel.ParkingLot()
        self._failures: deque[Exception | PendingCommit] = deque(maxlen=100)
        self._stale: set[str] = set()
        self._ask_again_ms = 0
        """Before this instant nobody is asked again for leaders that there are none of."""
        self._records_left = 0
        """How many the iterator gives before it is looked whether others get their turn."""
        self._turn = Turn()
        self._group: Group | None = None
        if config.group_id is not None:
            self._group = Group(
                config.group_id,
                cluster=cluster,
                positions=self.positions,
                config=config,
                on_assigned=self._on_moved,
                on_failure=self._fail,
            )
            nursery.start_soon(self._group.commit_on)
            nursery.start_soon(self._group.run)
        self._idle = PollIdleTime(trio.current_time())
        if metrics_push is not None:
            report_consumer(metrics_push, self.positions, self._group, self._idle)
            self.metrics_push = metrics_push

    # What is read.

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions it reads."""
        return frozenset(self.positions)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions and no others; those that stay keep their position.

        With a `group.id` it begins where that group has committed, but joins nobody.
        """
        if self._group is not None and self._group.is_subscribed:
            raise RefusedError(ErrorCode.INVALID_REQUEST, "the group assigns what is read")
        self.positions.assign(partitions)
        self._ring_all()

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | SubscriptionPattern | None = None,
        exclude: str | None = None,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Share these topics, or all whose whole name matches a pattern, with the group.

        A pattern of Python's is matched here; a `SubscriptionPattern`, of RE2, by the coordinator
        (`group.protocol=consumer`).  Topics whose whole name matches `exclude`, a pattern of
        Python's too, are left out of the former; new topics are treated alike.

        The callbacks are awaited while the application waits for records: with partitions that
        come, and with those that go, before they go; in `on_revoked` they may still be committed.
        `on_lost` (`on_revoked` where none is given) is told at once of partitions that somebody
        else may already have; it is too late to commit them.
        """
        group = self._member_of()
        topics = tuple(topics)
        if not topics and pattern is None:
            raise ValueError("subscribe needs topics or a pattern; unsubscribe() leaves the group")
        if topics and pattern is not None:
            raise ValueError("subscribe takes topics or a pattern, not both")
        group.subscribe(Subscription(None if pattern else topics, pattern, exclude))
        handover = group.handover
        handover.on_assigned, handover.on_revoked, handover.on_lost = (
            on_assigned,
            on_revoked,
            on_lost,
        )

    async def unsubscribe(self) -> None:
        """Leave the group, having committed what is processed if that is automatic."""
        await self._member_of().leave(has_processed=True)

    def pause(self, *partitions: TopicPartition) -> None:
        """Neither fetch nor hand out these until `resume`; what is fetched ahead is kept."""
        for at in partitions:
            self.positions.place(at).is_paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with these."""
        for at in partitions:
            self.positions.place(at).is_paused = False
        self._records.unpark_all()
        self._ring_all()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return frozenset(at for at in self.positions if self.positions.place(at).is_paused)

    # Where it reads.

    def seek(self, at: TopicPartition, offset: int, leader_epoch: int = NO_EPOCH) -> None:
        """Go on at this offset; with the epoch of the record before it, a truncation is noticed."""
        if offset < 0:
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"there is no offset {offset}")
        self.positions.seek(at, Offset(offset), Epoch(leader_epoch))
        self._ring_all()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the first offset there is, in these partitions or in all."""
        for at in partitions or tuple(self.positions):
            self.positions.look_up(at, EARLIEST)
        self._ring_all()

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on at the end as it is when it is looked up, in these partitions or in all."""
        for at in partitions or tuple(self.positions):
            self.positions.look_up(at, LATEST)
        self._ring_all()

    def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Go on at the first record of that time or later, and at the end where there is none."""
        for at in partitions or tuple(self.positions):
            self.positions.look_up(at, max(0, timestamp_ms))
        self._ring_all()

    async def position(self, at: TopicPartition) -> Offset:
        """Return the offset of the next record, waiting until it is known."""
        place = self.positions.place(at)
        await trio.lowlevel.checkpoint()
        with trio.move_on_after(self._config.default_api_timeout_ms / 1_000):
            while place.position is None:
                self._raise_failure()
                await self._placed.park()
                place = self.positions.place(at)
        if place.position is None:
            raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, f"the position of {at} is not known")
        return place.position.offset

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Offset]:
        """Return the first offset of each partition."""
        found = await self.offsets_for_times(dict.fromkeys(partitions, EARLIEST))
        return {at: one.offset for at, one in found.items()}

    async def end_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Offset]:
        """Return the offset behind the last record that may be read of each partition."""
        found = await self.offsets_for_times(dict.fromkeys(partitions, LATEST))
        return {at: one.offset for at, one in found.items()}

    async def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, FoundOffset]:
        """Return the first offset at or after a time in ms, -1 where there is none so late."""
        return await find_offsets(
            self._cluster,
            times_ms,
            isolation_level=self._config.isolation_level,
            timeout_s=self._config.default_api_timeout_ms / 1_000,
        )

    # Committing.

    async def commit(self, offsets: Mapping[TopicPartition, int | Committed] | None = None) -> None:
        """Commit the positions, or these offsets (of the next record to process each).

        RefusedError ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH or
        REBALANCE_IN_PROGRESS: it came too late, somebody else may read the partitions from the last
        commit on.
        """
        await trio.lowlevel.checkpoint()
        await self._commit(offsets, is_awaited=True)

    def commit_async(
        self, offsets: Mapping[TopicPartition, int | Committed] | None = None
    ) -> PendingCommit:
        """Commit the same behind the application's back: await what this returns, or do not.

        Commits reach the coordinator in the order in which they were asked for.  An error that
        nobody awaits comes out of the next poll.  Before partitions go, and at the end of the
        block, all commits are waited for.
        """
        return self._commit(offsets, is_awaited=False)

    def _commit(
        self, offsets: Mapping[TopicPartition, int | Committed] | None, *, is_awaited: bool
    ) -> PendingCommit:
        group = self._member_of()
        if offsets is None:
            found = group.processed()
        else:
            found = {
                at: one if isinstance(one, Committed) else Committed(Offset(one))
                for at, one in offsets.items()
            }
        return group.commit(found, is_awaited=is_awaited)

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Committed]:
        """Return what the group has committed; partitions without a commit are absent."""
        return await self._member_of().committed(partitions)

    def group_metadata(self) -> Membership:
        """Return as whom it commits now: group, member id and generation (KIP-848: epoch).

        RefusedError when it is in no group at present.
        """
        membership = self._member_of().driver.membership()
        return membership._replace(group_id=self._config.group_id or "")

    @property
    def coordinator_address(self) -> str | None:
        """Where the group's coordinator was found, `host:port`; None when it is looked for."""
        return self._member_of().coordinator_address

    def _member_of(self) -> Group:
        if self._group is None:
            raise RefusedError(ErrorCode.INVALID_GROUP_ID, "the consumer has no group.id")
        return self._group

    # Reading.

    async def poll(
        self, timeout_s: float | None = None, *, record_count_max: int | None = None
    ) -> list[ConsumerRecord]:
        """Return the next records, waiting for the first of them; none when the time is over."""
        count = self._config.poll_records_max if record_count_max is None else record_count_max
        if count < 1:
            raise ValueError(f"record_count_max is {count}; it must be at least 1")
        await self._turn.end_if_over()
        return await self._next(count, timeout_s)

    async def poll_batches(
        self,
        timeout_s: float | None = None,
        *,
        record_count_max: int | None = None,
        bytes_max: int | None = None,
    ) -> list[RecordBatch]:
        """Return the same records as batches, each of one partition: `for value in batch.values`.

        For a fraction of the CPU of `poll`: only the columns that are asked for are made.  Together
        they have at most `record_count_max` records (`max.poll.records` if left out) of about
        `bytes_max` bytes, at least one record.  Positions, commits and all else are as of `poll`.
        """
        count = self._config.poll_records_max if record_count_max is None else record_count_max
        if count < 1:
            raise ValueError(f"record_count_max is {count}; it must be at least 1")
        if bytes_max is not None and bytes_max < 1:
            raise ValueError(f"bytes_max is {bytes_max}; it must be at least 1")
        self.positions.decoder.expect_many()
        await self._turn.end_if_over()
        return await self._next_batches(count, bytes_max, timeout_s)

    def processing(self, record: ConsumerRecord) -> AbstractContextManager[None]:
        """Make a block the processing of a record: `with consumer.processing(record):`.

        Where the program has set an OpenTelemetry provider, the block is a span, the child of the
        span that sent the record, and current inside the block.  Elsewhere it does nothing.
        """
        return nullcontext()

    def __aiter__(self) -> "Consumer":
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Return the next record; the one before counts as processed now."""
        self._records_left -= 1
        if self._records_left <= 0:
            self._records_left = RECORDS_PER_LOOK
            await self._turn.end_if_over()
        group = self._group
        if group is not None:
            group.on_poll()
        if not self._failures and (group is None or not group.handover.is_held):
            record = self.positions.take_one()
            if record is not None:
                return record
        return (await self._next(1))[0]

    async def _next(self, count: int, timeout_s: float | None = None) -> list[ConsumerRecord]:
        positions = self.positions
        return await self._next_of(lambda: positions.take(count), timeout_s)

    async def _next_batches(
        self, count: int, size_bytes: int | None, timeout_s: float | None
    ) -> list[RecordBatch]:
        positions = self.positions
        return await self._next_of(lambda: positions.take_batches(count, size_bytes), timeout_s)

    async def _next_of(self, take: Callable[[], list[T]], timeout_s: float | None) -> list[T]:
        """Return what there is, or else what arrives first; nothing when the time is over."""
        group = self._group
        if group is not None:
            group.on_poll()
        if found := self._take(take):
            return found
        if group is not None:
            group.handover.set_waiting(True)
        self._idle.begin(trio.current_time())
        try:
            if timeout_s is None:  # a scope costs as much as some dozens of records
                return await self._first_of(take)
            with trio.CancelScope(deadline=trio.current_time() + timeout_s):
                return await self._first_of(take)
            return []
        finally:
            self._idle.end(trio.current_time())
            if group is not None:
                group.handover.set_waiting(False)

    async def _first_of(self, take: Callable[[], list[T]]) -> list[T]:
        """Return what arrives first."""
        while not (found := self._take(take)):
            await self._records.park()
        return found

    def _take(self, take: Callable[[], list[T]]) -> list[T]:
        if self._failures:
            self._raise_failure()
        if self._group is not None and self._group.handover.is_held:
            return []
        found = take()
        if self.positions.has_hunger():
            for link in self._links.values():
                link.bell.ring()
        return found

    def _raise_failure(self) -> None:
        while self._failures:
            failure = self._failures.popleft()
            if not isinstance(failure, PendingCommit):
                raise failure
            if not failure.is_watched:
                failure.result()

    # Behind the scenes.

    async def run(self) -> NoReturn:
        """Look up positions and leaders; `open_consumer` runs it."""
        refresh_ms = now_ms() + self._config.metadata_age_ms_max
        while True:
            now = now_ms()
            unknown = {at.topic for at in self.positions if self._cluster.known_leader(at) is None}
            is_old = now >= refresh_ms
            if is_old or self._stale or (unknown and now >= self._ask_again_ms):
                refresh_ms = now + self._config.metadata_age_ms_max
                await self._refresh(self._stale | unknown, is_whole=is_old)
            elif places := [one for one in self._placeable() if one.look_up_from_ms <= now]:
                await self._find_places(places)
            else:
                self._ring_links()
                due_ms = [refresh_ms, *(one.look_up_from_ms for one in self._placeable())]
                await self._bell.wait(min(*due_ms, self._ask_again_ms) if unknown else min(due_ms))

    def _placeable(self) -> list[PartitionPlace]:
        """Return what can be looked up: a partition without a leader holds up no other one."""
        known_leader = self._cluster.known_leader
        return [place for place in self.positions.unplaced() if known_leader(place.at) is not None]

    async def _refresh(self, topics: set[str], *, is_whole: bool) -> None:
        wanted: set[str] | None = set(topics)
        if is_whole:
            of_group = frozenset() if self._group is None else self._group.topics
            assigned = {at.topic for at in self.positions}
            wanted = None if of_group is None else topics | assigned | of_group
        try:
            await self._cluster.metadata(wanted)
            self._stale -= topics
        except (ConnectionLostError, ProtocolError):
            await trio.sleep(self._config.retry_backoff_ms / 1_000)
            return
        self._ask_again_ms = now_ms() + self._config.retry_backoff_ms
        if self._group is not None:
            self._group.on_metadata()
        self._ring_links()

    async def _find_places(self, places: list[PartitionPlace]) -> None:
        turns = {place.at: place.turn for place in places}
        try:
            if self._group is not None:
                begin = [place for place in places if place.lookup is None]
                committed = await self._group.committed([place.at for place in begin])
                for place in begin:
                    if place.at in committed:
                        one = committed[place.at]
                        self._place(
                            place, turns[place.at], OffsetAndEpoch(one.offset, one.leader_epoch)
                        )
            await self._look_up([place for place in places if place.position is None], turns)
        except (RefusedError, ConnectionLostError) as error:
            if isinstance(error, RefusedError) and error.code not in NO_LONGER_OURS:
                self._fail(error)
            await trio.sleep(self._config.retry_backoff_ms / 1_000)

    async def _look_up(
        self, places: list[PartitionPlace], turns: Mapping[TopicPartition, int]
    ) -> None:
        times = {place.at: self.positions.reset_of(place) for place in places}
        found = await find_offsets(
            self._cluster,
            times,
            isolation_level=self._config.isolation_level,
            timeout_s=self._config.request_timeout_ms / 1_000,
            retry_wait_s=self._config.retry_backoff_ms / 1_000,
        )
        late = [at for at, one in found.items() if one.offset < 0]
        if late:
            found |= await find_offsets(
                self._cluster,
                dict.fromkeys(late, LATEST),
                isolation_level=self._config.isolation_level,
            )
        for place in places:
            # The epoch that comes with an offset is of the record there, not the one before it.
            self._place(place, turns[place.at], OffsetAndEpoch(found[place.at].offset, NO_EPOCH))

    def _place(self, place: PartitionPlace, turn: int, position: OffsetAndEpoch) -> None:
        self.positions.on_placed(place, turn, position)
        self._placed.unpark_all()

    def _fail(self, error: Exception | PendingCommit) -> None:
        self._failures.append(error)
        self._records.unpark_all()
        self._placed.unpark_all()

    def _on_records(self) -> None:
        self._records.unpark_all()

    def _on_moved(self) -> None:
        self._records.unpark_all()
        self._ring_all()

    def _on_stale(self, topic: str) -> None:
        self._stale.add(topic)
        self._bell.ring()

    async def leave(self, *, has_processed: bool) -> None:
        """Leave the group, if there is one; `open_consumer` does it at the end of the block."""
        if self._group is not None:
            await self._group.leave(has_processed=has_processed)

    def _ring_all(self) -> None:
        self._bell.ring()
        self._ring_links()

    def _ring_links(self) -> None:
        for at in self.positions:
            leader = self._cluster.known_leader(at)
            if leader is not None and leader.node not in self._links:
                link = self._links[leader.node] = FetchLink(
                    leader.node,
                    cluster=self._cluster,
                    positions=self.positions,
                    config=self._config,
                    on_records=self._on_records,
                    on_moved=self._on_moved,
                    on_stale=self._on_stale,
                    on_failure=self._fail,
                )
                self._nursery.start_soon(link.run)
        for link in self._links.values():
            link.bell.ring()


check_all_calls(Consumer)


@asynccontextmanager
async def open_consumer(
    bootstrap: str | Iterable[str | tuple[str, int]], config: ConsumerConfig | None = None
) -> AsyncIterator[Consumer]:
    """Open a consumer; `bootstrap` is `host:port,…` of any brokers (port 9092 if left out).

    It starts without asking anybody: the first assignment does.  At the end of the block a member
    leaves its group, having committed what is processed if that is automatic; after an error it
    leaves without.
    """
    config = config_of(config, ConsumerConfig)
    async with (
        open_cluster(
            addresses_of(bootstrap),
            client_id=config.client_id,
            request_timeout_s=config.request_timeout_ms / 1_000,
            login=config.login(),
            tls=config.tls(),
        ) as cluster,
        open_metrics_push(
            cluster, ClientKind.CONSUMER, is_enabled=config.enable_metrics_push
        ) as metrics_push,
    ):
        consumer: Consumer | None = None
        try:
            async with open_background() as nursery:
                consumer = instrumented(Consumer, TRACED)(
                    cluster, config, nursery, metrics_push=metrics_push
                )
                nursery.start_soon(consumer.run)
                yield consumer
                await consumer.leave(has_processed=True)
        finally:
            # After an error the last records may not be processed; the others need not wait for us.
            if consumer is not None:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + LEAVE_PATIENCE_S):
                    await consumer.leave(has_processed=False)
