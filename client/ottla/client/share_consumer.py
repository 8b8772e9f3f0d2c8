"""The share consumer, a member of a share group (KIP-932). The members consume partitions together,
like a queue.

Open it with `async with open_share_consumer(…) as consumer`, then call `subscribe`. `work(handle)`
calls a function for each record. Alternatively, `poll` or `async for` return records that the
application accepts, releases or rejects itself. The number of consumers may exceed the number of
partitions.

Records are never fetched ahead, because the broker locks each fetched record for this consumer. If
a background task fails permanently, the next call that reads raises the task's error.
"""

import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NoReturn
from uuid import uuid4

import trio

from ottla.client.fetch.record_decoder import RecordDecoder
from ottla.client.groups.coordinator import Coordinator
from ottla.client.instrumentation.detect import instrumented
from ottla.client.instrumentation.metrics_push import (
    MetricsPush,
    ReportingClient,
    open_metrics_push,
)
from ottla.client.network.arguments import check_all_calls
from ottla.client.network.background import (
    WakeUp,
    YieldTimer,
    now_ms,
    open_background,
    open_shielded_background,
)
from ottla.client.network.bootstrap import addresses_of, config_of
from ottla.client.network.client_block import client_block
from ottla.client.network.cluster import Cluster, open_cluster
from ottla.client.network.connection import ConnectionLostError
from ottla.client.network.missing_topics import missing_topic_error
from ottla.client.share.share_buffer import BufferedRecords
from ottla.client.share.share_link import ShareLink
from ottla.client.share.share_member import ShareGroupMember
from ottla.client.share.share_membership import ShareMembership
from ottla.client.share.share_records import ShareBatch, ShareRecord
from ottla.client.telemetry.client_metrics import ClientKind
from ottla.client.telemetry.share_metrics import ShareMeasures, ShareMetrics
from ottla.model.errors import CorruptDataError, ErrorCode, ProtocolError, RefusedError
from ottla.model.ids import NodeId, TopicIdPartition, TopicPartition
from ottla.model.settings.share_client import ShareConsumerConfig

LOG = logging.getLogger("ottla.client")

TRACED = "ottla.client.traced_share_consumer:TracedShareConsumer"
"""Import path of the share consumer class that is used if the program has set an OpenTelemetry
provider."""
CLOSE_PATIENCE_S = 5.0
"""Maximum time in seconds for sending the last acknowledgements while a share consumer is being
closed."""
CONCURRENCY = 64
Handler = Callable[[ShareRecord], Awaitable[object]]


