"""The producer: collects records in batches by partition, sends them, and reports the delivery of
each record.

Use it as `async with open_producer(…) as producer: await producer.send(topic, value)`. `send` waits
only for memory and for the metadata of a topic, and returns a Delivery, which can be awaited. The
end of the `async with` block waits for all records, and raises the first error of a record whose
Delivery was not awaited. If the block raises an error, records that are not delivered yet are
dropped.
"""

import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    nullcontext,
)
from typing import NoReturn

import trio

from ottla.client.instrumentation.detect import instrumented
from ottla.client.instrumentation.metric_sources import report_producer
from ottla.client.instrumentation.metrics_push import ReportingClient, open_metrics_push
from ottla.client.network.background import WakeUp, YieldTimer, now_ms, open_background
from ottla.client.network.bootstrap import addresses_of, config_of
from ottla.client.network.calls_of_others import CallsOfOthers
from ottla.client.network.client_block import client_block
from ottla.client.network.cluster import Cluster, open_cluster, raise_for
from ottla.client.network.connection import ConnectionLostError
from ottla.client.network.missing_topics import MissingTopics, missing_topic_error
from ottla.client.produce.accumulator import (
    RECORD_OVERHEAD_BYTES,
    Accumulator,
    ProducerIdentity,
    record_bytes,
)
from ottla.client.produce.delivery import Delivery
from ottla.client.produce.flush import settle_all
from ottla.client.produce.many_records import (
    ManyRecords,
    ManyRecordsRun,
    SentPart,
    SentRecords,
    chunks,
)
from ottla.client.produce.partitioner import (
    PartitionChoice,
    Partitioner,
    StickyPartitions,
    UnplacedRecord,
    no_partition,
)
from ottla.client.produce.placement import RecordPlacement
from ottla.client.produce.producer_identities import ProducerIdentities
from ottla.client.produce.producer_link import ProducerLink
from ottla.client.produce.record_arguments import bytes_or_none, check_place, checked_headers
from ottla.client.produce.record_run import RecordRun
from ottla.client.telemetry.client_metrics import ClientKind
from ottla.client.transactions.producer_transactions import (
    ProducerTransaction,
    ProducerTransactions,
    open_transactions,
)
from ottla.model.errors import ErrorCode, ProtocolError, RefusedError
from ottla.model.ids import NodeId, ProducerId, TopicPartition
from ottla.model.limits import INT32_MAX
from ottla.model.settings.client import ProducerConfig
from ottla.wire.batch_builder import EncodedHeaders, Headers
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse
from ottla.wire.messages.metadata_response import MetadataResponse

LOG = logging.getLogger("ottla.client")

TRACED = "ottla.client.traced_producer:TracedProducer"
"""Import path of the producer class that is used if the program has set an OpenTelemetry
provider."""

SENDS_PER_LOOK = 64
"""Number of records that a task sends before other tasks may run. With a smaller number, each
record takes more CPU time. With a larger number, one task blocks the event loop for longer. Sending
64 records takes well below a millisecond."""

NEW_EPOCHS_FROM = 3
"""First version of InitProducerId in which a producer keeps its id and gets a new epoch (KIP-360).
In older versions, the producer gets a new id."""


