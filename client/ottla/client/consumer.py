"""The consumer: reads the records of partitions in order, from positions that it stores per
partition.

Open it with `async with open_consumer(…) as consumer`. Then call `assign`, or `subscribe` to join a
group, and read with `poll` or `async for`. The consumer fetches records ahead in the background; a
position advances when a record is returned. If a background task fails permanently, the next poll
raises its error.
"""

import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
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
from ottla.client.network.background import WakeUp, YieldTimer, now_ms, open_background
from ottla.client.network.bootstrap import addresses_of, config_of
from ottla.client.network.calls_of_others import CallsOfOthers
from ottla.client.network.client_block import client_block
from ottla.client.network.cluster import Cluster, open_cluster
from ottla.client.network.connection import ConnectionLostError
from ottla.client.network.missing_topics import (
    MissingTopics,
    missing_match_error,
    missing_topic_error,
)
from ottla.client.telemetry.client_metrics import ClientKind
from ottla.client.telemetry.measures import PollIdleTime
from ottla.model.errors import ErrorCode, ProtocolError, RefusedError
from ottla.model.ids import NO_EPOCH, Epoch, NodeId, Offset, OffsetAndEpoch, TopicPartition
from ottla.model.settings.client import ConsumerConfig
from ottla.model.settings.offset_reset import parse_offset_reset
from ottla.wire.offset_timestamps import EARLIEST, LATEST

LOG = logging.getLogger("ottla.client")

TRACED = "ottla.client.traced_consumer:TracedConsumer"
"""Import path of the consumer class that is used if the program has set an OpenTelemetry
provider."""

T = TypeVar("T")

RECORDS_PER_LOOK = 64
"""Number of records that the async iterator returns before it yields to other tasks. With a smaller
number, the iterator yields more often. A larger number delays other tasks."""


