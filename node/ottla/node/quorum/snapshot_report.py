"""Report on a snapshot of the metadata that this node has written, or would write now."""

from ottla.model.ids import Offset, OffsetAndEpoch
from ottla.model.values import frozen


@frozen(kw_only=True)
class SnapshotReport:
    """Report on a snapshot of the present metadata image, and on the metadata log at the time of
    the report."""

    id: OffsetAndEpoch
    """Id of the metadata snapshot: the end offset and the epoch of its records."""
    size_bytes: int
    """Size of the metadata snapshot's file in bytes; -1 if the snapshot is not written."""
    latest_end_offset: Offset
    """End offset of the records in the latest metadata snapshot on disk; 0 without a snapshot."""
    log_start_offset: Offset
    """First offset of the metadata log."""
