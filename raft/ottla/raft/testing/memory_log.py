"""A replicated log in memory: entries instead of batches, and a crash that forgets the unflushed.

The same promises as `LogView`; the writing half is what a driver does to its storage.
"""

from typing import NamedTuple

from ottla.model.ids import Epoch, Offset, OffsetAndEpoch


class Entry(NamedTuple):
    """One record, which is a batch of its own here."""

    epoch: Epoch
    value: str


class Entries(tuple[Entry, ...]):
    """Entries as `Records`: an entry counts as one byte."""

    __slots__ = ()

    def read(self) -> bytes:
        """Return the entries as text, for people."""
        return repr(tuple(self)).encode()


class MemoryLog:
    """One replica's log and its snapshots; a snapshot's bytes are the entries it stands for."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._start_offset = 0
        self._flushed_offset = 0
        self._snapshots: dict[OffsetAndEpoch, Entries] = {}
        self._part: list[Entry] = []

    # --- what the core reads ------------------------------------------------------------------

    @property
    def start_offset(self) -> Offset:
        """The first offset still in the log."""
        return Offset(self._start_offset)

    @property
    def end_offset(self) -> Offset:
        """One past the last offset appended."""
        return Offset(self._start_offset + len(self._entries))

    @property
    def flushed_offset(self) -> Offset:
        """One past the last offset that survives a crash."""
        return Offset(self._flushed_offset)

    @property
    def last_epoch(self) -> Epoch:
        """The epoch of the last entry, of the snapshot below an empty log, or 0."""
        return self._entries[-1].epoch if self._entries else self._epoch_before_start()

    def end_offset_for_epoch(self, epoch: Epoch) -> OffsetAndEpoch:
        """Return the largest epoch <= `epoch` that the log holds, and its end."""
        end, found = self._start_offset, self._epoch_before_start()
        for entry in self._entries:
            if entry.epoch > epoch:
                break
            end, found = end + 1, entry.epoch
        return OffsetAndEpoch(Offset(end), found)

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None:
        """The newest snapshot."""
        return max(self._snapshots, default=None)

    @property
    def earliest_snapshot_id(self) -> OffsetAndEpoch | None:
        """The oldest snapshot."""
        return min(self._snapshots, default=None)

    def snapshot_size_bytes(self, snapshot_id: OffsetAndEpoch) -> int | None:
        """Return how many entries a snapshot stands for."""
        snapshot = self._snapshots.get(snapshot_id)
        return None if snapshot is None else len(snapshot)

    # --- what the driver does -----------------------------------------------------------------

    def entry(self, offset: int) -> Entry | None:
        """Return the entry at an offset, from the log or from the newest snapshot that has it."""
        if self._start_offset <= offset < self.end_offset:
            return self._entries[offset - self._start_offset]
        latest = self.latest_snapshot_id
        if latest is not None and offset < latest.offset:
            return self._snapshots[latest][offset]
        return None

    def read(self, offset: Offset, count_max: int) -> Entries:
        """Return up to `count_max` entries from `offset` on."""
        assert offset >= self._start_offset
        at = offset - self._start_offset
        return Entries(self._entries[at : at + count_max])

    def append(self, entries: tuple[Entry, ...]) -> None:
        """Append without flushing."""
        for entry in entries:
            assert entry.epoch >= self.last_epoch
            self._entries.append(entry)

    def truncate_to(self, offset: Offset) -> None:
        """Drop everything from `offset` on."""
        assert self._start_offset <= offset <= self.end_offset
        del self._entries[offset - self._start_offset :]
        self._flushed_offset = min(self._flushed_offset, offset)

    def flush(self, end_offset: Offset | None = None) -> Offset:
        """Make the log durable up to `end_offset` (its end) and return how far it is."""
        target = self.end_offset if end_offset is None else min(end_offset, self.end_offset)
        self._flushed_offset = max(self._flushed_offset, target)
        return self.flushed_offset

    def crash(self, survivor_count: int) -> None:
        """Forget all but the first `survivor_count` of the entries that were not flushed."""
        self.truncate_to(Offset(min(self.end_offset, self._flushed_offset + survivor_count)))
        self._part = []
        self.flush()
        latest = self.latest_snapshot_id
        if latest is not None and latest.offset > self.end_offset:
            self._entries = []
            self._start_offset = self._flushed_offset = latest.offset
            self._snapshots = {latest: self._snapshots[latest]}

    def snapshot_at(self, offset: Offset, *, keeps_log: bool) -> OffsetAndEpoch:
        """Write a snapshot of everything below `offset`; unless kept, that part of the log goes."""
        entries = Entries(entry for at in range(offset) if (entry := self.entry(at)) is not None)
        assert len(entries) == offset
        snapshot_id = OffsetAndEpoch(offset, entries[-1].epoch if entries else Epoch(0))
        self._snapshots[snapshot_id] = entries
        if not keeps_log:
            assert offset <= self._flushed_offset
            del self._entries[: offset - self._start_offset]
            self._start_offset = offset
            self._snapshots = {snapshot_id: entries}
        return snapshot_id

    def read_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, count_max: int) -> Entries:
        """Return a range of a snapshot."""
        return Entries(self._snapshots[snapshot_id][position : position + count_max])

    def write_snapshot(
        self, snapshot_id: OffsetAndEpoch, position: int, entries: Entries, *, is_last: bool
    ) -> None:
        """Write a range of the leader's snapshot; the last one replaces the log by it."""
        if position == 0:
            self._part = []
        assert position == len(self._part)
        self._part.extend(entries)
        if is_last:
            assert len(self._part) == snapshot_id.offset
            self._snapshots = {snapshot_id: Entries(self._part)}
            self._entries = []
            self._start_offset = self._flushed_offset = snapshot_id.offset
            self._part = []

    def _epoch_before_start(self) -> Epoch:
        latest = self.latest_snapshot_id
        if latest is None or latest.offset < self._start_offset or self._start_offset == 0:
            return Epoch(0)
        return min(self._snapshots).epoch
