"""Voter sets of the metadata log, by the offsets at which they take effect (KIP-853).

`VoterHistory` is a mutable class owned by a log. A voter set takes effect when its record is
appended, committed or not, and loses its effect when the record is truncated. The snapshot of an
offset contains the set that was in effect at that offset.
"""

from collections.abc import Iterable

from ottla.model.ids import NO_OFFSET, Offset
from ottla.raft.voters import ReplicaKey, VoterSet


class VoterHistory:
    """The voter sets in a log and in the snapshot below it."""

    __slots__ = ("_base", "_sets")

    def __init__(self) -> None:
        self._base: VoterSet | None = None
        """The voter set in the snapshot below the log, or None if it is unknown."""
        self._sets: list[tuple[Offset, VoterSet]] = []
        """Voter sets in the log after the snapshot, with the offsets of their records, in ascending
        order."""

    @property
    def latest(self) -> VoterSet | None:
        """The voter set in effect at the end of the log, or None if it is unknown."""
        return self._sets[-1][1] if self._sets else self._base

    @property
    def latest_offset(self) -> Offset:
        """Offset of the record that contains the latest voter set. NO_OFFSET if the set is from the
        snapshot, or unknown."""
        return self._sets[-1][0] if self._sets else NO_OFFSET

    def at(self, end_offset: Offset) -> VoterSet | None:
        """Return the voter set in effect after all records below `end_offset`, or None if it is
        unknown."""
        found = self._base
        for offset, voters in self._sets:
            if offset >= end_offset:
                break
            found = voters
        return found

    def has_voter_below(self, key: ReplicaKey, end_offset: Offset) -> bool:
        """Return whether a replica is in the voter set of the snapshot, or in a voter set that was
        appended below `end_offset`."""
        sets = (voters for offset, voters in self._sets if offset < end_offset)
        is_in_snapshot = self._base is not None and self._base.is_voter(key)
        return is_in_snapshot or any(voters.is_voter(key) for voters in sets)

    def add(self, sets: Iterable[tuple[Offset, VoterSet]]) -> None:
        """Add the voter sets in records that were appended to the log."""
        for offset, voters in sets:
            assert offset > self.latest_offset, f"{offset} follows {self.latest_offset}"
            self._sets.append((offset, voters))

    def truncate_to(self, end_offset: Offset) -> None:
        """Remove the voter sets whose records are at or above `end_offset`, to which the log was
        truncated."""
        while self._sets and self._sets[-1][0] >= end_offset:
            self._sets.pop()

    def start_with(self, voters: VoterSet | None) -> None:
        """Replace the whole history by the voter set of a snapshot that has replaced the log."""
        self._base = voters
        self._sets.clear()