class ShareConsumer(ReportingClient):
    """An open share consumer. Created by `open_share_consumer`."""

    def __init__(
        self,
        cluster: Cluster,
        config: ShareConsumerConfig,
        nursery: trio.Nursery,
        *,
        metrics_push: MetricsPush | None = None,
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._nursery = nursery
        self._links: dict[NodeId, ShareLink] = {}
        self._wanted: dict[NodeId, dict[TopicIdPartition, TopicPartition]] = {}
        """Assigned partitions by leader."""
        self._member = ShareGroupMember(config.group_id, str(uuid4()), config.client_rack or None)
        self._membership = ShareMembership(
            self._member,
            coordinator=Coordinator(cluster, config.group_id, client_id=config.client_id),
            config=config,
            on_assigned=self._on_moved,
            on_failure=self._fail,
        )
        self._decoder = RecordDecoder()
        self._measures = ShareMeasures()
        self._buffer: deque[BufferedRecords] = deque()
        self._given: list[ShareBatch | ShareRecord] = []
        """Records that the last poll, or the last step of the iterator, has returned."""
        self._in_hand_count_max = 0
        """Maximum number of records that may be locked for this consumer now, or 0 if no records
        are requested."""
        self._is_reading = False
        self._is_stopped = False
        self._is_working = False
        self._records = trio.lowlevel.ParkingLot()
        self._failures: deque[Exception] = deque(maxlen=100)
        self._wake_up = WakeUp()
        self._stale: set[str] = set()
        self._missing: set[str] = set()
        self._yield_timer = YieldTimer()
        if metrics_push is not None:
            metrics_push.report(
                ShareMetrics(self._measures, self._acknowledged), self._membership.identity
            )
            self._metrics_push = metrics_push
        cluster.call_when_forgotten(self._wake_up.set)
        nursery.start_soon(self._membership.run)

    # The subscription.

    def subscribe(self, topics: Iterable[str]) -> None:
        """Join the group with a subscription to these topics. A later call replaces the
        subscription."""
        topics = tuple(topics)
        if not topics:
            raise ValueError("subscribe needs topics; the end of the block leaves the group")
        self._member.subscribe(topics)
        self._stale.update(topics)
        self._membership.wake()
        self._wake_up.set()

    @property
    def subscription(self) -> frozenset[str]:
        """Names of the subscribed topics."""
        return frozenset(self._member.topics)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the group's coordinator has assigned to this consumer. Other members
        may have the same partitions."""
        return frozenset(at for found in self._wanted.values() for at in found.values())

    @property
    def member_id(self) -> str:
        """Id of this member of the group."""
        return self._member.member_id

    @property
    def in_hand_count(self) -> int:
        """Number of records that are locked for this consumer and have not been accepted, released
        or rejected yet."""
        return sum(link.hand.held_count for link in self._links.values())

    # A handler for each record.

    async def work(
        self,
        handle: Handler,
        *,
        concurrency: int = CONCURRENCY,
        rejects: tuple[type[Exception], ...] = (),
        in_hand_count_max: int | None = None,
    ) -> None:
        """Call a handler for each record, `concurrency` at a time, until `stop` is called.

        A record is accepted when its handler returns, and rejected if the handler raises one of
        `rejects`. If the handler raises any other Exception, the record is released for another
        attempt, and a warning is logged. A handler may also accept, release or reject its record
        itself. The lock of a record is renewed as long as its handler runs.

        At most `in_hand_count_max` records (default: `concurrency`) are locked for this consumer,
        and at least one for each broker. With `share.acquire.mode=batch_optimized`, the rest of a
        batch may be locked too.

        After `stop`, running handlers continue until they end. Cancelling the call cancels the
        handlers. All records that are locked for this consumer are then released.
        """
        _check_positive("concurrency", concurrency)
        bound = concurrency if in_hand_count_max is None else in_hand_count_max
        _check_positive("in_hand_count_max", bound)
        with self._reading():
            self._set_working(True)
            self._in_hand_count_max = max(bound, concurrency)
            try:
                async with open_background() as nursery:
                    await _Workers(self, handle, rejects, concurrency, nursery).run()
            finally:
                self._in_hand_count_max = 0
                self._set_working(False)
                self._release_buffered()
        await self.flush()

    def stop(self) -> None:
        """Ask `work` to return after the running handlers have ended. Later calls of `work` return
        at once."""
        self._is_stopped = True
        self._records.unpark_all()

    # Reading.

    async def poll(
        self, timeout_s: float | None = None, *, record_count_max: int | None = None
    ) -> list[ShareRecord]:
        """Return the next records. Waits until at least one record is available. The application
        must accept, release or reject each record before the next poll.

        Returns an empty list if no record arrives within `timeout_s` seconds. If records of the
        previous poll were not acknowledged, the call raises RefusedError. With
        `share.acknowledgement.mode=implicit`, it accepts these records instead.
        """
        batches = await self.poll_batches(timeout_s, record_count_max=record_count_max)
        return [record for batch in batches for record in batch]

    async def poll_batches(
        self, timeout_s: float | None = None, *, record_count_max: int | None = None
    ) -> list[ShareBatch]:
        """Return the next records as batches. Waits until at least one record is available. The
        records of a batch have the same partition and delivery count.

        This costs a fraction of the CPU time of `poll`. The application accepts, releases or
        rejects a batch as a whole, or record by record.
        """
        count = self._config.poll_records_max if record_count_max is None else record_count_max
        _check_positive("record_count_max", count)
        await self._yield_timer.yield_if_due()
        with self._reading():
            self._settle_given()
            found = await self._next(count, count, timeout_s)
            self._given = [*found]
            return found

    def __aiter__(self) -> "ShareConsumer":
        return self

    async def __anext__(self) -> ShareRecord:
        """Return the next record. The application must accept, release or reject it before the next
        call."""
        await self._yield_timer.yield_if_due()
        with self._reading():
            self._settle_given()
            (batch, *_) = await self._next(1, self._config.poll_records_max, None)
            (record,) = batch
            self._given = [record]
            return record

    async def flush(self) -> None:
        """Wait until the brokers have confirmed, or refused, all acknowledgements."""
        await trio.lowlevel.checkpoint()
        while waiting := [link for link in self._links.values() if link.hand.is_acknowledging]:
            for link in waiting:
                link.on_awaited()
            await waiting[0].settled.park()

    def processing(self, record: ShareRecord) -> AbstractContextManager[None]:
        """Return a context manager for the block of code that processes a record. `work` uses it
        for each handler.

        If the program has set an OpenTelemetry provider, the block becomes a span, which is a child
        of the span that sent the record. Otherwise the context manager does nothing.
        """
        return nullcontext()

    async def _next(
        self, count: int, fetched_count: int, timeout_s: float | None
    ) -> list[ShareBatch]:
        """Return at most `count` buffered records. If no records are buffered, wait for a fetch,
        which may return up to `fetched_count` records."""
        if not self._member.topics and not self._failures:
            raise RefusedError(ErrorCode.INVALID_REQUEST, "call subscribe(topics) first")
        found = self._take(count)
        if found:  # a cancel scope costs as much as some records
            return found
        try:
            with trio.CancelScope() as scope:
                if timeout_s is not None:
                    scope.deadline = trio.current_time() + timeout_s
                while not (found := self._take(count)):
                    self._in_hand_count_max = fetched_count
                    self._wake_links()
                    await self._records.park()
        finally:
            self._in_hand_count_max = 0
        return found

    def _take(self, count: int) -> list[ShareBatch]:
        """Remove and return buffered records, at most `count`."""
        self._raise_failure()
        found: list[ShareBatch] = []
        while self._buffer and count > 0:
            try:
                batch = self._buffer[0].take(count, now_ms())
            except CorruptDataError as error:
                self._failures.append(error)
                continue
            if batch is None:
                self._buffer.popleft()
            else:
                found.append(batch)
                count -= len(batch)
        if not found:
            self._raise_failure()
        return found

    def _settle_given(self) -> None:
        """Accept the records of the last poll that are not acknowledged yet. Raises RefusedError
        instead if `share.acknowledgement.mode` is `explicit`."""
        left = [one for one in self._given if not one.is_settled]
        if left and self._config.share_acknowledgement_mode == "explicit":
            raise RefusedError(
                ErrorCode.INVALID_RECORD_STATE,
                f"{left[0]._first_unsettled()} is not settled; accept, release or reject each "
                "record before the next is requested, or set share.acknowledgement.mode to "
                "implicit",
            )
        for one in left:
            one.accept()
        self._given = []

    @contextmanager
    def _reading(self) -> Iterator[None]:
        if self._is_reading:
            raise RuntimeError("another task reads from this consumer; open one for each task")
        self._is_reading = True
        try:
            yield
        finally:
            self._is_reading = False

    def _release_buffered(self) -> None:
        while self._buffer:
            self._buffer.popleft().release()

    def _set_working(self, is_working: bool) -> None:
        self._is_working = is_working
        for link in self._links.values():
            link.is_renewing = is_working

    def _raise_failure(self) -> None:
        if self._failures:
            raise self._failures.popleft()

    def _fail(self, error: Exception) -> None:
        self._failures.append(error)
        self._records.unpark_all()

    # Background tasks.

    async def _run(self) -> NoReturn:
        """Look up topics and leaders until cancelled. `open_share_consumer` runs this in the
        background."""
        refresh_ms = now_ms() + self._config.metadata_age_ms_max
        while True:
            unknown = [one for one in self._member.assignment if one not in self._cluster.names]
            leaderless = self._place()
            is_old = now_ms() >= refresh_ms
            if not (unknown or leaderless or self._stale or is_old):
                self._wake_links()
                await self._wake_up.wait(refresh_ms)
                continue
            topics = self._stale | leaderless
            if is_old:
                topics |= set(self._member.topics)
                refresh_ms = now_ms() + self._config.metadata_age_ms_max
            try:
                if unknown:
                    await self._cluster.learn_names(unknown)
                if topics:
                    await self._cluster.metadata(topics)
                    self._stale -= topics
                    self._warn_of_missing()
            except (ConnectionLostError, ProtocolError):
                pass
            except RefusedError as error:
                if not error.is_retriable:
                    self._fail(error)
            if self._place() or unknown or self._stale:
                await trio.sleep(self._config.retry_backoff_ms / 1_000)

    def _warn_of_missing(self) -> None:
        """Log once that subscribed topics do not exist."""
        missing = {one for one in self._member.topics if one not in self._cluster.topics}
        for topic in sorted(missing - self._missing):
            LOG.warning("%s", missing_topic_error(topic).message)
        self._missing = missing

    def _place(self) -> set[str]:
        """Divide the assigned partitions among the brokers that lead them. Returns the topics of
        partitions without a known leader."""
        wanted: dict[NodeId, dict[TopicIdPartition, TopicPartition]] = {}
        leaderless: set[str] = set()
        cluster = self._cluster
        for topic_id, indexes in self._member.assignment.items():
            name = cluster.names.get(topic_id)
            if name is None:
                continue
            topic = cluster.topics.get(name)
            for index in indexes:
                at = TopicPartition(name, index)
                leader = cluster.known_leader(at)
                if topic is None or topic.topic_id != topic_id or leader is None:
                    leaderless.add(name)
                else:
                    key = TopicIdPartition(topic_id, index)
                    wanted.setdefault(leader.node, {})[key] = at
        self._wanted = wanted
        for node in wanted.keys() - self._links.keys():
            self._open_link(node)
        return leaderless

    def _open_link(self, node: NodeId) -> None:
        link = self._links[node] = ShareLink(
            node,
            cluster=self._cluster,
            config=self._config,
            member_id=self._member.member_id,
            decoder=self._decoder,
            measures=self._measures,
            wanted=self._wanted_of,
            budget=self._budget,
            on_fetched=self._on_fetched,
            on_stale=self._on_stale,
            on_moved=self._on_moved,
            on_failure=self._fail,
        )
        link.is_renewing = self._is_working
        self._nursery.start_soon(link.run)

    def _wanted_of(self, node: NodeId) -> Mapping[TopicIdPartition, TopicPartition]:
        return self._wanted.get(node, {})

    def _budget(self, link: ShareLink) -> int:
        """Return the number of records that the connection to one broker may fetch now.

        All connections fetch at the same time, because any broker may have records.
        """
        links = self._links.values()
        taken = sum(one.hand.held_count + one.requested_count for one in links if one is not link)
        free = self._in_hand_count_max - taken - link.hand.held_count
        if free <= 0:
            # One record is little, and a broker without a request might have all records.
            is_starved = not link.hand.held_count and self.in_hand_count < self._in_hand_count_max
            return 1 if is_starved else 0
        idle = sum(1 for one in self._wanted if not self._links[one].requested_count)
        return max(1, free // max(1, idle))

    def _on_fetched(self, records: BufferedRecords) -> None:
        self._buffer.append(records)
        if not self._is_working:
            self._in_hand_count_max = 0  # a poll wants no others now
        self._records.unpark_all()

    def _on_stale(self, topic: str) -> None:
        self._stale.add(topic)
        self._wake_up.set()

    def _on_moved(self) -> None:
        self._wake_up.set()

    def _acknowledged(self) -> tuple[int, int]:
        """Return the number of acknowledgements that were sent, and the number of acknowledgements
        that failed."""
        hands = [link.hand for link in self._links.values()]
        return sum(one.sent_count for one in hands), sum(one.failed_count for one in hands)

    def _wake_links(self) -> None:
        for link in self._links.values():
            link.wake_up.set()

    async def _close(self) -> None:
        """Release all locked records, send all acknowledgements, and leave the group."""
        self._in_hand_count_max = 0
        self._wanted = {}
        async with trio.open_nursery() as nursery:
            for link in self._links.values():
                nursery.start_soon(link.close)
        await self._membership.leave()
        await self._membership.coordinator.forget()


check_all_calls(ShareConsumer)


class _Workers:
    """The running handlers of one call of `work`."""

    def __init__(
        self,
        consumer: ShareConsumer,
        handle: Handler,
        rejects: tuple[type[Exception], ...],
        concurrency: int,
        nursery: trio.Nursery,
    ) -> None:
        self._consumer = consumer
        self._handle = handle
        self._rejects = rejects
        self._concurrency = concurrency
        self._nursery = nursery
        self._running_count = 0

    async def run(self) -> None:
        """Start handlers until the consumer is stopped, and wait until they have ended."""
        consumer = self._consumer
        while not consumer._is_stopped:
            free = self._concurrency - self._running_count
            batches = consumer._take(free) if free > 0 else []
            for batch in batches:
                for record in batch:
                    self._running_count += 1
                    self._nursery.start_soon(self._run_one, record)
            if batches:
                await trio.lowlevel.checkpoint()
                continue
            if not consumer._member.topics:
                consumer._raise_failure()
                raise RefusedError(ErrorCode.INVALID_REQUEST, "call subscribe(topics) first")
            consumer._wake_links()
            await consumer._records.park()
        consumer._in_hand_count_max = 0
        consumer._release_buffered()
        while self._running_count:
            await consumer._records.park()

    async def _run_one(self, record: ShareRecord) -> None:
        try:
            with self._consumer.processing(record):
                await self._handle(record)
        except self._rejects as error:
            LOG.warning("%s is rejected: %s", record, error)
            if not record.is_settled:
                record.reject()
        except Exception:
            LOG.warning("%s is released, since its handler failed", record, exc_info=True)
            if not record.is_settled:
                record.release()
        except BaseException:
            if not record.is_settled:
                record.release()
            raise
        else:
            if not record.is_settled:
                record.accept()
        finally:
            self._running_count -= 1
            self._consumer._records.unpark_all()


def _check_positive(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} is {value}; it must be at least 1")


@client_block
async def open_share_consumer(
    bootstrap: str | Iterable[str | tuple[str, int]], config: ShareConsumerConfig
) -> AsyncIterator[ShareConsumer]:
    """Open and yield a share consumer, which is closed at the end of the caller's `async with`
    block.

    `bootstrap` lists the addresses of one or more brokers, as `host:port,…`. The default port is
    9092. The consumer joins its group when `subscribe` is called. When it is closed, it sends all
    acknowledgements, releases all other locked records, and leaves the group.
    """
    config = config_of(config, ShareConsumerConfig)
    async with (
        open_cluster(addresses_of(bootstrap), config) as cluster,
        open_metrics_push(
            cluster, ClientKind.CONSUMER, is_enabled=config.enable_metrics_push
        ) as metrics_push,
        open_shielded_background() as nursery,
    ):
        consumer = instrumented(ShareConsumer, TRACED)(
            cluster, config, nursery, metrics_push=metrics_push
        )
        nursery.start_soon(consumer._run)
        try:
            yield consumer
        finally:
            # Otherwise the records stay locked until their locks end.
            patience_s = trio.current_time() + CLOSE_PATIENCE_S
            with trio.CancelScope(shield=True, deadline=patience_s):
                await consumer._close()
