"""Expected content of a log: a list of batches, and the state derived from it. The module does no
I/O.

All state is derived from the list by the simplest code, without indexes or caches.
"""

from struct import Struct
from typing import NamedTuple

_PREFIX = Struct(">qii")
"""Binary layout of base offset, length and leader epoch: the first fields of a batch, which a log
sets in an appended batch."""


class UnplacedBatch(NamedTuple):
    """A record batch that has not been appended to a log yet, and therefore has no offset."""

    data: bytes
    records: tuple[tuple[int, bytes], ...]
    """The (timestamp in ms, value) of each record in the batch."""
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False
    is_abort: bool | None = None
    """True if the batch is an abort marker, False if it is a commit marker. None if it is not a
    control batch."""


class ModelBatch(NamedTuple):
    """A record batch at its offset in the expected content of a log."""

    base_offset: int
    end_offset: int
    epoch: int
    made: UnplacedBatch
    raw: bytes
    """The exact bytes that the log should contain for this batch."""


class ModelAbortedTransaction(NamedTuple):
    """An aborted transaction in the expected content of a log."""

    producer_id: int
    first_offset: int
    last_offset: int


class ModelProducer:
    """Expected state of one producer in the model of a log."""

    def __init__(self) -> None:
        self.epoch = -1
        self.batches: list[ModelBatch] = []
        """Expected batches of the producer's current epoch."""
        self.txn_first_offset = -1
        self.last_offset = -1


def place(made: UnplacedBatch, base_offset: int, epoch: int) -> ModelBatch:
    """Return a batch with its base offset and leader epoch set, as a log stores it."""
    _, length, _ = _PREFIX.unpack_from(made.data)
    raw = _PREFIX.pack(base_offset, length, epoch) + made.data[_PREFIX.size :]
    return ModelBatch(base_offset, base_offset + len(made.records), epoch, made, raw)


class LogModel:
    """The expected content of a partition's log, as a list of batches."""

    def __init__(self) -> None:
        self.batches: list[ModelBatch] = []
        """All batches that the log should contain. Batches deleted from its front are kept in this
        list, because the producers' state depends on them."""
        self.start_offset = 0
        self.start_offset_max = 0
        """The highest log start offset that the log has had so far."""
        self.end_offset = 0
        self.ghosts: list[ModelBatch] = []
        """Batches that the log refused because of a disk failure. One of them may exist again after
        a crash."""
        self.producers: dict[int, ModelProducer] = {}
        self.aborted: list[ModelAbortedTransaction] = []

    def append(self, kept: ModelBatch) -> None:
        """Append a batch to the expected content of the log."""
        assert kept.base_offset == self.end_offset, (kept.base_offset, self.end_offset)
        self.batches.append(kept)
        self.end_offset = kept.end_offset
        self._follow(kept)

    def _follow(self, kept: ModelBatch) -> None:
        made = kept.made
        if made.producer_id < 0:
            return
        producer = self.producers.setdefault(made.producer_id, ModelProducer())
        if producer.epoch != made.producer_epoch:
            producer.epoch = made.producer_epoch
            producer.batches = []
        producer.last_offset = kept.end_offset - 1
        if made.is_abort is None:
            producer.batches.append(kept)
            if made.is_transactional and producer.txn_first_offset < 0:
                producer.txn_first_offset = kept.base_offset
            return
        first, producer.txn_first_offset = producer.txn_first_offset, -1
        if first >= 0 and made.is_abort:
            self.aborted.append(
                ModelAbortedTransaction(made.producer_id, first, kept.end_offset - 1)
            )

    def keep(self, batches: list[ModelBatch], end_offset: int) -> None:
        """Replace the expected content of the log: its batches by `batches`, and its end offset by
        `end_offset`."""
        self.batches = batches
        self.end_offset = end_offset
        self.producers = {}
        self.aborted = []
        for kept in batches:
            self._follow(kept)

    def cut_place(self, offset: int) -> tuple[int, int]:
        """Return the number of batches that a truncation of the log to `offset` keeps, and the
        log's end offset after it. A batch that contains the offset is removed completely."""
        if offset >= self.end_offset:
            return len(self.batches), self.end_offset
        count = len(self.batches)
        while count and self.batches[count - 1].end_offset > offset:
            count -= 1
        following = self.batches[count].base_offset if count < len(self.batches) else offset
        return count, min(offset, following)

    def truncate(self, offset: int) -> None:
        """Remove all expected batches from an offset on. The log start offset does not change."""
        count, end_offset = self.cut_place(offset)
        if end_offset < self.start_offset:
            self.begin_at(min(offset, self.start_offset))
        else:
            self.keep(self.batches[:count], end_offset)

    def begin_at(self, offset: int) -> None:
        """Remove all expected batches, and start the expected log at an offset."""
        self.keep([], offset)
        self.start_offset = offset
        self.raise_start(offset)

    def raise_start(self, offset: int) -> None:
        """Raise the expected log start offset to `offset`."""
        self.start_offset = max(self.start_offset, offset)
        self.start_offset_max = max(self.start_offset_max, self.start_offset)

    def since(self, offset: int) -> list[ModelBatch]:
        """Return the expected batches from the batch that contains the offset to the end of the
        log."""
        return [kept for kept in self.batches if kept.end_offset > offset]

    def first_at_or_after(self, timestamp_ms: int, end_offset: int) -> tuple[int, int, int] | None:
        """Return (offset, timestamp in ms, leader epoch) of the first record below `end_offset`
        whose timestamp is at least `timestamp_ms`, or None if there is no such record."""
        for kept in self.since(self.start_offset):
            for delta, (at_ms, _) in enumerate(kept.made.records):
                offset = kept.base_offset + delta
                if at_ms >= timestamp_ms and self.start_offset <= offset < end_offset:
                    return offset, at_ms, kept.epoch
        return None

    def epochs(self, from_offset: int) -> list[tuple[int, int]]:
        """Return (leader epoch, start offset) of each epoch that has batches at or after an
        offset."""
        found: list[tuple[int, int]] = []
        for kept in self.since(from_offset):
            if not found or kept.epoch > found[-1][0]:
                found.append((kept.epoch, max(kept.base_offset, from_offset)))
        return found

    def first_open_transaction(self) -> int | None:
        """Return the first offset of the oldest open transaction in the log, or None if no
        transaction is open."""
        firsts = [each.txn_first_offset for each in self.producers.values()]
        return min((first for first in firsts if first >= self.start_offset), default=None)
