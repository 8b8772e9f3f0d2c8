"""Report of a snapshot that this node has written, or would write now."""

from ottla.model.ids import Offset, OffsetAndEpoch
from ottla.model.values import frozen


@frozen(kw_only=True)
class SnapshotReport:
    """A snapshot of the present image, and the metadata log beside it."""

    id: OffsetAndEpoch
    """End of the records in the snapshot."""
    size_bytes: int
    """Size of the file; -1 if the snapshot is not written."""
    latest_end_offset: Offset
    """End of the records in the latest snapshot on disk; 0 if there is none."""
    log_start_offset: Offset
    """First offset of the log."""
