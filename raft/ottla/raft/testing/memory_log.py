"""A replicated log in memory: entries instead of batches, and a crash that forgets the unflushed.

The same promises as `LogView`; the writing half is what a driver does to its storage.  What the
core reads are plain attributes, kept true by every change: searches read them very often.
"""

from typing import NamedTuple

from ottla.model.ids import Epoch, Offset, OffsetAndEpoch


class MemoryEntry(NamedTuple):
    """One record, which is a batch of its own here."""

    epoch: Epoch
    value: str
    is_leader_change: bool = False
    """Whether it is the control record that opens an epoch."""


class Entries(tuple[MemoryEntry, ...]):
    """Entries as `Records`: an entry counts as one byte."""

    __slots__ = ()

    def read(self) -> bytes:
        """Return the entries as text, for people."""
        return repr(tuple(self)).encode()


class MemoryLog:
    """One replica's log and its snapshots; a snapshot's bytes are the entries it stands for."""

    __slots__ = (
        "_entries",
        "_part",
        "_snapshots",
        "earliest_snapshot_id",
        "end_offset",
        "flushed_offset",
        "last_epoch",
        "latest_snapshot_id",
        "start_offset",
    )

    def __init__(self) -> None:
        self._entries: list[MemoryEntry] = []
        self._snapshots: dict[OffsetAndEpoch, Entries] = {}
        self._part: list[MemoryEntry] = []
        self.start_offset = Offset(0)
        """The first offset still in the log."""
        self.end_offset = Offset(0)
        """One past the last offset appended."""
        self.flushed_offset = Offset(0)
        """One past the last offset that survives a crash."""
        self.last_epoch = Epoch(0)
        """The epoch of the last entry, of the snapshot below an empty log, or 0."""
        self.latest_snapshot_id: OffsetAndEpoch | None = None
        self.earliest_snapshot_id: OffsetAndEpoch | None = None

    # --- what the core reads ------------------------------------------------------------------

    def end_offset_for_epoch(self, epoch: Epoch) -> OffsetAndEpoch:
        """Return the largest epoch <= `epoch` that the log holds, and its end."""
        entries = self._entries
        count = len(entries)
        while count and entries[count - 1].epoch > epoch:
            count -= 1
        found = entries[count - 1].epoch if count else self._epoch_before_start()
        return OffsetAndEpoch(Offset(self.start_offset + count), found)

    def snapshot_size_bytes(self, snapshot_id: OffsetAndEpoch) -> int | None:
        """Return how many entries a snapshot stands for."""
        snapshot = self._snapshots.get(snapshot_id)
        return None if snapshot is None else len(snapshot)

    # --- what the driver does -----------------------------------------------------------------

    def entry(self, offset: int) -> MemoryEntry | None:
        """Return the entry at an offset, from the log or from the newest snapshot that has it."""
        if self.start_offset <= offset < self.end_offset:
            return self._entries[offset - self.start_offset]
        latest = self.latest_snapshot_id
        if latest is not None and offset < latest.offset:
            return self._snapshots[latest][offset]
        return None

    def read(self, offset: Offset, count_max: int) -> Entries:
        """Return up to `count_max` entries from `offset` on."""
        assert offset >= self.start_offset
        at = offset - self.start_offset
        return Entries(self._entries[at : at + count_max])

    def append(self, entries: tuple[MemoryEntry, ...]) -> None:
        """Append without flushing."""
        for entry in entries:
            assert entry.epoch >= self.last_epoch
            self._entries.append(entry)
            self.last_epoch = entry.epoch
        self.end_offset = Offset(self.end_offset + len(entries))

    def truncate_to(self, offset: Offset) -> None:
        """Drop everything from `offset` on."""
        assert self.start_offset <= offset <= self.end_offset
        del self._entries[offset - self.start_offset :]
        self.flushed_offset = min(self.flushed_offset, offset)
        self._note_ends()

    def flush(self, end_offset: Offset | None = None) -> Offset:
        """Make the log durable up to `end_offset` (its end) and return how far it is."""
        target = self.end_offset if end_offset is None else min(end_offset, self.end_offset)
        self.flushed_offset = max(self.flushed_offset, target)
        return self.flushed_offset

    def crash(self, survivor_count: int) -> None:
        """Forget all but the first `survivor_count` of the entries that were not flushed."""
        self.truncate_to(Offset(min(self.end_offset, self.flushed_offset + survivor_count)))
        self._part = []
        self.flush()
        latest = self.latest_snapshot_id
        if latest is not None and latest.offset > self.end_offset:
            self._start_at(latest, self._snapshots[latest])

    def snapshot_at(self, offset: Offset, *, keeps_log: bool) -> OffsetAndEpoch:
        """Write a snapshot of everything below `offset`; unless kept, that part of the log goes."""
        entries = Entries(entry for at in range(offset) if (entry := self.entry(at)) is not None)
        assert len(entries) == offset
        snapshot_id = OffsetAndEpoch(offset, entries[-1].epoch if entries else Epoch(0))
        self._snapshots[snapshot_id] = entries
        if not keeps_log:
            assert offset <= self.flushed_offset
            del self._entries[: offset - self.start_offset]
            self.start_offset = offset
            self._snapshots = {snapshot_id: entries}
        self._note_snapshots()
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
            self._start_at(snapshot_id, Entries(self._part))
            self._part = []

    def _start_at(self, snapshot_id: OffsetAndEpoch, entries: Entries) -> None:
        """Be empty, and begin at a snapshot's end."""
        self._snapshots = {snapshot_id: entries}
        self._entries = []
        self.start_offset = self.flushed_offset = snapshot_id.offset
        self._note_snapshots()

    def _note_snapshots(self) -> None:
        self.latest_snapshot_id = max(self._snapshots, default=None)
        self.earliest_snapshot_id = min(self._snapshots, default=None)
        self._note_ends()

    def _note_ends(self) -> None:
        entries = self._entries
        self.end_offset = Offset(self.start_offset + len(entries))
        self.last_epoch = entries[-1].epoch if entries else self._epoch_before_start()

    def _epoch_before_start(self) -> Epoch:
        latest, earliest = self.latest_snapshot_id, self.earliest_snapshot_id
        if earliest is None or latest is None or self.start_offset == 0:
            return Epoch(0)
        return Epoch(0) if latest.offset < self.start_offset else earliest.epoch
