"""Check of a stopped voter's snapshots: a damaged one is as good as none.

A snapshot is the only copy of what lies below it, unless an older one and the log from there on are
left.  Invariant: a lone voter's files stay as they are before its operator has decided.
"""

from contextlib import suppress

from ottla.model.errors import CorruptDataError
from ottla.model.ids import Offset, OffsetAndEpoch
from ottla.model.limits import BATCH_HEADER_BYTES
from ottla.model.values import frozen
from ottla.raft import snapshot
from ottla.storage.disk_seam import Disk
from ottla.storage.files import LOG, offsets_of
from ottla.wire.batch import parse_header


@frozen(kw_only=True)
class SnapshotCheck:
    """Verdict on a voter's snapshots."""

    damaged: tuple[OffsetAndEpoch, ...] = ()
    """Snapshots that are to be removed, the oldest first."""
    whole: OffsetAndEpoch | None = None
    """The newest whole one."""
    log_start: Offset | None = None
    """Base offset of the oldest segment of the log; None if there is none."""

    @property
    def base(self) -> OffsetAndEpoch:
        """Return where the log must begin at the latest: the newest whole snapshot's end, or 0."""
        return self.whole or snapshot.BOOTSTRAP_ID

    @property
    def is_out_of_reach(self) -> bool:
        """True if neither a snapshot nor the log has what lies above `base`."""
        if self.log_start is not None:
            return self.log_start > self.base.offset
        return any(one.offset > self.base.offset for one in self.damaged)

    def losses(self, end_offset: Offset) -> tuple[str, ...]:
        """Return the losses with the damaged snapshots if the log ends there, a clause each."""
        is_short = any(one.offset > end_offset for one in self.damaged)
        if not is_short and not self.is_out_of_reach:
            return ()
        if self.damaged:
            names = ", ".join(map(snapshot.file_name, self.damaged))
            return (f"{names} damaged, and nothing else has what lies below",)
        return (f"no snapshot has what lies below offset {self.log_start}",)

    @property
    def repairs(self) -> tuple[str, ...]:
        """Return the repairs that lose nothing, a clause each."""
        return tuple(
            f"{snapshot.file_name(one)} is damaged; it is removed, for what it held is known from"
            f" {'a snapshot and ' if self.base.offset else ''}the log"
            for one in self.damaged
        )


SOUND = SnapshotCheck()


async def check_snapshots(disk: Disk, directory: str) -> SnapshotCheck:
    """Return which snapshots of a metadata log's directory are damaged; change nothing.

    They are read whole from the newest on until one is whole; of older ones only the first batch's
    header, for nothing but retention asks for them.
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
    """Remove the damaged snapshots durably."""
    for each in check.damaged:
        await disk.unlink(f"{directory}/{snapshot.file_name(each)}")
    if check.damaged:
        await disk.fsync_directory(directory)