class Producer(ReportingClient, CallsOfOthers):
    """An open producer. Created by `open_producer`."""

    _link_class = ProducerLink
    """Class of the producer's connections to brokers. Subclasses replace it."""

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        nursery: trio.Nursery,
        *,
        gathered: Accumulator | None = None,
        identities: ProducerIdentities | None = None,
        transactions: ProducerTransactions | None = None,
        partition_by: PartitionChoice | None = None,
        below: Callable[[int], int] = random.randrange,
    ) -> None:
        self._cluster = cluster
        self._identities = identities or ProducerIdentities()
        self._transactions = transactions
        self._config = config
        self._record_bytes_max = config.request_bytes_max
        self._buffer_bytes_max = config.buffer_bytes_max
        self._has_short_way = config.batch_bytes <= config.request_bytes_max
        """True if every record that fits into a batch is also smaller than `max.request.size`."""
        self._nursery = nursery
        self._gathered = gathered = gathered or Accumulator(config)
        gathered.use_clock(time.time)
        self._join_plain = gathered.join_plain
        self._partitioner = Partitioner(config.partitioner)
        self._sticky = StickyPartitions(config.batch_bytes, below)
        self._placement = RecordPlacement(self._partitioner, self._sticky, partition_by)
        self._links: dict[NodeId, ProducerLink] = {}
        self._wake_up = WakeUp()
        self._expiry = WakeUp()
        self._is_expiry_awaited = False
        """True if the task that expires batches sleeps until a known time. Later batches expire
        later, so they need not wake the task."""
        self._room = trio.lowlevel.ParkingLot()
        self._stale: set[str] = set()
        self._missing = MissingTopics()
        self._yield_timer = YieldTimer()
        cluster.call_when_forgotten(self._wake_up.set)
        if transactions is not None:
            transactions.wake = lambda: self._on_change(None)

    def transaction(self) -> AbstractAsyncContextManager[ProducerTransaction]:
        """Return a context manager that begins a transaction: `async with producer.transaction() as
        transaction:`.

        The transaction is committed at the end of the block, and aborted if the block raises an
        error or is cancelled. Errors:

        - TransactionAbortedError if the transaction cannot be committed
        - ProducerFencedError if another producer has taken over the transactional id
        - TransactionOutcomeUnknownError if the coordinator does not confirm the commit within
          `max.block.ms`
        """
        if self._transactions is None:
            raise RefusedError(
                ErrorCode.INVALID_TXN_STATE, "a producer of transactions needs a transactional.id"
            )
        return self._transactions.transaction()

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers | EncodedHeaders = (),
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Buffer one record for delivery.  Await the returned Delivery for the result.

        Waits while `buffer.memory` is full or the topic's metadata is unknown.  Raises RefusedError
        if the topic or partition does not exist, if the record is larger than `max.request.size`,
        or after waiting for `max.block.ms`.  Raises TypeError if the key or value is not bytes.
        """
        is_plain = key is None and partition is None and timestamp_ms is None and not headers
        if is_plain and (delivery := self._join_plain(topic, value)) is not None:
            return delivery
        gathered = self._gathered
        if gathered.burst_left <= 0:
            gathered.burst_left = SENDS_PER_LOOK
            await self._yield_timer.yield_if_due()
            if is_plain and (delivery := self._join_plain(topic, value)) is not None:
                return delivery
        gathered.burst_left -= 1
        while True:
            try:
                return self._accept(topic, value, key, partition, headers, timestamp_ms)
            except trio.WouldBlock:
                await self._wait_to_send(topic, record_bytes(key, value, headers))

    def send_nowait(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers | EncodedHeaders = (),
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Buffer one record for delivery without waiting, and return its delivery report.

        Raises trio.WouldBlock if `send` would have to wait.
        """
        return self._accept(topic, value, key, partition, headers, timestamp_ms)

    def _accept(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        headers: Headers | EncodedHeaders,
        timestamp_ms: int | None,
    ) -> Delivery:
        gathered = self._gathered
        if gathered.refusal is not None:
            raise gathered.refusal
        if type(value) is bytes and not headers and (key is None or type(key) is bytes):
            size_bytes = RECORD_OVERHEAD_BYTES + len(value)
            if key is not None:
                size_bytes += len(key)
        else:
            value, key = bytes_or_none("value", value), bytes_or_none("key", key)
            headers = checked_headers(headers)
            size_bytes = record_bytes(key, value, headers)
        if size_bytes > self._record_bytes_max:
            raise self._too_large(size_bytes)
        known = self._cluster.topics.get(topic)
        if known is None or (
            gathered.buffered_bytes + size_bytes > self._buffer_bytes_max
            and not gathered.has_room(size_bytes)
        ):
            check_place(topic, partition, timestamp_ms)
            raise trio.WouldBlock
        is_plain = False
        has_choice = self._placement.has_choice and partition is None
        if has_choice:
            partition = self._placement.chosen(
                UnplacedRecord(topic, key, value, known.partitions, known.available)
            )
        if partition is None:
            if key is not None:
                partition = self._partitioner.partition_of(key, len(known.partitions))
            if partition is None:
                available = known.available or known.partitions
                self._sticky.note(topic, gathered.end_plain_route(topic))
                partition = self._sticky.choose(topic, available, size_bytes)
                is_plain = key is None and not headers and not has_choice
        elif partition not in known.at:
            check_place(topic, partition, timestamp_ms)
            raise no_partition(topic, partition)
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        elif type(timestamp_ms) is not int or timestamp_ms < 0:
            check_place(topic, partition, timestamp_ms)
        at = known.at[partition]
        batch = gathered.join(at, timestamp_ms, key, value, headers, size_bytes)
        if batch is None:
            batch, _ = gathered.append(at, timestamp_ms, key, value, headers, now_ms())
            self._wake(at)
        if is_plain and self._has_short_way:
            gathered.route_plain(topic, batch, self._sticky.room_bytes(topic))
        return Delivery(batch, batch.record_count - 1, timestamp_ms)

    def _accepts(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers | EncodedHeaders = (),
        timestamp_ms: int | None = None,
        waiting_bytes: int = 0,
    ) -> int | None:
        """Return the size, in bytes, that a record occupies in the buffer, or None if `send_nowait`
        may be unable to accept the record now.

        This method may be called from another thread. All values that it reads are replaced as a
        whole, so the result may be outdated but is consistent. `waiting_bytes` is the size of
        records that are already queued in front of this record. Raises TypeError and RefusedError
        for an invalid record, as `send` does.
        """
        if type(value) is not bytes or (key is not None and type(key) is not bytes) or headers:
            value, key = bytes_or_none("value", value), bytes_or_none("key", key)
            headers = checked_headers(headers)
        size_bytes = record_bytes(key, value, headers)
        if size_bytes > self._config.request_bytes_max:
            raise self._too_large(size_bytes)
        if partition is not None or timestamp_ms is not None:
            check_place(topic, partition, timestamp_ms)
        known = self._cluster.topics.get(topic)
        if (
            known is None
            or (partition is not None and partition not in known.at)
            or self._gathered.refusal is not None
            or self._gathered.buffered_bytes + waiting_bytes + size_bytes
            > self._config.buffer_bytes_max
        ):
            return None
        return size_bytes

    async def send_run(
        self, topic: str, run: RecordRun, *, partition: int, timestamp_ms: int | None = None
    ) -> None:
        """Buffer all records of a run for delivery. If some records are not delivered, `flush`
        raises the first error.

        The method waits and raises errors under the same conditions as `send`.
        """
        size_bytes = run.largest_bytes
        if size_bytes > self._config.request_bytes_max:
            raise self._too_large(size_bytes)
        if partition not in await self.partitions_of(topic):
            raise no_partition(topic, partition)
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        at = TopicPartition(topic, partition)
        while run.next_bytes:
            await trio.lowlevel.checkpoint()
            if self._gathered.refusal is not None:
                raise self._gathered.refusal
            if not self._gathered.has_room(run.next_bytes):
                await self._wait_to_send(topic, run.next_bytes)
            elif self._gathered.extend(at, timestamp_ms, run, now_ms()):
                self._wake(at)

    async def send_many(
        self,
        topic: str,
        records: ManyRecords,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> SentRecords:
        """Buffer many records, which are values or (key, value) pairs. The result can be awaited
        for the delivery reports.

        This needs much less CPU time than calling `send` for each record. All records have the same
        timestamp and no headers. The method waits and raises errors under the same conditions as
        `send`. The error for a refused record contains the record's index. If `records` is a list,
        no record is sent after such an error. If `records` is an iterator, or if the error occurs
        while waiting, earlier records may have been sent.
        """
        check_place(topic, partition, timestamp_ms)
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        if partition is not None and partition not in await self.partitions_of(topic):
            raise no_partition(topic, partition)
        found = chunks(records, self._config.batch_bytes, self._config.request_bytes_max)
        if isinstance(records, list | tuple):
            # All records are checked before the first one is buffered.
            checked = []
            for chunk in found:
                checked.append(chunk)
                await trio.lowlevel.checkpoint()
            found = iter(checked)
        sent = SentRecords(timestamp_ms)
        for chunk in found:
            await trio.lowlevel.checkpoint()
            partitions = await self.partitions_of(topic)
            known = self._cluster.topics.get(topic)
            available = (known and known.available) or partitions
            dealt = self._placement.deal(topic, chunk, partition, partitions, available)
            for number, positions in dealt.items():
                keys, values = chunk.keys, chunk.values
                if len(positions) < len(values):
                    keys = keys and [keys[at - chunk.first] for at in positions]
                    values = [values[at - chunk.first] for at in positions]
                run = ManyRecordsRun(keys, values)
                at = TopicPartition(topic, number)
                await self._take_run(at, timestamp_ms, run, positions, sent)
        return sent

    async def _take_run(
        self,
        at: TopicPartition,
        timestamp_ms: int,
        run: ManyRecordsRun,
        positions: Sequence[int],
        sent: SentRecords,
    ) -> None:
        while run.next_bytes:
            if self._gathered.refusal is not None:
                raise self._gathered.refusal
            if not self._gathered.has_room(run.next_bytes):
                await self._wait_to_send(at.topic, run.next_bytes)
                continue
            before = run.taken_count
            if self._gathered.extend(at, timestamp_ms, run, now_ms()):
                self._wake(at)
            batch, count = self._gathered.newest(at), run.taken_count - before
            part = positions[before : run.taken_count]
            sent._add(SentPart(batch, batch.record_count - count, part))

    def _observed(self) -> AbstractContextManager[None]:
        """Report this producer's metrics to the program's MeterProvider during the `with` block.
        Does nothing if the program has no MeterProvider."""
        return nullcontext()

    def _too_large(self, size_bytes: int) -> RefusedError:
        return RefusedError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the record takes {size_bytes} bytes, max.request.size is "
            f"{self._config.request_bytes_max}",
        )

    async def flush(self) -> None:
        """Send all buffered records now, and wait until every record is delivered or has failed.

        Raises the first NotDeliveredError of a record whose Delivery the application does not
        await.
        """
        await settle_all(self._gathered, self._wake_all)
        failure = self._gathered.take_unseen_failure()
        if failure is not None:
            raise failure

    async def partitions_of(self, topic: str) -> tuple[int, ...]:
        """Return the partition numbers of a topic.

        A missing topic is created if the cluster allows automatic creation of topics.
        """
        known = self._cluster.topics.get(topic)
        if known is None:
            await self._learn(topic)
            known = self._cluster.topics[topic]
        return known.partitions

    async def _run(self) -> NoReturn:
        """Run timers and retries of the producer until cancelled. `open_producer` runs this in the
        background."""
        async with trio.open_nursery() as nursery:
            # A task of its own, so that delivery.timeout.ms holds even if a broker responds late.
            nursery.start_soon(self._expire)
            if self._transactions is not None:
                nursery.start_soon(self._transactions.run)
            await self._learn_of_cluster()

    async def _expire(self) -> NoReturn:
        while True:
            if self._gathered.expire(now_ms()):
                self._on_change(None)
            expiry_ms = self._gathered.next_expiry_ms()
            self._is_expiry_awaited = expiry_ms is not None
            await self._expiry.wait(expiry_ms)

    async def _learn_of_cluster(self) -> NoReturn:
        refresh_ms = now_ms() + self._config.metadata_age_ms_max
        while True:
            now = now_ms()
            if self._gathered.is_identity_due:
                await self._take_identity()
            leaderless = {
                at.topic
                for at in self._gathered.waiting_partitions()
                if self._cluster.known_leader(at) is None
            }
            if now >= refresh_ms:
                # Without topics, nothing becomes stale, and the next wait would return at once.
                refresh_ms = now + self._config.metadata_age_ms_max
                self._stale.update(self._cluster.topics)
            if self._stale or leaderless:
                refresh_ms = now + self._config.metadata_age_ms_max
                await self._refresh(self._stale | leaderless)
            else:
                await self._wake_up.wait(refresh_ms)

    async def _wait_to_send(self, topic: str, size_bytes: int) -> None:
        deadline = trio.current_time() + self._config.block_ms_max / 1_000
        if topic not in self._cluster.topics:
            await self._learn(topic)
        with trio.move_on_at(deadline) as scope:
            while not self._gathered.has_room(size_bytes):
                # Batches that are lingering are sent now: no record can be added while memory is
                # full.
                for at in self._gathered.waiting_partitions():
                    self._wake(at)
                await self._room.park()
        if scope.cancelled_caught:
            raise RefusedError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"buffer.memory was full for max.block.ms, {self._config.block_ms_max} ms",
            )

    async def _learn(self, topic: str) -> None:
        deadline = trio.current_time() + self._config.block_ms_max / 1_000
        backoff_s = self._config.retry_backoff_ms / 1_000
        while True:
            left_s = max(0.0, deadline - trio.current_time())
            try:
                await self._cluster.partitions_of(
                    topic,
                    may_create=True,
                    deadline_s=left_s,
                    on_missing=lambda: self._on_missing(topic),
                )
                self._missing.on_found(topic)
                return
            except ConnectionLostError as error:
                if trio.current_time() + backoff_s >= deadline:
                    # Another attempt would have no time left, and would not report a better reason.
                    raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, str(error)) from None
                await trio.sleep(backoff_s)
            finally:
                self._missing.stop_waiting(topic)

    def _on_missing(self, topic: str) -> None:
        """Report a topic that does not exist and was not created within the grace period."""
        choice = self._config.on_missing
        if choice == "wait" or not self._missing.on_missing(
            topic, now_ms(), is_repeated=choice == "raise"
        ):
            return
        error = missing_topic_error(topic)
        if choice == "raise":
            raise error
        LOG.warning("%s", error.message)

    async def _refresh(self, topics: Iterable[str]) -> None:
        """Request the metadata of topics, at most once per `retry.backoff.ms`."""
        wanted = set(topics)
        try:
            answer = await self._cluster.metadata(wanted)
            self._stale -= wanted
            self._report_missing(answer)
        except (ConnectionLostError, ProtocolError):
            pass
        self._wake_all()
        await trio.sleep(self._config.retry_backoff_ms / 1_000)

    def _report_missing(self, answer: MetadataResponse) -> None:
        """Report topics that were deleted while records for them are buffered. If the report is an
        error, the next `send` raises it."""
        for topic in answer.topics:
            name = topic.name or ""
            if topic.error_code == ErrorCode.NONE:
                self._missing.on_found(name)
            elif (
                topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                and self._config.on_missing == "warn"
            ):
                self._on_missing(name)

    async def _take_identity(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=INT32_MAX)
        old = self._gathered.identity
        if old is None:
            earlier = self._identities.take(self._cluster.cluster_id)
            if earlier is not None:
                self._gathered.become(earlier)
                self._wake_all()
                return
        try:
            version = await self._cluster.version_of(request.API_KEY)
            if old is not None and version >= NEW_EPOCHS_FROM:
                request.producer_id, request.producer_epoch = old
            answer = await self._cluster.request(request, InitProducerIdResponse, version=version)
            raise_for(answer.error_code)
        except (ConnectionLostError, ProtocolError, RefusedError) as error:
            if isinstance(error, RefusedError) and not error.is_retriable:
                self._gathered.fail_waiting(error.code, f"no producer id: {error.message}")
                self._on_change(None)
            else:
                await trio.sleep(self._config.retry_backoff_ms / 1_000)
                # Without this, the next attempt would wait for an unrelated event.
                self._wake_up.set()
            return
        self._gathered.become(
            ProducerIdentity(ProducerId(answer.producer_id), answer.producer_epoch)
        )
        self._wake_all()

    def _on_change(self, stale: TopicPartition | None) -> None:
        if stale is not None:
            self._stale.add(stale.topic)
        self._room.unpark_all()
        self._wake_all()

    def _on_delivered(self, at: TopicPartition, by: NodeId) -> None:
        """Wake the tasks that may have work after the broker `by` has acknowledged a batch. Other
        tasks are not woken for each batch, because their turns would cost as much as the request.
        """
        self._room.unpark_all()
        if self._gathered.is_identity_due:
            self._wake_all()
            return
        # The next batch may have waited for this one, on the link of a later leader.
        leader = self._cluster.known_leader(at)
        if leader is not None and leader.node != by:
            self._link(leader.node).wake_up.set()

    def _wake(self, at: TopicPartition) -> None:
        leader = self._cluster.known_leader(at)
        if not self._is_expiry_awaited:
            self._expiry.set()
        if leader is None or self._gathered.identity is None:
            self._wake_up.set()
        if leader is not None:
            self._link(leader.node).wake_up.set()

    def _wake_all(self) -> None:
        for at in self._gathered.waiting_partitions():
            leader = self._cluster.known_leader(at)
            if leader is not None:
                self._link(leader.node).wake_up.set()
        self._expiry.set()
        self._wake_up.set()

    def _link(self, node: NodeId) -> ProducerLink:
        link = self._links.get(node)
        if link is None:
            link = self._links[node] = self._link_class(
                node,
                cluster=self._cluster,
                gathered=self._gathered,
                config=self._config,
                on_change=self._on_change,
                on_delivered=self._on_delivered,
            )
            self._nursery.start_soon(link.run)
        return link


