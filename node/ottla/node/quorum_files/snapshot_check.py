"""Checks the snapshots of a stopped voter. A damaged snapshot counts as missing.

A snapshot is usually the only copy of the records before its end offset. The exception is an older
snapshot together with the log that follows it. Invariant: if a quorum has only one voter, its files
are not changed before the operator has made a decision.
"""

from contextlib import suppress

from ottla.model.errors import CorruptDataError
from ottla.model.ids import Offset, OffsetAndEpoch
from ottla.model.limits import BATCH_HEADER_BYTES
from ottla.model.values import frozen
from ottla.raft import snapshot
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.segments.files import LOG, offsets_of
from ottla.wire.batch import parse_header


@frozen(kw_only=True)
class SnapshotCheck:
    """Result of checking a voter's metadata snapshots for damage."""

    damaged: tuple[OffsetAndEpoch, ...] = ()
    """Ids of the damaged metadata snapshots, which must be deleted, oldest first."""
    whole: OffsetAndEpoch | None = None
    """Id of the latest undamaged metadata snapshot, or None if no snapshot is undamaged."""
    log_start: Offset | None = None
    """Base offset of the oldest segment of the metadata log. None if the log has no segment."""

    @property
    def base(self) -> OffsetAndEpoch:
        """Id of the latest undamaged metadata snapshot, or offset 0 if no snapshot is undamaged.
        The metadata log must not start above the end of this snapshot."""
        return self.whole or snapshot.BOOTSTRAP_ID

    @property
    def is_out_of_reach(self) -> bool:
        """True if the records directly above the end of `base` are missing: no undamaged snapshot
        contains them, and the metadata log does not either."""
        if self.log_start is not None:
            return self.log_start > self.base.offset
        return any(one.offset > self.base.offset for one in self.damaged)

    def losses(self, end_offset: Offset) -> tuple[str, ...]:
        """Return the data that are lost because of damaged snapshots if the metadata log ends at
        `end_offset`, as clauses of a log message."""
        is_short = any(one.offset > end_offset for one in self.damaged)
        if not is_short and not self.is_out_of_reach:
            return ()
        if self.damaged:
            names = ", ".join(map(snapshot.file_name, self.damaged))
            return (f"{names} damaged, and no other file has the records below",)
        return (f"no snapshot has the records below offset {self.log_start}",)

    @property
    def repairs(self) -> tuple[str, ...]:
        """Descriptions of the repairs of all damaged metadata snapshots, as clauses of a log
        message. They apply only if `losses` returns an empty tuple."""
        return tuple(
            f"{snapshot.file_name(one)} is damaged; it is deleted, because its records are in"
            f" {'a snapshot and ' if self.base.offset else ''}the log"
            for one in self.damaged
        )


SOUND = SnapshotCheck()


async def check_snapshots(disk: Disk, directory: str) -> SnapshotCheck:
    """Check which snapshots in the directory of a metadata log are damaged, and return the result.
    Changes no file.

    Snapshots are read completely, latest first, until an undamaged one is found. Of each older
    snapshot, only the header of the first batch is read, because older snapshots matter only for
    retention.
    """
    with suppress(FileNotFoundError):
        names = await disk.listdir(directory)
        found = [one for name in names if (one := snapshot.parse_name(name)) is not None]
        damaged: list[OffsetAndEpoch] = []
        whole: OffsetAndEpoch | None = None
        for each in sorted(found, reverse=True):
            path = f"{directory}/{snapshot.file_name(each)}"
            try:
                if whole is None:
                    snapshot.check_whole(await disk.read_file(path))
                    whole = each
                else:
                    parse_header(await _opening(disk, path))
            except CorruptDataError:
                damaged.append(each)
        starts = offsets_of(names, LOG)
        return SnapshotCheck(
            damaged=tuple(reversed(damaged)),
            whole=whole,
            log_start=Offset(starts[0]) if starts else None,
        )
    return SOUND


async def _opening(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    try:
        return await disk.read(file, 0, BATCH_HEADER_BYTES)
    finally:
        file.close()


async def remove_damaged(disk: Disk, directory: str, check: SnapshotCheck) -> None:
    """Delete the metadata snapshots that a check found damaged, durably."""
    for each in check.damaged:
        await disk.unlink(f"{directory}/{snapshot.file_name(each)}")
    if check.damaged:
        await disk.fsync_directory(directory)
