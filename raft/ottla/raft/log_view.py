"""What the core may know of its log: reading only, in offsets and epochs, never in bytes."""

from typing import Protocol

from ottla.model.ids import Epoch, Offset, OffsetAndEpoch


class LogView(Protocol):
    """The replicated log as the driver keeps it; true again before every step.

    `start_offset <= flushed_offset <= end_offset`, and no snapshot ends above `end_offset`: a log
    that a crash left shorter than its newest snapshot is opened empty at that snapshot's end.  A
    log just opened is flushed to its end.
    """

    @property
    def start_offset(self) -> Offset:
        """The first offset still in the log: 0, or the end of a snapshot."""
        ...

    @property
    def end_offset(self) -> Offset:
        """One past the last offset appended."""
        ...

    @property
    def flushed_offset(self) -> Offset:
        """One past the last offset that survives a power cut."""
        ...

    @property
    def last_epoch(self) -> Epoch:
        """The epoch of the last entry; of an emptied log its snapshot's; 0 when neither exists."""
        ...

    def end_offset_for_epoch(self, epoch: Epoch) -> OffsetAndEpoch:
        """Return the largest epoch <= `epoch` in the log (or its snapshot) and its end offset.

        Where every entry is of a later epoch: `start_offset` and the earliest snapshot's epoch, or
        0 when there is none.
        """
        ...

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None:
        """The newest whole snapshot, the bootstrap snapshot 0-0 included."""
        ...

    @property
    def earliest_snapshot_id(self) -> OffsetAndEpoch | None:
        """The oldest whole snapshot kept; of a log that begins above 0 it ends at its start."""
        ...

    def snapshot_size_bytes(self, snapshot_id: OffsetAndEpoch) -> int | None:
        """Return how long a snapshot's file is; None when there is no such snapshot."""
        ...
