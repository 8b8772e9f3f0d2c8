"""The consumer for asyncio. Its methods call a trio consumer that runs in a background thread, from
which each poll transfers records."""

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any

from ottla.client.consumer import Consumer, seek_back
from ottla.client.fetch.record_batch import ConsumerRecord, RecordBatch
from ottla.client.groups.committer import PendingCommit
from ottla.client.groups.group_offsets import Committed
from ottla.client.groups.handover import Listener
from ottla.client.groups.subscription import SubscriptionPattern
from ottla.client.network.aio_bridge import Bridge, asked, done
from ottla.client.network.calls_of_others import CallsOfOthers
from ottla.client.network.trio_thread import ClientClosedError, KeptManager, TrioThread
from ottla.model.errors import OttlaError
from ottla.model.ids import NO_EPOCH, Offset, TopicPartition

RECORDS_PER_TURN = 64
"""Number of records that the async iterator returns before it yields to other tasks. With a smaller
number, the iterator yields more often. A larger number delays other tasks."""


class AioConsumer(Bridge[Consumer], CallsOfOthers):
    """Consumer for asyncio. Created by `open_consumer`."""

    def __init__(self, thread: TrioThread, kept: KeptManager[Consumer]) -> None:
        super().__init__(thread, kept)
        self._polled: deque[RecordBatch] = deque()
        """Polled batches with records that the application has not received yet, in order."""
        self._row = 0
        """Number of records in the first polled batch that the application has already received."""
        self._made: list[ConsumerRecord] = []
        """Record objects of the first polled batch. The iterator returns them one by one."""
        self._left_in_turn = RECORDS_PER_TURN

    # Reading.

    async def poll(
        self, timeout_s: float | None = None, *, record_count_max: int | None = None
    ) -> list[ConsumerRecord]:
        """Return the next records. Waits until at least one record is available.

        Returns an empty list if no record arrives within `timeout_s` seconds.
        """
        batches = await self.poll_batches(timeout_s, record_count_max=record_count_max)
        return list(chain.from_iterable(batches))

    async def poll_batches(
        self,
        timeout_s: float | None = None,
        *,
        record_count_max: int | None = None,
        bytes_max: int | None = None,
    ) -> list[RecordBatch]:
        """Return the next records as batches, as `ottla.client.Consumer.poll_batches` does."""
        if not self._polled:
            await self._fetch(timeout_s, record_count_max, bytes_max)
        left = sum(map(len, self._polled)) if record_count_max is None else record_count_max
        found: list[RecordBatch] = []
        while self._polled and left > 0 and (bytes_max is None or bytes_max > 0):
            found.append(self._polled[0]._part(self._row, left, bytes_max))
            self._give_out(len(found[-1]))
            left -= len(found[-1])
            if bytes_max is not None:
                bytes_max -= found[-1].size_bytes
        return found

    def __aiter__(self) -> "AioConsumer":
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Return the next record. The call also marks the previously returned record as
        processed."""
        self._left_in_turn -= 1
        if self._left_in_turn <= 0:
            self._left_in_turn = RECORDS_PER_TURN
            await asyncio.sleep(0)
        while not self._polled:
            await self._fetch(None, None, None)
        if not self._made:
            self._made = list(self._polled[0])
        record = self._made[self._row]
        self._give_out(1)
        return record

    def _give_out(self, count: int) -> None:
        self._row += count
        if self._row == len(self._polled[0]):
            self._polled.popleft()
            self._row = 0
            self._made = []

    async def _fetch(
        self, timeout_s: float | None, record_count_max: int | None, bytes_max: int | None
    ) -> None:
        consumer = self._kept.value

        async def ask() -> list[RecordBatch]:
            return await consumer.poll_batches(
                timeout_s, record_count_max=record_count_max, bytes_max=bytes_max
            )

        # `keep` is called also if the task is cancelled: no polled record is lost.
        keep = self._polled.extend
        keep(await self._thread.run(ask, kept=self._kept, on_unclaimed=keep))

    # Assignment and positions.

    async def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | SubscriptionPattern | None = None,
        exclude: str | None = None,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Join the group with a subscription, as `ottla.client.Consumer.subscribe` does.

        The callbacks are async functions that run in the asyncio event loop.
        """

        def bridged(listener: Listener | None) -> Listener | None:
            if listener is None:
                return None

            async def bridged_listener(partitions: tuple[TopicPartition, ...]) -> None:
                await self._thread.call_back(listener, partitions)

            return bridged_listener

        def act(consumer: Consumer) -> None:
            consumer.subscribe(
                topics,
                pattern=pattern,
                exclude=exclude,
                on_assigned=bridged(on_assigned),
                on_revoked=bridged(on_revoked),
                on_lost=bridged(on_lost),
            )

        await self._act(act)

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Replace the assigned partitions. Partitions that remain assigned keep their positions."""
        await self._act(lambda consumer: consumer.assign(partitions))

    async def unsubscribe(self) -> None:
        """Leave the group.  With automatic commits, processed records are committed first."""
        await self._act(lambda consumer: None)
        await self._run(self._kept.value.unsubscribe)

    async def pause(self, *partitions: TopicPartition) -> None:
        """Stop fetching and returning records of these partitions until `resume` is called for
        them."""
        await self._act(lambda consumer: consumer.pause(*partitions))

    async def seek(self, at: TopicPartition, offset: int, leader_epoch: int = NO_EPOCH) -> None:
        """Continue reading a partition at an offset.

        `leader_epoch` is the leader epoch of the record before that offset. If it is known, the
        consumer can detect that the log was truncated.
        """
        await self._act(lambda consumer: consumer.seek(at, offset, leader_epoch))

    async def _seek_back(self, records: Sequence[ConsumerRecord]) -> None:
        """Move the positions of partitions back to the first of `records` in each partition.
        Partitions that are no longer assigned are skipped."""
        await self._act(lambda consumer: seek_back(consumer, records))

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue reading at the first offset of `partitions`, or of all assigned partitions if
        `partitions` is empty."""
        await self._act(lambda consumer: consumer.seek_to_beginning(*partitions))

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue reading at the end offset of `partitions`, or of all assigned partitions if
        `partitions` is empty.

        The end offset is looked up in the background after this call.
        """
        await self._act(lambda consumer: consumer.seek_to_end(*partitions))

    async def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Move the positions of `partitions`, or of all assigned partitions if `partitions` is
        empty, to a time in ms since 1970.

        Reading continues at the first record of each partition whose timestamp is at or after that
        time, or at the end of the partition if it has no such record.
        """
        await self._act(lambda consumer: consumer.seek_to_time(timestamp_ms, *partitions))

    async def position(self, at: TopicPartition) -> Offset:
        """Return the offset of the next record that the application will receive. Waits until the
        offset is known."""
        first = self._firsts().get(at)
        return await self._run(self._kept.value.position, at) if first is None else first

    async def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that are assigned to this consumer."""

        async def ask() -> frozenset[TopicPartition]:
            return self._kept.value.assignment

        return await self._run(ask)

    async def paused(self) -> frozenset[TopicPartition]:
        """Return the partitions for which `pause` is in effect."""

        async def ask() -> frozenset[TopicPartition]:
            return self._kept.value.paused

        return await self._run(ask)

    def processing(self, record: ConsumerRecord) -> AbstractContextManager[None]:
        """Return a context manager for the block of code that processes a record. The block becomes
        an OpenTelemetry span if the program uses OpenTelemetry.

        See `ottla.client.Consumer.processing`.
        """
        if not self._kept.is_open:
            raise ClientClosedError
        return self._kept.value.processing(record)

    resume = done(Consumer.resume)
    beginning_offsets = asked(Consumer.beginning_offsets)
    client_instance_id = asked(Consumer.client_instance_id)
    end_offsets = asked(Consumer.end_offsets)
    offsets_for_times = asked(Consumer.offsets_for_times)

    # Committing.

    async def commit(self, offsets: Mapping[TopicPartition, int | Committed] | None = None) -> None:
        """Commit `offsets`. If `offsets` is None, commit the offsets after the records that the
        application has received.

        A committed offset is the offset of the next record to process.
        """
        firsts = self._firsts()

        async def ask() -> None:
            consumer = self._kept.value
            await consumer.commit(_given_out(consumer, offsets, firsts))

        await self._run(ask)

    async def commit_async(
        self, offsets: Mapping[TopicPartition, int | Committed] | None = None
    ) -> "AioPendingCommit":
        """Start a commit in the background, as `commit` does in the foreground. The returned
        AioPendingCommit may be awaited.

        Commits reach the coordinator in the order of the calls. If the application does not await a
        failed commit, the next poll raises its error.
        """
        firsts = self._firsts()

        async def ask() -> PendingCommit:
            consumer = self._kept.value
            return consumer.commit_async(_given_out(consumer, offsets, firsts))

        return AioPendingCommit(self, await self._run(ask))

    async def coordinator_address(self) -> str | None:
        """Return the address of the group's coordinator as `host:port`, or None if the address is
        unknown."""

        async def ask() -> str | None:
            return self._kept.value.coordinator_address

        return await self._run(ask)

    committed = asked(Consumer.committed)
    group_metadata = done(Consumer.group_metadata)

    def _firsts(self) -> dict[TopicPartition, Offset]:
        """Return the first offset that the application has not received yet, for each partition
        that has polled records."""
        found: dict[TopicPartition, Offset] = {}
        row = self._row
        for batch in self._polled:
            found.setdefault(batch.at, batch._part(row, 1, None).base_offset)
            row = 0
        return found

    async def _act(self, act: Callable[[Consumer], None]) -> None:
        """Move the consumer's positions back to the first record that the application has not
        received, then call `act` with the consumer.

        Polled records that the application has not received are removed from memory, and polled
        again later.
        """
        firsts = self._firsts()

        async def ask() -> None:
            consumer = self._kept.value
            for at in consumer.assignment & firsts.keys():
                consumer.seek(at, firsts[at])
            act(consumer)

        self._polled.clear()
        self._row = 0
        self._made = []
        await self._run(ask)


class AioPendingCommit:
    """A commit in progress. Awaiting it waits for the coordinator's confirmation."""

    __slots__ = ("_bridge", "_commit")

    def __init__(self, bridge: Bridge[Consumer], commit: PendingCommit) -> None:
        self._bridge = bridge
        self._commit = commit

    def __await__(self) -> Generator[Any, Any, None]:
        return self.wait().__await__()

    @property
    def offsets(self) -> Mapping[TopicPartition, Committed]:
        """Offsets that the commit contains, by partition."""
        return self._commit.offsets

    @property
    def is_settled(self) -> bool:
        """True if the commit has succeeded or failed."""
        return self._commit.is_settled

    @property
    def error(self) -> OttlaError | None:
        """Error of the commit, or None if it succeeded or is still in progress."""
        return self._commit.error

    def result(self) -> None:
        """Raise the error of the commit if the commit has failed. The caller must first wait until
        `is_settled` is True."""
        self._commit.result()

    async def wait(self) -> None:
        """Wait for the coordinator's confirmation. Raises the error of the commit if the commit
        fails."""
        if not self.is_settled:
            await self._bridge._run(self._commit.wait)
        self.result()


def _given_out(
    consumer: Consumer,
    offsets: Mapping[TopicPartition, int | Committed] | None,
    firsts: Mapping[TopicPartition, Offset],
) -> Mapping[TopicPartition, int | Committed] | None:
    """Return the offsets to commit. They exclude polled records that the application has not
    received yet; `firsts` has the first offset of these records in each partition."""
    if offsets is not None or not firsts:
        return offsets
    processed = consumer._member_of().processed()
    return {**processed, **{at: firsts[at] for at in firsts if at in processed}}


__all__ = ["AioConsumer", "AioPendingCommit"]
