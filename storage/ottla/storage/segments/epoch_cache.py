"""Cache of the leader epochs of one log, with the offset at which each epoch begins (KIP-101).

Invariants: epochs and start offsets both strictly increase; only a truncation changes a start
offset. The format is Kafka's `leader-epoch-checkpoint`. Pure. The log writes the file before its
recovery point passes the start of an epoch; later epochs can be read from the batches.
"""

from bisect import bisect_left, bisect_right
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from ottla.model.errors import CorruptDataError
from ottla.model.ids import NO_EPOCH, NO_OFFSET, Epoch, Offset, OffsetAndEpoch

VERSION = 0


class EpochEntry(NamedTuple):
    """A leader epoch of a log, and the offset at which the epoch begins."""

    epoch: Epoch
    start_offset: Offset


FIRST_EPOCHS_SHARED = 128
"""Number of different first epochs whose tuples are shared. Most logs begin with epoch 0 at offset
0. With a smaller number, more logs of a cluster have two tuples of 48 bytes of their own."""


@lru_cache(FIRST_EPOCHS_SHARED)
def _first_epoch(epoch: Epoch, start_offset: Offset) -> tuple[tuple[Epoch], tuple[Offset]]:
    """Return the tuples of a log with a single epoch. Equal logs share them."""
    return (epoch,), (start_offset,)


class EpochCache:
    """The leader epochs of one partition's log with their start offsets, oldest first."""

    __slots__ = ("_epochs", "_starts", "change_count", "latest")

    def __init__(self, entries: tuple[EpochEntry, ...] = ()) -> None:
        # Tuples, because they rarely change, and take half the memory of lists.
        self._epochs = tuple(entry.epoch for entry in entries)
        self._starts = tuple(entry.start_offset for entry in entries)
        self.change_count = 0
        """Number of changes of the leader epochs so far. The writer of the file compares this
        number to determine whether the file is out of date."""
        self.latest: Epoch = self._epochs[-1] if self._epochs else NO_EPOCH
        """The newest leader epoch of the log, or -1 if the log has no epoch. This is an attribute,
        not a property, because every append reads it."""

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All leader epochs of the log with their start offsets, oldest first."""
        return tuple(map(EpochEntry, self._epochs, self._starts))

    def assign(self, epoch: Epoch, start_offset: Offset) -> None:
        """Record that the leader epoch `epoch` begins at `start_offset`. An epoch that is known or
        older than the newest is ignored.

        Other epochs that begin at or after `start_offset` have no records in the log, and are
        removed.
        """
        if epoch <= self.latest:
            return
        self._drop_from(start_offset)
        if self._epochs:
            self._epochs = (*self._epochs, epoch)
            self._starts = (*self._starts, start_offset)
        else:
            self._epochs, self._starts = _first_epoch(epoch, start_offset)
        self.latest = epoch
        self.change_count += 1

    def end_offset_for(self, epoch: Epoch, log_end_offset: Offset) -> OffsetAndEpoch:
        """Return the largest leader epoch of the log that is not above `epoch`, and the end offset
        of that epoch. Returns (-1, -1) if there is no such epoch."""
        unknown = OffsetAndEpoch(NO_OFFSET, NO_EPOCH)
        if epoch == NO_EPOCH or epoch > self.latest:
            return unknown
        if epoch == self.latest:
            return OffsetAndEpoch(log_end_offset, epoch)
        following = bisect_right(self._epochs, epoch)
        if following == 0:  # older than all known epochs: it ends at the start of the oldest
            return OffsetAndEpoch(self._starts[0], epoch)
        return OffsetAndEpoch(self._starts[following], self._epochs[following - 1])

    def epoch_of(self, offset: Offset) -> Epoch:
        """Return the leader epoch that contains an offset, or -1 if the offset is before the oldest
        known epoch."""
        index = bisect_right(self._starts, offset)
        return self._epochs[index - 1] if index else NO_EPOCH

    def truncate_from_end(self, end_offset: Offset) -> None:
        """Remove the leader epochs that begin at or after `end_offset`, to which the log was
        truncated."""
        if self._starts and self._starts[-1] >= end_offset:
            self._drop_from(end_offset)
            self.change_count += 1

    def truncate_from_start(self, start_offset: Offset) -> None:
        """Remove the leader epochs that end at or before `start_offset`, the log's new start. The
        epoch that contains this offset then begins at the offset."""
        kept = bisect_right(self._starts, start_offset) - 1
        if kept < 0 or self._starts[kept] == start_offset == self._starts[0]:
            return
        self._epochs = self._epochs[kept:]
        self._starts = (start_offset, *self._starts[kept + 1 :])
        self.change_count += 1

    def clear(self) -> None:
        """Remove all leader epochs of the log."""
        self._epochs = self._starts = ()
        self.latest = NO_EPOCH
        self.change_count += 1

    def _drop_from(self, offset: Offset) -> None:
        kept = bisect_left(self._starts, offset)
        self._epochs = self._epochs[:kept]
        self._starts = self._starts[:kept]
        self.latest = self._epochs[-1] if self._epochs else NO_EPOCH

    def encode(self) -> bytes:
        """Return the bytes of a `leader-epoch-checkpoint` file with the epochs in this cache."""
        lines = [str(VERSION), str(len(self._epochs))]
        lines += (
            f"{epoch} {start}" for epoch, start in zip(self._epochs, self._starts, strict=True)
        )
        return ("\n".join(lines) + "\n").encode()


def decode_epochs(data: bytes) -> EpochCache:
    """Return the leader epochs in the bytes of a `leader-epoch-checkpoint` file. An empty file, as
    Kafka first creates it, has no epochs."""
    lines = data.decode("utf-8", "replace").splitlines()
    if not lines:
        return EpochCache()
    try:
        version, count = int(lines[0]), int(lines[1])
        entries = tuple(
            EpochEntry(Epoch(int(epoch)), Offset(int(start)))
            for epoch, start in (line.split() for line in lines[2:])
        )
    except (ValueError, IndexError):
        raise CorruptDataError("leader-epoch-checkpoint: not its format") from None
    if version != VERSION or count != len(entries):
        raise CorruptDataError("leader-epoch-checkpoint: version or count is wrong")
    for older, newer in pairwise(entries):
        if newer.epoch <= older.epoch or newer.start_offset <= older.start_offset:
            raise CorruptDataError("leader-epoch-checkpoint: entries do not increase")
    return EpochCache(entries)


NO_EPOCHS = EpochCache().encode()
"""Bytes of the `leader-epoch-checkpoint` file of a log without leader epochs."""
