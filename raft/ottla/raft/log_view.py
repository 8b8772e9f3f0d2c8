"""The quorum core's view of its log: read access only, in offsets and epochs, never in bytes."""

from typing import Protocol

from ottla.model.ids import Epoch, Offset, OffsetAndEpoch
from ottla.raft.voters import ReplicaKey, VoterSet


class LogView(Protocol):
    """Read access to the replicated log, which the driver maintains. The view is up to date before
    every step of the quorum core.

    `start_offset <= flushed_offset <= end_offset`, and no snapshot ends above `end_offset`. If a
    crash left the log shorter than its newest snapshot, the log is opened empty at that snapshot's
    end. A log that was just opened is flushed to its end.
    """

    @property
    def start_offset(self) -> Offset:
        """First offset in the log: 0, or the end offset of a snapshot."""
        ...

    @property
    def end_offset(self) -> Offset:
        """End offset of the log: the offset that the next entry gets."""
        ...

    @property
    def flushed_offset(self) -> Offset:
        """Offset below which all entries of the log survive a power failure."""
        ...

    @property
    def last_epoch(self) -> Epoch:
        """Epoch of the last entry in the log. For an empty log it is the epoch of the newest
        snapshot, or 0 if there is no snapshot."""
        ...

    def end_offset_for_epoch(self, epoch: Epoch) -> OffsetAndEpoch:
        """Return the largest epoch in the log (or its snapshot) that is not above `epoch`, and the
        end offset of that epoch.

        If all entries have later epochs, returns `start_offset` and the earliest snapshot's epoch,
        or 0 if there is no snapshot.
        """
        ...

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None:
        """Id of the newest complete snapshot, including the bootstrap snapshot 0-0. None if there
        is no snapshot."""
        ...

    @property
    def earliest_snapshot_id(self) -> OffsetAndEpoch | None:
        """Id of the oldest complete snapshot, or None if there is no snapshot. If the log starts
        above 0, this snapshot ends at its start."""
        ...

    @property
    def voters(self) -> VoterSet | None:
        """The last voter set in the log or its snapshot, committed or not. None if they contain no
        voter set."""
        ...

    @property
    def voters_offset(self) -> Offset:
        """Offset of the record that contains the last voter set (`voters`). NO_OFFSET if the set is
        from a snapshot, or if there is no voter set."""
        ...

    def has_voter_below(self, key: ReplicaKey, end_offset: Offset) -> bool:
        """Return whether the replica `key` is in any voter set below `end_offset`, in the log or
        its snapshot."""
        ...

    def snapshot_size_bytes(self, snapshot_id: OffsetAndEpoch) -> int | None:
        """Return the size of a snapshot's file in bytes, or None if there is no such snapshot."""
        ...
