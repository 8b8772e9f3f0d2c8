"""Split of a segment whose offsets are too far from its base offset into several valid segments
(KAFKA-6264).

In old brokers, a segment could span more offsets than an index entry can represent. The new
segments (pieces) are written as `.cleaned`, flushed, and renamed to `.swap`, the piece with the
highest base offset first. The piece with the old segment's base offset is renamed last. If a crash
occurs before that rename, the next start undoes the split. After a crash later on, the next start
replaces the old segment by the pieces (`segment_swap.clean_directory`).
"""

from ottla.storage.disk.disk_seam import Disk, DiskFile
from ottla.storage.segments.batch_scan import BatchScan
from ottla.storage.segments.files import CLEANED, INDEX_SUFFIXES, LOG, SWAP, file_name
from ottla.storage.segments.segment import SEGMENT_OFFSETS_MAX

COPY_BYTES = 1 << 20
"""Number of bytes per step when the damaged tail of a segment is copied."""


class OffsetOverflowError(Exception):
    """Raised for a segment that contains an offset too far from its base offset."""

    def __init__(self, base_offset: int) -> None:
        super().__init__(f"segment {base_offset} holds offsets too far from it")
        self.base_offset = base_offset


async def split_segment(disk: Disk, directory: str, base_offset: int) -> int:
    """Split a segment: durably write its pieces (the new, smaller segments) as `.swap` files.
    Returns the number of pieces.

    If possible, a piece begins at the end of the previous piece, because a gap would be mistaken
    for lost records. The bytes after the last complete batch are added to the last piece; recovery
    then checks these bytes.
    """
    prefix = f"{directory}/{file_name(base_offset, '')}"
    source = disk.open(prefix + LOG)
    pieces = [disk.open(prefix + LOG + CLEANED, create=True)]
    try:
        await _copy(disk, directory, base_offset, source, pieces)
        for file in pieces:
            await disk.fsync(file)
    finally:
        for file in (source, *pieces):
            file.close()
    await disk.fsync_directory(directory)
    for suffix in INDEX_SUFFIXES:  # their positions refer to the whole segment
        if disk.exists(prefix + suffix):
            await disk.unlink(prefix + suffix)
    for file in reversed(pieces):
        await disk.rename(file.path, file.path.removesuffix(CLEANED) + SWAP)
        await disk.fsync_directory(directory)
    return len(pieces)


async def _copy(
    disk: Disk, directory: str, base_offset: int, source: DiskFile, pieces: list[DiskFile]
) -> None:
    """Copy the batches of `source` to the first piece (new, smaller segment), and create a further
    piece whenever an offset does not fit."""
    scanning = BatchScan(
        disk,
        source,
        position=0,
        end=source.size_bytes,
        first_offset=base_offset,
        base_offset=None,
        is_crc_checked=True,
    )
    position, end_offset = 0, base_offset
    while (block := await scanning.next_block()) is not None:
        for at, header in block.batches:
            if header.last_offset - base_offset >= SEGMENT_OFFSETS_MAX:
                fits = header.last_offset - end_offset < SEGMENT_OFFSETS_MAX
                base_offset = end_offset if fits else header.base_offset
                path = f"{directory}/{file_name(base_offset, LOG)}{CLEANED}"
                pieces.append(disk.open(path, create=True))
                position = 0
            batch = block.data[at : at + header.size_bytes]
            pieces[-1].pwrite(position, [batch])
            position += len(batch)
            end_offset = header.end_offset
    at = scanning.valid_end
    while data := await disk.read(source, at, COPY_BYTES):
        pieces[-1].pwrite(position, [data])
        position += len(data)
        at += len(data)
