"""What a perfect log would hold: a list of batches, and what follows from it.  Pure.

Everything is derived from the list by the most obvious code there is: no index, no cache.
"""

from struct import Struct
from typing import NamedTuple

_PREFIX = Struct(">qii")
"""Base offset, length, leader epoch: what a log writes into a batch that it is given."""


class Made(NamedTuple):
    """A batch as its maker knows it."""

    data: bytes
    records: tuple[tuple[int, bytes], ...]
    """(timestamp, value) of each."""
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False
    is_abort: bool | None = None
    """Whether a transaction's marker aborts it; None: the batch is no marker."""


class ModelBatch(NamedTuple):
    """A batch at its place in the log."""

    base_offset: int
    end_offset: int
    epoch: int
    made: Made
    raw: bytes
    """Byte for byte what the log should hold."""


class Aborted(NamedTuple):
    """A transaction that was taken back."""

    producer_id: int
    first_offset: int
    last_offset: int


class ModelProducer:
    """What a log knows of one producer."""

    def __init__(self) -> None:
        self.epoch = -1
        self.batches: list[ModelBatch] = []
        """Of this epoch."""
        self.txn_first_offset = -1
        self.last_offset = -1


def place(made: Made, base_offset: int, epoch: int) -> ModelBatch:
    """Return a batch as a log keeps it."""
    _, length, _ = _PREFIX.unpack_from(made.data)
    raw = _PREFIX.pack(base_offset, length, epoch) + made.data[_PREFIX.size :]
    return ModelBatch(base_offset, base_offset + len(made.records), epoch, made, raw)


class LogModel:
    """The list."""

    def __init__(self) -> None:
        self.batches: list[ModelBatch] = []
        """Those that were removed from the front are still here: they tell what producers did."""
        self.start_offset = 0
        self.start_offset_max = 0
        """The highest log start there ever was."""
        self.end_offset = 0
        self.ghosts: list[ModelBatch] = []
        """Batches that were refused because the disk failed: a crash may bring one back."""
        self.producers: dict[int, ModelProducer] = {}
        self.aborted: list[Aborted] = []

    def append(self, kept: ModelBatch) -> None:
        """Take a batch in."""
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
            self.aborted.append(Aborted(made.producer_id, first, kept.end_offset - 1))

    def keep(self, batches: list[ModelBatch], end_offset: int) -> None:
        """Hold these from now on, and nothing after `end_offset`."""
        self.batches = batches
        self.end_offset = end_offset
        self.producers = {}
        self.aborted = []
        for kept in batches:
            self._follow(kept)

    def cut_place(self, offset: int) -> tuple[int, int]:
        """Return (batches, end offset) left by a truncation: a batch cut within goes whole."""
        if offset >= self.end_offset:
            return len(self.batches), self.end_offset
        count = len(self.batches)
        while count and self.batches[count - 1].end_offset > offset:
            count -= 1
        following = self.batches[count].base_offset if count < len(self.batches) else offset
        return count, min(offset, following)

    def truncate(self, offset: int) -> None:
        """Remove all from an offset on; the start stays."""
        count, end_offset = self.cut_place(offset)
        if end_offset < self.start_offset:
            self.begin_at(min(offset, self.start_offset))
        else:
            self.keep(self.batches[:count], end_offset)

    def begin_at(self, offset: int) -> None:
        """Remove everything."""
        self.keep([], offset)
        self.start_offset = offset
        self.raise_start(offset)

    def raise_start(self, offset: int) -> None:
        """Let the log begin later."""
        self.start_offset = max(self.start_offset, offset)
        self.start_offset_max = max(self.start_offset_max, self.start_offset)

    def since(self, offset: int) -> list[ModelBatch]:
        """Return the batches from the one that holds an offset on."""
        return [kept for kept in self.batches if kept.end_offset > offset]

    def first_at_or_after(self, timestamp_ms: int, end_offset: int) -> tuple[int, int, int] | None:
        """Return (offset, timestamp, epoch) of the first record with at least that timestamp."""
        for kept in self.since(self.start_offset):
            for delta, (at_ms, _) in enumerate(kept.made.records):
                offset = kept.base_offset + delta
                if at_ms >= timestamp_ms and self.start_offset <= offset < end_offset:
                    return offset, at_ms, kept.epoch
        return None

    def epochs(self, from_offset: int) -> list[tuple[int, int]]:
        """Return (epoch, start offset) of the leaderships that wrote from an offset on."""
        found: list[tuple[int, int]] = []
        for kept in self.since(from_offset):
            if not found or kept.epoch > found[-1][0]:
                found.append((kept.epoch, max(kept.base_offset, from_offset)))
        return found

    def first_open_transaction(self) -> int | None:
        """Return where the oldest open transaction begins."""
        firsts = [each.txn_first_offset for each in self.producers.values()]
        return min((first for first in firsts if first >= self.start_offset), default=None)
