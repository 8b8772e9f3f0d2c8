"""Voter sets of a log by offset (KIP-853).

A mutable class owned by a log. A voter set takes effect when its record is appended, committed or
not, and loses its effect when the record is truncated. The snapshot of an offset contains the set
that was in effect at that offset.
"""

from collections.abc import Iterable

from ottla.model.ids import NO_OFFSET, Offset
from ottla.raft.voters import ReplicaKey, VoterSet


class VoterHistory:
    """The voter sets in a log and in the snapshot below it."""

    __slots__ = ("_base", "_sets")

    def __init__(self) -> None:
        self._base: VoterSet | None = None
        """The set in the snapshot."""
        self._sets: list[tuple[Offset, VoterSet]] = []
        """Later sets, with the offsets of their records, in the order of offsets."""

    @property
    def latest(self) -> VoterSet | None:
        """The set in effect at the end of the log, or None if it is unknown."""
        return self._sets[-1][1] if self._sets else self._base

    @property
    def latest_offset(self) -> Offset:
        """Offset of the record with `latest`. NO_OFFSET if the set is from the snapshot, or
        unknown."""
        return self._sets[-1][0] if self._sets else NO_OFFSET

    def at(self, end_offset: Offset) -> VoterSet | None:
        """Return the set in effect after all records below `end_offset`, or None if it is
        unknown."""
        found = self._base
        for offset, voters in self._sets:
            if offset >= end_offset:
                break
            found = voters
        return found

    def has_voter_below(self, key: ReplicaKey, end_offset: Offset) -> bool:
        """Return whether the set of the snapshot, or a set in a record below `end_offset`, includes
        a replica."""
        sets = (voters for offset, voters in self._sets if offset < end_offset)
        is_in_snapshot = self._base is not None and self._base.is_voter(key)
        return is_in_snapshot or any(voters.is_voter(key) for voters in sets)

    def add(self, sets: Iterable[tuple[Offset, VoterSet]]) -> None:
        """Add the sets of appended records."""
        for offset, voters in sets:
            assert offset > self.latest_offset, f"{offset} follows {self.latest_offset}"
            self._sets.append((offset, voters))

    def truncate_to(self, end_offset: Offset) -> None:
        """Remove the sets of records from `end_offset` on."""
        while self._sets and self._sets[-1][0] >= end_offset:
            self._sets.pop()

    def start_with(self, voters: VoterSet | None) -> None:
        """Replace the whole history by the set of a snapshot that replaced the log."""
        self._base = voters
        self._sets.clear()