class Consumer(ReportingClient, CallsOfOthers):
    """An open consumer. Created by `open_consumer`."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        nursery: trio.Nursery,
        *,
        metrics_push: MetricsPush | None = None,
    ) -> None:
        # Twice the fetch size: one response is read while the next one arrives.
        self._positions = Positions(
            parse_offset_reset(config.auto_offset_reset),
            2 * config.partition_bytes_max,
            retry_backoff_ms=config.retry_backoff_ms,
            wall_ms=lambda: time.time_ns() // 1_000_000,
        )
        """The assigned partitions and their positions."""
        self._cluster = cluster
        self._config = config
        self._nursery = nursery
        self._links: dict[NodeId, FetchLink] = {}
        self._wake_up = WakeUp()
        self._records = trio.lowlevel.ParkingLot()
        self._placed = trio.lowlevel.ParkingLot()
        self._failures: deque[Exception | PendingCommit] = deque(maxlen=100)
        self._stale: set[str] = set()
        self._missing = MissingTopics()
        self._missing_error: RefusedError | None = None
        """Last error about a missing topic that was passed to `poll`."""
        self._ask_again_ms = 0
        """Earliest time, in ms, at which metadata may be requested again because partitions have no
        known leader."""
        self._records_left = 0
        """Records that the iterator may still return before it yields to other tasks."""
        self._yield_timer = YieldTimer()
        self._group: Group | None = None
        if config.group_id is not None:
            self._group = Group(
                config.group_id,
                cluster=cluster,
                positions=self._positions,
                config=config,
                on_assigned=self._on_moved,
                on_failure=self._fail,
            )
            nursery.start_soon(self._group.commit_on)
            nursery.start_soon(self._group.run)
        cluster.call_when_forgotten(self._wake_up.set)
        self._idle = PollIdleTime(trio.current_time())
        self._is_warned_of_source = False
        if metrics_push is not None:
            report_consumer(metrics_push, self._positions, self._group, self._idle)
            self._metrics_push = metrics_push

    # Assignment.

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are assigned to this consumer."""
        return frozenset(self._positions)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Replace the assigned partitions. Partitions that remain assigned keep their positions.

        If the consumer has a `group.id`, reading starts at the group's committed offsets, but the
        consumer does not join the group.
        """
        if self._group is not None and self._group.is_subscribed:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST, "the group assigns the partitions; unsubscribe first"
            )
        self._positions.assign(partitions)
        self._wake_all()

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
        """Join the group with a subscription to `topics`, or to all topics whose name matches
        `pattern`.

        A pattern must match the whole name. This client evaluates a Python pattern. The coordinator
        evaluates a `SubscriptionPattern` (RE2), which requires `group.protocol=consumer`. Topics
        that match a Python pattern are excluded if they also match the Python pattern `exclude`.
        Topics that are created later are matched in the same way.

        The callbacks are awaited while the application waits for records:
        - `on_assigned` receives partitions that were added.
        - `on_revoked` receives partitions before they are revoked; their offsets can still be
          committed.
        - `on_lost` receives partitions that another member may own already; it is too late to
          commit their offsets. Without `on_lost`, `on_revoked` receives them.
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
        self._wake_up.set()

    async def unsubscribe(self) -> None:
        """Leave the group.  With automatic commits, processed records are committed first."""
        await self._member_of().leave(has_processed=True)

    def pause(self, *partitions: TopicPartition) -> None:
        """Stop fetching and returning records of these partitions until `resume` is called for
        them.

        The consumer keeps records that it has already fetched.
        """
        for at in partitions:
            self._positions.place(at).is_paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Continue to fetch and return records of these partitions."""
        for at in partitions:
            self._positions.place(at).is_paused = False
        self._records.unpark_all()
        self._wake_all()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions for which `pause` is in effect."""
        return frozenset(at for at in self._positions if self._positions.place(at).is_paused)

    # Positions.

    def seek(self, at: TopicPartition, offset: int, leader_epoch: int = NO_EPOCH) -> None:
        """Continue reading a partition at an offset.

        `leader_epoch` is the leader epoch of the record before that offset. If it is known, the
        consumer can detect that the log was truncated.
        """
        if offset < 0:
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"there is no offset {offset}")
        self._positions.seek(at, Offset(offset), Epoch(leader_epoch))
        self._wake_all()

    async def _seek_back(self, records: Sequence[ConsumerRecord]) -> None:
        """Move the positions of partitions back to the first of `records` in each partition.
        Partitions that are no longer assigned are skipped."""
        seek_back(self, records)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue reading at the first offset of `partitions`, or of all assigned partitions if
        `partitions` is empty."""
        for at in partitions or tuple(self._positions):
            self._positions.look_up(at, EARLIEST)
        self._wake_all()

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue reading at the end offset of `partitions`, or of all assigned partitions if
        `partitions` is empty.

        The end offset is looked up in the background after this call.
        """
        for at in partitions or tuple(self._positions):
            self._positions.look_up(at, LATEST)
        self._wake_all()

    def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Move the positions of `partitions`, or of all assigned partitions if `partitions` is
        empty, to a time in ms since 1970.

        Reading continues at the first record of each partition whose timestamp is at or after that
        time, or at the end of the partition if it has no such record.
        """
        for at in partitions or tuple(self._positions):
            self._positions.look_up(at, max(0, timestamp_ms))
        self._wake_all()

    async def position(self, at: TopicPartition) -> Offset:
        """Return the offset of the next record that the application will receive. Waits until the
        offset is known."""
        place = self._positions.place(at)
        await trio.lowlevel.checkpoint()
        with trio.move_on_after(self._config.default_api_timeout_ms / 1_000):
            while place.position is None:
                self._raise_failure()
                await self._placed.park()
                place = self._positions.place(at)
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
        """Return the end offset of each partition: the offset after the last readable record."""
        found = await self.offsets_for_times(dict.fromkeys(partitions, LATEST))
        return {at: one.offset for at, one in found.items()}

    async def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, FoundOffset]:
        """Return the first offset in each partition whose record has a timestamp at or after the
        time in `times_ms`, in ms since 1970.

        The offset is -1 if the partition has no such record.
        """
        return await find_offsets(
            self._cluster,
            times_ms,
            isolation_level=self._config.isolation_level,
            timeout_s=self._config.default_api_timeout_ms / 1_000,
        )

    # Committing.

    async def commit(self, offsets: Mapping[TopicPartition, int | Committed] | None = None) -> None:
        """Commit `offsets`, or the positions of all assigned partitions if `offsets` is None.

        A committed offset is the offset of the next record to process. Raises RefusedError with
        ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH or REBALANCE_IN_PROGRESS if the
        commit is too late: another member may already be reading the partitions from the last
        committed offset.
        """
        await trio.lowlevel.checkpoint()
        await self._commit(offsets, is_awaited=True)

    def commit_async(
        self, offsets: Mapping[TopicPartition, int | Committed] | None = None
    ) -> PendingCommit:
        """Start a commit in the background, as `commit` does in the foreground. The returned
        PendingCommit may be awaited.

        Commits reach the coordinator in the order of the calls. If the application does not await a
        failed commit, the next poll raises its error. The consumer waits for all its commits before
        partitions are revoked and before it is closed.
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
        """Return the committed offsets of the consumer's group in `partitions`. Partitions without
        a committed offset are not in the result."""
        return await self._member_of().committed(partitions)

    def group_metadata(self) -> Membership:
        """Return the ids under which the consumer commits offsets: group, member id, and generation
        or member epoch.

        Raises RefusedError if the consumer is not a member of a group at present. Also raises
        RefusedError if the consumer was removed and has joined again since the last poll, because
        another member may have processed the same records.
        """
        group = self._member_of()
        if group.handover.has_lost_records:
            raise RefusedError(
                ErrorCode.ILLEGAL_GENERATION,
                "the group removed this member after the last poll; abort the transaction, and "
                "poll again",
            )
        membership = group.driver.membership()
        return membership._replace(group_id=self._config.group_id or "")

    @property
    def coordinator_address(self) -> str | None:
        """Address of the group's coordinator as `host:port`, or None if the coordinator is
        unknown."""
        return self._member_of().coordinator_address

    def _member_of(self) -> Group:
        if self._group is None:
            raise RefusedError(
                ErrorCode.INVALID_GROUP_ID,
                "the consumer has no group.id; open it with ConsumerConfig(group_id=…), or assign "
                "partitions",
            )
        return self._group

    # Reading.

    async def poll(
        self, timeout_s: float | None = None, *, record_count_max: int | None = None
    ) -> list[ConsumerRecord]:
        """Return the next records. Waits until at least one record is available.

        Returns an empty list if no record arrives within `timeout_s` seconds.
        """
        count = self._config.poll_records_max if record_count_max is None else record_count_max
        if count < 1:
            raise ValueError(f"record_count_max is {count}; it must be at least 1")
        await self._yield_timer.yield_if_due()
        return await self._next(count, timeout_s)

    async def poll_batches(
        self,
        timeout_s: float | None = None,
        *,
        record_count_max: int | None = None,
        bytes_max: int | None = None,
    ) -> list[RecordBatch]:
        """Return the next records as batches, each of one partition: `for value in batch.values`.
        Waits until at least one record is available.

        This costs a fraction of the CPU time of `poll`, because only the columns that the
        application uses are decoded. All batches together have at most `record_count_max` records
        (default `max.poll.records`) and about `bytes_max` bytes, but at least one record. Positions
        and commits work as for `poll`.
        """
        count = self._config.poll_records_max if record_count_max is None else record_count_max
        if count < 1:
            raise ValueError(f"record_count_max is {count}; it must be at least 1")
        if bytes_max is not None and bytes_max < 1:
            raise ValueError(f"bytes_max is {bytes_max}; it must be at least 1")
        self._positions.decoder.expect_many()
        await self._yield_timer.yield_if_due()
        return await self._next_batches(count, bytes_max, timeout_s)

    def processing(self, record: ConsumerRecord) -> AbstractContextManager[None]:
        """Return a context manager for the block of code that processes a record.

        Use it as `with consumer.processing(record):`. If the program has set an OpenTelemetry
        provider, the block becomes the current span, which is a child of the span that sent the
        record. Otherwise the context manager does nothing.
        """
        return nullcontext()

    def __aiter__(self) -> "Consumer":
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Return the next record. The call also marks the previously returned record as
        processed."""
        self._records_left -= 1
        if self._records_left <= 0:
            self._records_left = RECORDS_PER_LOOK
            await self._yield_timer.yield_if_due()
        group = self._group
        if group is not None:
            group.on_poll()
        if not self._failures and (group is None or not group.handover.is_held):
            record = self._positions.take_one()
            if record is not None:
                return record
        return (await self._next(1))[0]

    async def _next(self, count: int, timeout_s: float | None = None) -> list[ConsumerRecord]:
        positions = self._positions
        return await self._next_of(lambda: positions.take(count), timeout_s)

    async def _next_batches(
        self, count: int, size_bytes: int | None, timeout_s: float | None
    ) -> list[RecordBatch]:
        positions = self._positions
        return await self._next_of(lambda: positions.take_batches(count, size_bytes), timeout_s)

    async def _next_of(self, take: Callable[[], list[T]], timeout_s: float | None) -> list[T]:
        """Return the items that `take` returns. If there are none, wait for the first items, and
        return an empty list after `timeout_s` seconds."""
        group = self._group
        if group is not None:
            group.on_poll()
        if found := self._take(take):
            return found
        self._warn_without_source()
        if group is not None:
            group.handover.set_waiting(True)
        self._idle.begin(trio.current_time())
        try:
            if timeout_s is None:  # entering a cancel scope costs as much as some dozens of records
                return await self._first_of(take)
            with trio.CancelScope(deadline=trio.current_time() + timeout_s):
                return await self._first_of(take)
            return []
        finally:
            now_s = trio.current_time()
            self._idle.end(now_s)
            self._yield_timer.restart(now_s)
            if group is not None:
                group.handover.set_waiting(False)

    def _warn_without_source(self) -> None:
        """Log once that no record can arrive, because the consumer has neither a subscription nor
        an assignment."""
        if self._is_warned_of_source or next(iter(self._positions), None) is not None:
            return
        if self._group is None or not self._group.is_subscribed:
            self._is_warned_of_source = True
            LOG.warning(
                "the consumer waits for records without a subscription or an assignment; call "
                "subscribe(topics) or assign(partitions) first"
            )

    async def _first_of(self, take: Callable[[], list[T]]) -> list[T]:
        """Wait until `take` returns items, and return them."""
        while not (found := self._take(take)):
            await self._records.park()
        return found

    def _take(self, take: Callable[[], list[T]]) -> list[T]:
        if self._failures:
            self._raise_failure()
        if self._group is not None and self._group.handover.is_held:
            return []
        found = take()
        if self._positions.has_hunger():
            for link in self._links.values():
                link.wake_up.set()
        return found

    def _raise_failure(self) -> None:
        while self._failures:
            failure = self._failures.popleft()
            if not isinstance(failure, PendingCommit):
                raise failure
            if not failure._is_watched:
                failure.result()

    # Background tasks.

    async def _run(self) -> NoReturn:
        """Look up positions and leaders of the assigned partitions until cancelled. `open_consumer`
        runs this in the background."""
        refresh_ms = now_ms() + self._config.metadata_age_ms_max
        while True:
            now = now_ms()
            unknown = {at.topic for at in self._positions if self._cluster.known_leader(at) is None}
            is_old = now >= refresh_ms
            missing_due_ms = self._note_missing(now)
            if is_old or self._stale or (unknown and now >= self._ask_again_ms):
                refresh_ms = now + self._config.metadata_age_ms_max
                await self._refresh(self._stale | unknown, is_whole=is_old)
            elif missing_due_ms is not None and now >= missing_due_ms:
                refresh_ms = now + self._config.metadata_age_ms_max
                await self._refresh(set(), is_whole=True)
            elif places := [one for one in self._placeable() if one.look_up_from_ms <= now]:
                await self._find_places(places)
            else:
                self._wake_links()
                due_ms = [refresh_ms, *(one.look_up_from_ms for one in self._placeable())]
                if unknown:
                    due_ms.append(self._ask_again_ms)
                if missing_due_ms is not None:
                    due_ms.append(missing_due_ms)
                await self._wake_up.wait(min(due_ms))

    def _placeable(self) -> list[PartitionPlace]:
        """Return the partitions for which the consumer can look up a position now.

        Partitions without a known leader are omitted, so that they do not delay the other
        partitions.
        """
        known_leader = self._cluster.known_leader
        return [place for place in self._positions.unplaced() if known_leader(place.at) is not None]

    async def _refresh(self, topics: set[str], *, is_whole: bool) -> None:
        wanted: set[str] | None = set(topics)
        if is_whole:
            of_group = frozenset() if self._group is None else self._group.topics
            assigned = {at.topic for at in self._positions}
            wanted = None if of_group is None else topics | assigned | of_group
        try:
            answer = await self._cluster.metadata(wanted)
            self._stale -= topics
        except (ConnectionLostError, ProtocolError):
            await trio.sleep(self._config.retry_backoff_ms / 1_000)
            return
        self._ask_again_ms = now_ms() + self._config.retry_backoff_ms
        self._report_missing(
            wanted,
            {
                topic.name or ""
                for topic in answer.topics
                if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            },
        )
        if self._group is not None:
            self._group.on_metadata()
        self._wake_links()

    def _unknown_subjects(self) -> frozenset[str]:
        """Return the subscribed or assigned topics that the metadata lacks, or the subscribed
        pattern if no topic matches it."""
        known = self._cluster.topics
        if self._group is not None and self._group.is_subscribed:
            return self._group.subscription.missing(known)
        return frozenset(at.topic for at in self._positions if at.topic not in known)

    def _note_missing(self, now: int) -> int | None:
        """Record the wanted topics that are missing. Returns the time, in ms, at which their
        metadata must be requested again, or None if no topic is missing."""
        if self._config.on_missing == "wait":
            return None
        unknown = self._unknown_subjects()
        self._missing.retain(unknown, now)
        error = self._missing_error
        if not unknown and error is not None and error in self._failures:
            self._failures.remove(error)
        return self._missing.due_ms()

    def _report_missing(self, asked: set[str] | None, refused: set[str]) -> None:
        """Report the topics that a Metadata response lacks. `asked` contains the requested topics,
        or is None if all topics were requested."""
        if self._config.on_missing == "wait":
            return
        now, is_raised = now_ms(), self._config.on_missing == "raise"
        pattern = None
        if self._group is not None:
            pattern = self._group.subscription.local_pattern
        for subject in sorted(self._unknown_subjects()):
            if subject == pattern:
                is_missing, error = asked is None, missing_match_error(subject)
            else:
                is_missing, error = subject in refused, missing_topic_error(subject)
            if not is_missing:
                if asked is None or subject in asked:
                    self._missing.postpone(subject, now)
            elif self._missing.on_missing(subject, now, is_repeated=is_raised):
                self._on_missing(error)

    def _on_missing(self, error: RefusedError) -> None:
        if self._config.on_missing == "warn":
            LOG.warning("%s", error.message)
        elif self._missing_error not in self._failures:
            # One at a time, since an application that does not poll would get many.
            self._missing_error = error
            self._fail(error)

    async def _find_places(self, places: list[PartitionPlace]) -> None:
        counts = {place.at: place.move_count for place in places}
        try:
            if self._group is not None:
                begin = [place for place in places if place.lookup is None]
                committed = await self._group.committed([place.at for place in begin])
                for place in begin:
                    if place.at in committed:
                        one = committed[place.at]
                        self._place(
                            place,
                            counts[place.at],
                            OffsetAndEpoch(one.offset, one.leader_epoch),
                        )
            await self._look_up([place for place in places if place.position is None], counts)
        except (RefusedError, ConnectionLostError) as error:
            if isinstance(error, RefusedError) and error.code not in NO_LONGER_OURS:
                self._fail(error)
            await trio.sleep(self._config.retry_backoff_ms / 1_000)

    async def _look_up(
        self, places: list[PartitionPlace], counts: Mapping[TopicPartition, int]
    ) -> None:
        times = {place.at: self._positions.reset_of(place) for place in places}
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
            # The epoch of a looked-up offset is that of the record at the offset, but a position
            # needs that of the record before it.
            self._place(place, counts[place.at], OffsetAndEpoch(found[place.at].offset, NO_EPOCH))

    def _place(self, place: PartitionPlace, move_count: int, position: OffsetAndEpoch) -> None:
        self._positions.on_placed(place, move_count, position)
        self._placed.unpark_all()

    def _fail(self, error: Exception | PendingCommit) -> None:
        self._failures.append(error)
        self._records.unpark_all()
        self._placed.unpark_all()

    def _on_records(self) -> None:
        self._records.unpark_all()

    def _on_moved(self) -> None:
        self._records.unpark_all()
        self._wake_all()

    def _on_stale(self, topic: str) -> None:
        self._stale.add(topic)
        self._wake_up.set()

    def _observed(self) -> AbstractContextManager[None]:
        """Report this consumer's metrics to the program's MeterProvider during the `with` block.
        Does nothing if the program has no MeterProvider."""
        return nullcontext()

    async def _leave(self, *, has_processed: bool) -> None:
        """Leave the group, if the consumer is a member of one. `open_consumer` calls this at the
        end of its block."""
        if self._group is not None:
            await self._group.leave(has_processed=has_processed)

    def _wake_all(self) -> None:
        self._wake_up.set()
        self._wake_links()

    def _wake_links(self) -> None:
        now = now_ms()
        for at in self._positions:
            leader = self._cluster.known_leader(at)
            if leader is None:
                continue
            node = self._positions.place(at).source_of(leader.node, now)
            if node not in self._links:
                link = self._links[node] = FetchLink(
                    node,
                    cluster=self._cluster,
                    positions=self._positions,
                    config=self._config,
                    on_records=self._on_records,
                    on_moved=self._on_moved,
                    on_stale=self._on_stale,
                    on_failure=self._fail,
                )
                self._nursery.start_soon(link.run)
        for link in self._links.values():
            link.wake_up.set()


check_all_calls(Consumer)


def seek_back(consumer: Consumer, records: Iterable[ConsumerRecord]) -> None:
    """Move the position of each partition back to its first record in `records`. Partitions that
    are no longer assigned are skipped."""
    firsts: dict[TopicPartition, int] = {}
    for record in records:
        firsts.setdefault(TopicPartition(record.topic, record.partition), record.offset)
    for at in consumer.assignment & firsts.keys():
        consumer.seek(at, firsts[at])


@client_block
async def open_consumer(
    bootstrap: str | Iterable[str | tuple[str, int]], config: ConsumerConfig | None = None
) -> AsyncIterator[Consumer]:
    """Open and yield a consumer, which is closed at the end of the caller's `async with` block.

    `bootstrap` lists the addresses of one or more brokers, as `host:port,…`. The default port is
    9092. No request is sent before the first assignment. When the consumer is closed, it leaves its
    group. With automatic commits, processed records are committed first, but not if the block ended
    with an error.
    """
    config = config_of(config, ConsumerConfig)
    async with (
        open_cluster(addresses_of(bootstrap), config) as cluster,
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
                nursery.start_soon(consumer._run)
                with consumer._observed():
                    yield consumer
                    await consumer._leave(has_processed=True)
        finally:
            # After an error, the last records may not be processed; and the other members need not
            # wait until this member's session times out.
            if consumer is not None:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + LEAVE_PATIENCE_S):
                    await consumer._leave(has_processed=False)
