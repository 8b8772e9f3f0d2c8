"""Delivery reports of sent records."""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, NoReturn

import trio

from ottla.client.produce.partition_queue import NotDeliveredError, ProducerBatch
from ottla.model.ids import Offset


class RecordMetadata(NamedTuple):
    """Topic, partition and offset of a delivered record."""

    topic: str
    """Name of the topic."""
    partition: int
    """Number of the partition."""
    offset: Offset
    """Offset of the record.  -1 if it is unknown: with acks=0, or if an earlier attempt had already
    written the batch."""
    timestamp_ms: int
    """Timestamp of the record, in ms since 1970, set by the producer or the broker."""


class Delivery:
    """Delivery report of one record.

    Awaiting it returns RecordMetadata or raises NotDeliveredError. It may be awaited repeatedly.
    """

    # As small as possible, since there is one for each record.  It is immutable, so that another
    # thread may read it.
    __slots__ = ("_batch", "_index", "_timestamp_ms")

    def __init__(self, batch: ProducerBatch, index: int, timestamp_ms: int) -> None:
        self._batch = batch
        """Batch to which the record was appended. `_index` is the index of the record in this
        batch."""
        self._index = index
        self._timestamp_ms = timestamp_ms

    def __await__(self) -> Generator[Any, Any, RecordMetadata]:
        return self.wait().__await__()

    @property
    def is_settled(self) -> bool:
        """True if the record was delivered or has failed permanently."""
        return self._find()[0].is_settled

    @property
    def failure(self) -> NotDeliveredError | None:
        """Error of the delivery, or None if the record was delivered or its outcome is not known
        yet. `flush` raises this error even if the application has read this property."""
        batch, index = self._find()
        return batch.failure_of(index)

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the record is delivered or has failed, or at once if the outcome is
        already known."""
        batch, _ = self._find()
        if batch.is_settled:
            callback()
        else:
            # A batch that is split also calls back; this then follows the part that has the record.
            batch.on_settled.append(lambda: self.when_settled(callback))

    def watch(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the record is delivered or has failed. The caller becomes
        responsible for a failure, so `flush` does not raise it."""
        self._find()[0].is_watched = True
        self.when_settled(callback)

    async def wait(self) -> RecordMetadata:
        """Wait until the record is delivered or has failed, and return its metadata.

        Raises NotDeliveredError if the record was not delivered. Yields to other tasks once per
        batch, not once per record.
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
        """Return the metadata of the delivered record. The caller must first wait until
        `is_settled` is True.

        Raises NotDeliveredError if the record was not delivered.
        """
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
        """Return the batch that contains the record now, and the record's index in that batch. Both
        change if a batch that is too large is split."""
        batch = self._batch
        return (batch, self._index) if batch.parts is None else batch.leaf_of(self._index)


def missing_attribute(delivery: object, name: str) -> AttributeError:
    """Return an AttributeError for an attribute that a delivery report lacks. Its message explains
    that awaiting the report returns a RecordMetadata, which has the attribute."""
    text = f"{type(delivery).__name__!r} object has no attribute {name!r}"
    if name in RecordMetadata._fields:
        text += f"; await the delivery first: (await delivery).{name}"
    return AttributeError(text, name=name, obj=delivery)


def _raise_missing(delivery: Delivery, name: str) -> NoReturn:
    raise missing_attribute(delivery, name)


# Not a method of the class, since type checkers would then accept any attribute.  A compiled
# function is no method, but a lambda is.
_on_missing = lambda delivery, name: _raise_missing(delivery, name)  # noqa: E731
setattr(Delivery, "__getattr__", _on_missing)  # noqa: B010


__all__ = ["Delivery", "NotDeliveredError", "RecordMetadata"]


def note_sender(delivery: Delivery, span: object, *, count_max: int) -> None:
    """Add the OpenTelemetry span of a record to the `senders` of its batch. Does nothing if the
    batch already has `count_max` spans."""
    batch = delivery._batch
    if batch.senders is None:
        batch.senders = [span]
    elif len(batch.senders) < count_max:
        batch.senders.append(span)
