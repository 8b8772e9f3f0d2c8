"""Puts a cleaned segment in the place of those it was made from: any crash leaves either.

The new files are written and flushed as `.cleaned`.  They are renamed to `.swap`, the log last:
from then on the swap is decided, and a start finishes it.  The old segments are set aside, the
oldest first, and the new files take their names, the log last again.  Each step is durable before
the next.  Invariants: SwapIsDecidedByTheLog (an index called `.swap` counts only beside a log
called so), and OldGoBeforeNewComes (no start finds a live segment whose batches another one holds).
"""

from typing import Protocol

from ottla.model.errors import CorruptDataError
from ottla.model.ids import Offset
from ottla.storage.batch_scan import BatchScan
from ottla.storage.directory_view import DirectoryView
from ottla.storage.disk_seam import Disk, when_cached
from ottla.storage.files import (
    CLEANED,
    DELETED,
    INDEX_SUFFIXES,
    LOG,
    SEGMENT_SUFFIXES,
    SWAP,
    file_name,
    offset_of,
    offsets_of,
)
from ottla.storage.log_config import LogConfig
from ottla.storage.segment import WALK_HEADER_BYTES, Segment, max_timestamp_of
from ottla.wire.batch import MAGIC_AT, NO_TIMESTAMP


class CleanedFiles(Protocol):
    """A segment that was written as `.cleaned`, and what it replaces."""

    @property
    def base_offset(self) -> int:
        """Base offset of the new segment, the first source's."""
        ...

    @property
    def sources(self) -> tuple[int, ...]:
        """Base offsets of the segments that it replaces, in order."""
        ...

    @property
    def size_bytes(self) -> int:
        """Bytes of the log file."""
        ...

    @property
    def max_timestamp_ms(self) -> int:
        """Largest timestamp, -1 for none."""
        ...

    @property
    def max_timestamp_offset(self) -> int:
        """Offset of the record that has it."""
        ...

    @property
    def first_timestamp_ms(self) -> int:
        """Timestamp of the first batch, -1 for none."""
        ...


# ---- while the log serves


async def open_cleaned(
    disk: Disk, directory: str, cleaned: CleanedFiles, config: LogConfig, *, now_ms: int
) -> Segment:
    """Open the files that a cleaning wrote, as the segment that they are to be.

    Raises CorruptDataError if they are not what `cleaned` says.
    """
    base_offset = Offset(cleaned.base_offset)
    path = f"{directory}/{file_name(base_offset, LOG)}{CLEANED}"
    if not disk.exists(path):
        raise CorruptDataError(f"{path} is missing")
    segment = Segment(disk, directory, base_offset, config, now_ms=now_ms, suffix=CLEANED)
    segment.size_bytes = segment.file.size_bytes
    is_sound = await when_cached(disk, lambda: open_indexes(disk, segment))
    if segment.size_bytes != cleaned.size_bytes or not is_sound:
        segment.close()
        raise CorruptDataError(f"{path}: its size or its indexes are not what was written")
    segment.max_timestamp_ms = cleaned.max_timestamp_ms
    segment.max_timestamp_offset = cleaned.max_timestamp_offset
    segment.first_timestamp_ms = cleaned.first_timestamp_ms
    segment.is_sealed = True
    return segment


async def end_offset_of(disk: Disk, segment: Segment) -> Offset:
    """Return where the last batch of a sealed segment ends.

    Raises CorruptDataError if what follows its last index entry are no whole batches.
    """
    end_offset = segment.base_offset
    _, position = await when_cached(disk, lambda: segment.offset_index.last_entry)
    scan = _scan(disk, segment, position)
    while (block := await scan.next_block()) is not None:
        end_offset = Offset(block.batches[-1][1].end_offset)
    if scan.problem is not None:
        raise CorruptDataError(f"{segment.file.path}: {scan.problem}")
    return end_offset


async def decide_swap(disk: Disk, directory: str, base_offset: int) -> None:
    """Rename a cleaned segment's files to `.swap`; once this returns, a start finishes the swap.

    A caller that an OSError reaches does not know whether it is decided.
    """
    await _rename_all(disk, directory, base_offset, CLEANED, SWAP)


async def finish_swap(disk: Disk, directory: str, base_offset: int) -> None:
    """Give the files of a swap their own names, after what bore them was set aside."""
    await _rename_all(disk, directory, base_offset, SWAP, "")


async def _rename_all(disk: Disk, directory: str, base_offset: int, old: str, new: str) -> None:
    prefix = f"{directory}/{file_name(base_offset, '')}"
    for suffix in INDEX_SUFFIXES:
        if disk.exists(prefix + suffix + old):
            await disk.rename(prefix + suffix + old, prefix + suffix + new)
    await disk.fsync_directory(directory)
    await disk.rename(prefix + LOG + old, prefix + LOG + new)
    await disk.fsync_directory(directory)


def is_swap_decided(disk: Disk, directory: str, base_offset: int) -> bool:
    """Return whether `decide_swap` came to the log, and perhaps to its end."""
    return not disk.exists(f"{directory}/{file_name(base_offset, LOG)}{CLEANED}")


async def remove_cleaned(disk: Disk, directory: str) -> None:
    """Remove what a cleaning wrote that was not swapped in; no swap is decided meanwhile."""
    names = await disk.listdir(directory)
    for name in [each for each in names if each.endswith(SWAP)] + names:
        if name.endswith((CLEANED, SWAP)) and disk.exists(f"{directory}/{name}"):
            await disk.unlink(f"{directory}/{name}")


