"""The consumer for asyncio: records cross over from trio's thread by the poll."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any

from ottla.client.consumer import Consumer
from ottla.client.fetch.record_batch import ConsumerRecord, RecordBatch
from ottla.client.groups.committer import PendingCommit
from ottla.client.groups.group_offsets import Committed
from ottla.client.groups.handover import Listener
from ottla.client.groups.subscription import SubscriptionPattern
from ottla.client.network.aio_bridge import Bridge, asked, done
from ottla.client.network.trio_thread import ClientClosedError, Kept, TrioThread
from ottla.model.errors import OttlaError
from ottla.model.ids import NO_EPOCH, Offset, TopicPartition

RECORDS_PER_TURN = 64
"""How many records the iterator gives before other tasks get their turn."""


class AioConsumer(Bridge[Consumer]):
    """A consumer for asyncio; made by `open_consumer`."""

    def __init__(self, thread: TrioThread, kept: Kept[Consumer]) -> None:
        super().__init__(thread, kept)
        self._polled: deque[RecordBatch] = deque()
        """What was polled and is not given out yet, in order."""
        self._row = 0
        """How many records of the first of them are given out."""
        self._made: list[ConsumerRecord] = []
        """The records of the first of them, where they are given out one by one."""
        self._left_in_turn = RECORDS_PER_TURN

    # Reading.

    async def poll(
        self, timeout_s: float | None = None, *, record_count_max: int | None = None
    ) -> list[ConsumerRecord]:
        """Return the next records, waiting for the first of them; none when the time is over."""
        batches = await self.poll_batches(timeout_s, record_count_max=record_count_max)
        return list(chain.from_iterable(batches))

    async def poll_batches(
        self,
        timeout_s: float | None = None,
        *,
        record_count_max: int | None = None,
        bytes_max: int | None = None,
    ) -> list[RecordBatch]:
        """Return the same records as batches, as `ottla.client.Consumer.poll_batches` does."""
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
        """Return the next record; the one before counts as processed now."""
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

        # Extended also for a cancelled task: no record that was polled is lost.
        keep = self._polled.extend
        keep(await self._thread.run(ask, kept=self._kept, on_unclaimed=keep))

    # What is read, and where.

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
        """Share topics with the group; the callbacks are coroutine functions of asyncio."""

        def bridged(listener: Listener | None) -> Listener | None:
            if listener is None:
                return None

            async def told(partitions: tuple[TopicPartition, ...]) -> None:
                await self._thread.call_back(listener, partitions)

            return told

        def act(consumer: Consumer) -> None:
            consumer.subscribe(
                topics,
                pattern=pattern,
                exclude=exclude,
                on_assigned=bridged(on_assigned),
                on_revoked=bridged(on_revoked),
                on_lost=bridged(on_lost),
            )

        await self.act(act)

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions and no others; those that stay keep their position."""
        await self.act(lambda consumer: consumer.assign(partitions))

    async def unsubscribe(self) -> None:
        """Leave the group, having committed what is processed if that is automatic."""
        await self.act(lambda consumer: None)
        await self._run(self._kept.value.unsubscribe)

    async def pause(self, *partitions: TopicPartition) -> None:
        """Neither fetch nor hand out these until `resume`."""
        await self.act(lambda consumer: consumer.pause(*partitions))

    async def seek(self, at: TopicPartition, offset: int, leader_epoch: int = NO_EPOCH) -> None:
        """Go on at this offset; with the epoch of the record before it, a truncation is noticed."""
        await self.act(lambda consumer: consumer.seek(at, offset, leader_epoch))

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the first offset there is, in these partitions or in all."""
        await self.act(lambda consumer: consumer.seek_to_beginning(*partitions))

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on at the end as it is when it is looked up, in these partitions or in all."""
        await self.act(lambda consumer: consumer.seek_to_end(*partitions))

    async def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Go on at the first record of that time or later, and at the end where there is none."""
        await self.act(lambda consumer: consumer.seek_to_time(timestamp_ms, *partitions))

    async def position(self, at: TopicPartition) -> Offset:
        """Return the offset of the next record, waiting until it is known."""
        first = self._firsts().get(at)
        return await self._run(self._kept.value.position, at) if first is None else first

    async def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions it reads."""

        async def ask() -> frozenset[TopicPartition]:
            return self._kept.value.assignment

        return await self._run(ask)

    async def paused(self) -> frozenset[TopicPartition]:
        """Return the partitions that are paused."""

        async def ask() -> frozenset[TopicPartition]:
            return self._kept.value.paused

        return await self._run(ask)

    def processing(self, record: ConsumerRecord) -> AbstractContextManager[None]:
        """Make a block the processing of a record, as `ottla.client.Consumer.processing` does."""
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
        """Commit what was given out, or these offsets (of the next record to process each)."""
        firsts = self._firsts()

        async def ask() -> None:
            consumer = self._kept.value
            await consumer.commit(_given_out(consumer, offsets, firsts))

        await self._run(ask)

    async def commit_async(
        self, offsets: Mapping[TopicPartition, int | Committed] | None = None
    ) -> "AioPendingCommit":
        """Commit the same behind the application's back: await what this returns, or do not.

        Commits reach the coordinator in the order in which they were asked for.  An error that
        is not awaited comes out of the next poll.
        """
        firsts = self._firsts()

        async def ask() -> PendingCommit:
            consumer = self._kept.value
            return consumer.commit_async(_given_out(consumer, offsets, firsts))

        return AioPendingCommit(self, await self._run(ask))

    async def coordinator_address(self) -> str | None:
        """Return where the group's coordinator was found, `host:port`; None when looked for."""

        async def ask() -> str | None:
            return self._kept.value.coordinator_address

        return await self._run(ask)

    committed = asked(Consumer.committed)
    group_metadata = done(Consumer.group_metadata)

    def _firsts(self) -> dict[TopicPartition, Offset]:
        """Return where the application stands in partitions of which more was polled."""
        found: dict[TopicPartition, Offset] = {}
        row = self._row
        for batch in self._polled:
            found.setdefault(batch.at, batch._part(row, 1, None).base_offset)
            row = 0
        return found

    async def act(self, act: Callable[[Consumer], None]) -> None:
        """Change what is read, having given back what was polled and not given out.

        For the client's own use.
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
    """A commit under way: `await` it to know that the coordinator has it."""

    __slots__ = ("_bridge", "_commit")

    def __init__(self, bridge: Bridge[Consumer], commit: PendingCommit) -> None:
        self._bridge = bridge
        self._commit = commit

    def __await__(self) -> Any:
        return self.wait().__await__()

    @property
    def offsets(self) -> Mapping[TopicPartition, Committed]:
        """Offsets to commit, by partition."""
        return self._commit.offsets

    @property
    def is_settled(self) -> bool:
        """Whether it is known what became of it."""
        return self._commit.is_settled

    @property
    def error(self) -> OttlaError | None:
        """Why it failed; None while that is not known, and when it has not."""
        return self._commit.error

    def result(self) -> None:
        """Raise why the coordinator does not have it, if it has not; it must be settled."""
        self._commit.result()

    async def wait(self) -> None:
        """Wait until the coordinator has it, or raise why it has not."""
        if not self.is_settled:
            await self._bridge._run(self._commit.wait)
        self.result()


def _given_out(
    consumer: Consumer,
    offsets: Mapping[TopicPartition, int | Committed] | None,
    firsts: Mapping[TopicPartition, Offset],
) -> Mapping[TopicPartition, int | Committed] | None:
    """Return what to commit: what was polled and not given out yet is not processed."""
    if offsets is not None or not firsts:
        return offsets
    processed = consumer._member_of().processed()
    return {**processed, **{at: firsts[at] for at in firsts if at in processed}}


__all__ = ["AioConsumer", "AioPendingCommit"]
