"""A replicated log in memory, for tests and model checking of raft. It has entries instead of
batches, and a crash loses unflushed entries.

It implements `LogView`. Its other methods correspond to the operations of a driver on its storage.
Values that the raft core reads very often are plain attributes, which every change updates.
"""

from typing import NamedTuple

from ottla.model.ids import NO_OFFSET, Epoch, Offset, OffsetAndEpoch
from ottla.raft.voter_history import VoterHistory
from ottla.raft.voters import ReplicaKey, VoterSet


class MemoryEntry(NamedTuple):
    """One entry of a raft log in memory: a single record that is also a batch."""

    epoch: Epoch
    value: str
    is_leader_change: bool = False
    """True if the entry is the control record with which a leader begins its epoch."""
    voters: VoterSet | None = None
    """Voter set in the entry if the entry is a control record with a voter set, otherwise None."""


class Entries(tuple[MemoryEntry, ...]):
    """Log entries of a raft log in memory, as an implementation of `Records`. Each entry counts as
    one byte."""

    __slots__ = ()

    def read(self) -> bytes:
        """Return the log entries as readable text."""
        return repr(tuple(self)).encode()


class MemoryLog:
    """The raft log of one replica in memory, with its snapshots. The content of a snapshot is the
    list of its entries."""

    __slots__ = (
        "_entries",
        "_history",
        "_part",
        "_snapshots",
        "earliest_snapshot_id",
        "end_offset",
        "flushed_offset",
        "last_epoch",
        "latest_snapshot_id",
        "start_offset",
        "voters",
        "voters_offset",
    )

    def __init__(self) -> None:
        self._entries: list[MemoryEntry] = []
        self._snapshots: dict[OffsetAndEpoch, Entries] = {}
        self._part: list[MemoryEntry] = []
        self.start_offset = Offset(0)
        """First offset that is still in the log."""
        self.end_offset = Offset(0)
        """Offset after the last entry appended to the log."""
        self.flushed_offset = Offset(0)
        """Offset after the last entry of the log that survives a crash."""
        self.last_epoch = Epoch(0)
        """Epoch of the last entry in the log. If the log is empty, it is the epoch of the snapshot
        below it, or 0 without a snapshot."""
        self.latest_snapshot_id: OffsetAndEpoch | None = None
        self.earliest_snapshot_id: OffsetAndEpoch | None = None
        self._history = VoterHistory()
        self.voters: VoterSet | None = None
        """Last voter set in the log or its snapshot, or None if neither has one."""
        self.voters_offset = NO_OFFSET

    # --- read by the core ---------------------------------------------------------------------

    def end_offset_for_epoch(self, epoch: Epoch) -> OffsetAndEpoch:
        """Return the largest epoch in the log that is not above `epoch`, and its end offset."""
        entries = self._entries
        count = len(entries)
        while count and entries[count - 1].epoch > epoch:
            count -= 1
        found = entries[count - 1].epoch if count else self._epoch_before_start()
        return OffsetAndEpoch(Offset(self.start_offset + count), found)

    def snapshot_size_bytes(self, snapshot_id: OffsetAndEpoch) -> int | None:
        """Return the size of a snapshot, measured as its number of entries. Returns None if there
        is no such snapshot."""
        snapshot = self._snapshots.get(snapshot_id)
        return None if snapshot is None else len(snapshot)

    # --- called by the driver -----------------------------------------------------------------

    def entry(self, offset: int) -> MemoryEntry | None:
        """Return the entry at an offset, from the log or from the newest snapshot that has it.
        Returns None if no entry has this offset."""
        if self.start_offset <= offset < self.end_offset:
            return self._entries[offset - self.start_offset]
        latest = self.latest_snapshot_id
        if latest is not None and offset < latest.offset:
            return self._snapshots[latest][offset]
        return None

    def read(self, offset: Offset, count_max: int) -> Entries:
        """Return up to `count_max` entries of the log from `offset` on."""
        assert offset >= self.start_offset
        at = offset - self.start_offset
        return Entries(self._entries[at : at + count_max])

    def append(self, entries: tuple[MemoryEntry, ...]) -> None:
        """Append entries to the log without flushing them."""
        for at, entry in enumerate(entries):
            assert entry.epoch >= self.last_epoch
            self._entries.append(entry)
            self.last_epoch = entry.epoch
            if entry.voters is not None:
                self._history.add([(Offset(self.end_offset + at), entry.voters)])
                self._note_voters()
        self.end_offset = Offset(self.end_offset + len(entries))

    def truncate_to(self, offset: Offset) -> None:
        """Remove all entries of the log from `offset` on."""
        assert self.start_offset <= offset <= self.end_offset
        del self._entries[offset - self.start_offset :]
        self._history.truncate_to(offset)
        self._note_voters()
        self.flushed_offset = min(self.flushed_offset, offset)
        self._note_ends()

    def flush(self, end_offset: Offset | None = None) -> Offset:
        """Make the log durable up to `end_offset` (default: its end). Returns the flushed
        offset."""
        target = self.end_offset if end_offset is None else min(end_offset, self.end_offset)
        self.flushed_offset = max(self.flushed_offset, target)
        return self.flushed_offset

    def crash(self, survivor_count: int) -> None:
        """Drop all unflushed entries of the log except the first `survivor_count`, as a power cut
        does."""
        self.truncate_to(Offset(min(self.end_offset, self.flushed_offset + survivor_count)))
        self._part = []
        self.flush()
        latest = self.latest_snapshot_id
        if latest is not None and latest.offset > self.end_offset:
            self._start_at(latest, self._snapshots[latest])

    def snapshot_at(self, offset: Offset, *, keeps_log: bool) -> OffsetAndEpoch:
        """Write a snapshot of all entries of the log below `offset`, and return its id. Unless
        `keeps_log`, delete these entries from the log."""
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
        """Return up to `count_max` entries of a snapshot, from `position` on."""
        return Entries(self._snapshots[snapshot_id][position : position + count_max])

    def write_snapshot(
        self, snapshot_id: OffsetAndEpoch, position: int, entries: Entries, *, is_last: bool
    ) -> None:
        """Write a chunk of the leader's snapshot. After the last chunk, the snapshot replaces the
        log."""
        if position == 0:
            self._part = []
        assert position == len(self._part)
        self._part.extend(entries)
        if is_last:
            assert len(self._part) == snapshot_id.offset
            self._start_at(snapshot_id, Entries(self._part))
            self._part = []

    def _start_at(self, snapshot_id: OffsetAndEpoch, entries: Entries) -> None:
        """Remove all entries of the log. The log then begins at the end offset of the snapshot."""
        self._snapshots = {snapshot_id: entries}
        self._entries = []
        self._history.start_with(_voters_in(entries))
        self._note_voters()
        self.start_offset = self.flushed_offset = snapshot_id.offset
        self._note_snapshots()

    def has_voter_below(self, key: ReplicaKey, end_offset: Offset) -> bool:
        """Return whether a voter set before `end_offset` in the log includes the replica `key`."""
        return self._history.has_voter_below(key, end_offset)

    def _note_voters(self) -> None:
        self.voters, self.voters_offset = self._history.latest, self._history.latest_offset

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


def _voters_in(entries: Entries) -> VoterSet | None:
    """Return the last voter set in the entries of a snapshot, or None if no entry has a voter
    set."""
    return next((entry.voters for entry in reversed(entries) if entry.voters is not None), None)
