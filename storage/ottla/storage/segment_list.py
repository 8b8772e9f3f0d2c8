"""The `closed-segments` file of a log: what a clean stop left of each segment but the active one.

Ours.  A clean start that finds files of these sizes opens none of them (KIP-263 has the same aim):
the largest timestamps, for which it would walk the indexes and the log, are in the file.  A segment
whose `.log` is shorter than it was, or is gone, is known to be damaged, which its bytes may not
show where it was cut at the end of a batch.

Text: version, count, then one segment a line; the last line is the CRC of the others.
"""

from collections.abc import Iterable
from typing import NamedTuple
from zlib import crc32

from ottla.model.errors import CorruptDataError

CLOSED_SEGMENTS = "closed-segments"
VERSION = 0


class ClosedSegment(NamedTuple):
    """One segment as it was closed."""

    base_offset: int
    size_bytes: int
    offset_entry_count: int
    time_entry_count: int
    abort_count: int
    max_timestamp_ms: int
    max_timestamp_offset: int


def format_segments(segments: Iterable[ClosedSegment]) -> bytes:
    """Return the file's bytes."""
    rows = [" ".join(map(str, segment)) for segment in segments]
    text = ("\n".join([str(VERSION), str(len(rows)), *rows]) + "\n").encode()
    return text + f"{crc32(text)}\n".encode()


def parse_segments(data: bytes) -> dict[int, ClosedSegment]:
    """Return the segments by their base offset.

    Raises CorruptDataError if the bytes are not the format's.
    """
    try:
        *lines, crc = data.decode("ascii").splitlines()
        text = ("\n".join(lines) + "\n").encode()
        if int(crc) != crc32(text) or int(lines[0]) != VERSION:
            raise CorruptDataError(f"{CLOSED_SEGMENTS}: version or CRC is wrong")
        rows = [ClosedSegment(*map(int, line.split(" "))) for line in lines[2:]]
        return {segment.base_offset: segment for segment in rows}
    except (ValueError, IndexError, TypeError):
        raise CorruptDataError(f"{CLOSED_SEGMENTS}: not the format") from None