def open_indexes(disk: Disk, segment: Segment, view: DirectoryView | None = None) -> bool:
    """Open a sealed segment's indexes; False when one is missing or does not fit its log."""
    offsets, times = segment.offset_index, segment.time_index
    view = view or DirectoryView(disk, "")
    if not view.has(offsets.path) or not view.has(times.path):
        segment.has_index_names = view.has(offsets.path) or view.has(times.path)
        return not segment.size_bytes and not segment.has_index_names
    if offsets.open_sealed(view.size_of(offsets.path)) % offsets.entry_bytes:
        return False
    if times.open_sealed(view.size_of(times.path)) % times.entry_bytes:
        return False
    if not segment.size_bytes and (offsets.count or times.count):
        return False  # an empty segment's are not trimmed as the log is closed
    if view.has(segment.transaction_index.path):
        size = segment.transaction_index.open_sealed(view.size_of(segment.transaction_index.path))
        if size % segment.transaction_index.entry_bytes:
            return False
        if not segment.transaction_index.is_sound(segment.base_offset):
            return False
    if offsets.count and not 0 < offsets.entry_at(offsets.count - 1)[1] < segment.size_bytes:
        return False
    if times.count > 1 and times.entry_at(times.count - 1)[0] <= times.entry_at(times.count - 2)[0]:
        return False  # never trimmed: its hole reads as zeros
    return not segment.size_bytes or times.count > 0 or _begins_without_timestamp(segment)


def _begins_without_timestamp(segment: Segment) -> bool:
    """Return whether the first batch has no timestamp: a time index may then be without entries.

    Such are old messages, and a batch that a cleaning emptied.  Raises NotCachedError if it is not
    in memory.
    """
    header = segment.file.read_cached(0, min(WALK_HEADER_BYTES, segment.size_bytes))
    return len(header) > MAGIC_AT and max_timestamp_of(header) == NO_TIMESTAMP


# ---- at the start


def is_tidy(names: list[str]) -> bool:
    """Return whether a directory with these names has nothing for `clean_directory` to do."""
    logs = set(offsets_of(names, LOG))
    for name in names:
        if name.endswith((DELETED, CLEANED, SWAP, ".tmp")):
            return False
        for suffix in INDEX_SUFFIXES:
            base = offset_of(name, suffix)
            if base is not None and base not in logs:
                return False
    return True


async def clean_directory(disk: Disk, directory: str) -> None:
    """Remove what an interrupted deletion or cleaning left, and finish interrupted swaps."""
    names = await disk.listdir(directory)
    swaps = await _keep_decided(disk, directory, names)
    for name in names:
        if name.endswith((DELETED, CLEANED, ".tmp")):
            await disk.unlink(f"{directory}/{name}")
    if swaps:
        await _finish_swaps(disk, directory, swaps)
    names = await disk.listdir(directory)
    logs = set(offsets_of(names, LOG))
    for name in names:
        for suffix in INDEX_SUFFIXES:
            base = offset_of(name, suffix)
            if base is not None and base not in logs:
                await disk.unlink(f"{directory}/{name}")


async def _keep_decided(disk: Disk, directory: str, names: list[str]) -> list[str]:
    """Remove the swaps that were not decided, durably; return the names of all others.

    These go before what shows that they are not: a `.cleaned` log of the same swap.
    """
    first_cleaned = min(offsets_of(names, LOG + CLEANED), default=None)
    bases = {
        base
        for base in offsets_of(names, LOG + SWAP)
        if first_cleaned is None or base < first_cleaned
    }
    swaps = [name for name in names if name.endswith(SWAP)]
    decided = [name for name in swaps if _base_of(name.removesuffix(SWAP)) in bases]
    undecided = [name for name in swaps if name not in decided]
    for name in sorted(undecided, key=lambda name: name.endswith(LOG + SWAP)):
        await disk.unlink(f"{directory}/{name}")
    if undecided:
        await disk.fsync_directory(directory)
    return decided


async def _finish_swaps(disk: Disk, directory: str, swaps: list[str]) -> None:
    """Put `.swap` files in the place of the segments they were made from."""
    bases = offsets_of(swaps, LOG + SWAP)
    for base in bases:
        await _remove_superseded(disk, directory, base)
    await disk.fsync_directory(directory)
    for base in bases:
        await finish_swap(disk, directory, base)


async def _remove_superseded(disk: Disk, directory: str, base: int) -> None:
    """Remove the segments whose batches a swap's log holds now, the oldest first."""
    file = disk.open(f"{directory}/{file_name(base, LOG)}{SWAP}")
    found = BatchScan(
        disk,
        file,
        position=0,
        end=file.size_bytes,
        first_offset=base,
        base_offset=base,
        is_crc_checked=False,
    )
    end_offset = base
    while (block := await found.next_block()) is not None:
        end_offset = block.batches[-1][1].end_offset
    file.close()
    names = await disk.listdir(directory)
    if base in offsets_of(names, LOG):  # else the indexes of its name are the new ones
        for suffix in (*INDEX_SUFFIXES, LOG):
            if file_name(base, suffix) in names:
                await disk.unlink(f"{directory}/{file_name(base, suffix)}")
    for name in names:
        live = _base_of(name)
        if live is not None and base < live < end_offset:
            await disk.unlink(f"{directory}/{name}")


def _base_of(name: str) -> int | None:
    for suffix in SEGMENT_SUFFIXES:
        base = offset_of(name, suffix)
        if base is not None:
            return base
    return None


def _scan(disk: Disk, segment: Segment, position: int) -> BatchScan:
    return BatchScan(
        disk,
        segment.file,
        position=position,
        end=segment.size_bytes,
        first_offset=segment.base_offset,
        base_offset=segment.base_offset,
        is_crc_checked=False,
    )
