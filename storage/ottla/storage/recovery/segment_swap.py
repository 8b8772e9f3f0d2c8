"""Replacement of segments by a compacted one on disk: a crash leaves either the old or the new
segments.

Each step is durable before the next:
- The new files are written and flushed as `.cleaned`.
- They are renamed to `.swap`, the log last. Once the log is renamed, the swap is decided, and
  startup completes it.
- The old segments are renamed to `.deleted`, the oldest first.
- The new files get their final names, again the log last.

Invariants: SwapIsDecidedByTheLog (a `.swap` index is used only with a `.swap` log), and
OldGoBeforeNewComes (no startup finds two segments with the same batches).
"""

from typing import Protocol

from ottla.model.errors import CorruptDataError
from ottla.model.ids import Offset
from ottla.storage.disk.disk_seam import Disk, when_cached
from ottla.storage.segments.batch_scan import BatchScan
from ottla.storage.segments.directory_view import DirectoryView
from ottla.storage.segments.files import (
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
from ottla.storage.segments.log_config import LogConfig
from ottla.storage.segments.segment import WALK_HEADER_BYTES, Segment, max_timestamp_of
from ottla.wire.batch import MAGIC_AT, NO_TIMESTAMP


class CleanedFiles(Protocol):
    """A new segment in `.cleaned` files, and the base offsets of the segments that it replaces."""

    @property
    def base_offset(self) -> int:
        """Base offset of the new segment and of the first segment that it replaces."""
        ...

    @property
    def sources(self) -> tuple[int, ...]:
        """Base offsets of the segments that the new segment replaces, in ascending order."""
        ...

    @property
    def size_bytes(self) -> int:
        """Size of the new segment's log file in bytes."""
        ...

    @property
    def max_timestamp_ms(self) -> int:
        """Largest record timestamp of the new segment in ms since 1970, or -1 if no record has a
        timestamp."""
        ...

    @property
    def max_timestamp_offset(self) -> int:
        """Offset of the new segment's record with the largest timestamp."""
        ...

    @property
    def first_timestamp_ms(self) -> int:
        """Timestamp of the new segment's first batch in ms since 1970, or -1 if the batch has no
        timestamp."""
        ...


# ---- while the log is online


async def open_cleaned(
    disk: Disk, directory: str, cleaned: CleanedFiles, config: LogConfig, *, now_ms: int
) -> Segment:
    """Open the `.cleaned` files of a new segment, and return the segment. After the swap, the files
    have the segment's final names.

    Raises CorruptDataError if the files do not match their description `cleaned`.
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
    """Return the end offset of the last batch of a sealed segment.

    Raises CorruptDataError if the bytes after the segment's last index entry are not complete
    batches.
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
    """Rename the `.cleaned` files of a new segment to `.swap`, which decides that it replaces the
    old ones. Once this returns, startup completes the swap.

    If this raises OSError, the caller does not know whether the swap is decided.
    """
    await _rename_all(disk, directory, base_offset, CLEANED, SWAP)


async def finish_swap(disk: Disk, directory: str, base_offset: int) -> None:
    """Rename the `.swap` files of a new segment to their final names. The caller has already
    renamed the old segments to `.deleted`."""
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
    """Return whether `decide_swap` has renamed the new segment's log file to `.swap`, so that
    startup completes the swap."""
    return not disk.exists(f"{directory}/{file_name(base_offset, LOG)}{CLEANED}")


async def remove_cleaned(disk: Disk, directory: str) -> None:
    """Remove the files of a compaction that were not swapped in. `decide_swap` must not run for the
    same directory at the same time."""
    names = await disk.listdir(directory)
    for name in [each for each in names if each.endswith(SWAP)] + names:
        if name.endswith((CLEANED, SWAP)) and disk.exists(f"{directory}/{name}"):
            await disk.unlink(f"{directory}/{name}")


def open_indexes(disk: Disk, segment: Segment, view: DirectoryView | None = None) -> bool:
    """Open the indexes of a sealed segment. Returns False if an index is missing or does not match
    the log file."""
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
        return False  # indexes of an empty segment are not trimmed at a shutdown
    if view.has(segment.transaction_index_path):
        aborts = segment.transaction_index
        size = aborts.open_sealed(view.size_of(aborts.path))
        if size % aborts.entry_bytes or not aborts.is_sound(segment.base_offset):
            return False
    if offsets.count and not 0 < offsets.entry_at(offsets.count - 1)[1] < segment.size_bytes:
        return False
    if times.count > 1 and times.entry_at(times.count - 1)[0] <= times.entry_at(times.count - 2)[0]:
        return False  # never trimmed: its hole reads as zeros
    return not segment.size_bytes or times.count > 0 or _begins_without_timestamp(segment)


def _begins_without_timestamp(segment: Segment) -> bool:
    """Return whether the segment's first batch has no timestamp. The time index may then have no
    entries.

    Such batches are old messages, or were emptied by compaction. Raises NotCachedError if the batch
    is not in the page cache.
    """
    header = segment.file.read_cached(0, min(WALK_HEADER_BYTES, segment.size_bytes))
    return len(header) > MAGIC_AT and max_timestamp_of(header) == NO_TIMESTAMP


# ---- at startup


def is_tidy(names: list[str]) -> bool:
    """Return whether a partition's directory contains no temporary files. `names` are its file
    names. `clean_directory` is then unnecessary."""
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
    """Remove the files of interrupted deletions and compactions from a partition's directory, and
    complete decided swaps (replacements of segments by a compacted one)."""
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
    """Durably remove the files of interrupted swaps (replacements of segments) that were not
    decided. Returns the names of the files of decided swaps.

    A `.cleaned` log file shows that its swap is undecided. The swap's other files are removed
    before it.
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
    """Replace old segments by the `.swap` files of the new segments that were made from them."""
    bases = offsets_of(swaps, LOG + SWAP)
    for base in bases:
        await _remove_superseded(disk, directory, base)
    await disk.fsync_directory(directory)
    for base in bases:
        await finish_swap(disk, directory, base)


async def _remove_superseded(disk: Disk, directory: str, base: int) -> None:
    """Remove the old segments whose batches are also in the `.swap` log file of a new segment, the
    oldest first."""
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
    if base in offsets_of(names, LOG):  # otherwise the indexes of this name are the new ones
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
