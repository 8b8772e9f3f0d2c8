"""What becomes of a record that was sent."""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import trio

from ottla.client.produce.accumulator import Accumulator
from ottla.client.produce.producer_lane import NotDeliveredError, ProducerBatch
from ottla.model.ids import Offset


class RecordMetadata(NamedTuple):
    """Where a record is."""

    topic: str
    """Name of the topic."""
    partition: int
    """Number of the partition."""
    offset: Offset
    """-1 where nobody says: under acks=0, and of a batch that an earlier attempt had written."""
    timestamp_ms: int
    """Time of the record, in ms since 1970: the producer's or the broker's."""


class Delivery:
    """The delivery report of one record, to come: `await` it.

    It gives RecordMetadata or raises NotDeliveredError; awaiting it twice gives the same twice.
    """

    # As little as is possible, since there is one for each record: nothing is made of it before
    # somebody asks, and nothing changes, so that another thread may look.
    __slots__ = ("_batch", "_index", "_timestamp_ms")

    def __init__(self, batch: ProducerBatch, index: int, timestamp_ms: int) -> None:
        self._batch = batch
        """The batch that took the record, and its place there."""
        self._index = index
        self._timestamp_ms = timestamp_ms

    def __await__(self) -> Generator[Any, Any, RecordMetadata]:
        return self.wait().__await__()

    @property
    def is_settled(self) -> bool:
        """Whether it is known what became of the record."""
        return self._find()[0].is_settled

    @property
    def failure(self) -> NotDeliveredError | None:
        """Why the record was not delivered; `flush` raises it nevertheless."""
        batch, index = self._find()
        return batch.failure_of(index)

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Call back once it is known what became of the record, which may be at once."""
        batch, _ = self._find()
        if batch.is_settled:
            callback()
        else:
            # A batch that is split calls back too: go on with the part that has the record.
            batch.on_settled.append(lambda: self.when_settled(callback))

    def watch(self, callback: Callable[[], None]) -> None:
        """Do the same for who will hear of a failure: `flush` need not raise it."""
        self._find()[0].is_watched = True
        self.when_settled(callback)

    async def wait(self) -> RecordMetadata:
        """Wait until it is known what became of the record.

        Others get their turn once for each settled batch, not for each of its records.
        """
        batch, _ = self._find()
        if batch.is_settled and not batch.is_watched:
            await trio.lowlevel.checkpoint()
        batch.is_watched = True
        while not batch.is_settled:
            event = trio.Event()
            batch.on_settled.append(event.set)
            await event.wait()
            batch, _ = self._find()
        return self.result()

    def result(self) -> RecordMetadata:
        """Return what became of the record; it must be settled."""
        batch, index = self._find()
        assert batch.is_settled
        failure = batch.failure_of(index)
        if failure is not None:
            batch.is_watched = True
            raise failure
        offset = batch.base_offset + index if batch.base_offset >= 0 else -1
        stamp = batch.log_append_time_ms if batch.log_append_time_ms >= 0 else self._timestamp_ms
        topic, partition = batch.partition
        return RecordMetadata(topic, partition, Offset(offset), stamp)

    def _find(self) -> tuple[ProducerBatch, int]:
        """Return where the record is now: a batch that was too large was split."""
        batch = self._batch
        return (batch, self._index) if batch.parts is None else batch.leaf_of(self._index)


async def settle_all(gathered: Accumulator, wake: Callable[[], None]) -> None:
    """Send everything that was accepted now; return when the outcome of each batch is known.

    `wake` wakes the connections: nothing lingers.
    """
    batches = gathered.begin_flush()
    try:
        wake()
        while batches:
            batch = batches.pop()
            if not batch.is_settled and batch.parts is None:
                event = trio.Event()
                batch.on_settled.append(event.set)
                await event.wait()
            batches += batch.parts or ()
    finally:
        gathered.end_flush()
    await trio.lowlevel.checkpoint()


__all__ = ["Delivery", "NotDeliveredError", "RecordMetadata", "settle_all"]


def note_sender(delivery: Delivery, span: object, *, count_max: int) -> None:
    """Have the request that brings a record know its span, if it is one of the batch's first."""
    batch = delivery._batch
    if batch.senders is None:
        batch.senders = [span]
    elif len(batch.senders) < count_max:
        batch.senders.append(span)