@client_block
async def open_producer(
    bootstrap: str | Iterable[str | tuple[str, int]],
    config: ProducerConfig | None = None,
    *,
    ends_at_failure: bool = False,
    identities: ProducerIdentities | None = None,
    partition_by: PartitionChoice | None = None,
) -> AsyncIterator[Producer]:
    """Open and yield a producer, which is closed at the end of the caller's `async with` block.

    `bootstrap` lists the addresses of one or more brokers, as `host:port,…`. The default port is
    9092. No request is sent before the first record. If the producer has a `transactional.id`,
    opening it first fences earlier producers with that id, within `max.block.ms`.

    With `ends_at_failure`, the producer sends no record after the first record that was not
    delivered, so that no partition has gaps. Every later `send` raises the NotDeliveredError of
    that record.

    Successive producers of one process may share `identities`. They then reuse producer ids, so
    that brokers remember one producer instead of many.

    `partition_by` is a partitioner of the application: a function that is called with an
    UnplacedRecord and returns a partition, or None to apply the setting `partitioner`. It is called
    once for each record that is sent without a partition, and must not block. `send` raises its
    errors.
    """
    config = config_of(config, ProducerConfig)
    identities = identities or ProducerIdentities()
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(open_cluster(addresses_of(bootstrap), config))
        metrics_push = await stack.enter_async_context(
            open_metrics_push(cluster, ClientKind.PRODUCER, is_enabled=config.enable_metrics_push)
        )
        transactions, gathered = None, Accumulator(config, ends_at_failure=ends_at_failure)
        if config.transactional_id is not None:
            transactions = await stack.enter_async_context(open_transactions(cluster, config))
            gathered = transactions.gathered
        report_producer(metrics_push, gathered, config)
        try:
            async with open_background() as nursery:
                producer = instrumented(Producer, TRACED)(
                    cluster,
                    config,
                    nursery,
                    gathered=gathered,
                    identities=identities,
                    transactions=transactions,
                    partition_by=partition_by,
                )
                producer._metrics_push = metrics_push
                nursery.start_soon(producer._run)
                with producer._observed():
                    yield producer
                    await producer.flush()
        finally:
            # No request of this producer is sent from here on, so its identity may be reused.
            if transactions is None:
                identities.give_back(cluster.cluster_id, gathered.identity)
