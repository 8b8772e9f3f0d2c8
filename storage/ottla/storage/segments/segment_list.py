"""Encoder and decoder of a log's `closed-segments` file. Pure. A clean shutdown writes the file,
with a description of each segment except the active one.

Kafka has no such file (KIP-263 has the same aim). If the segments' files have the listed sizes, a
clean start does not open them. The file also contains the largest timestamps, for which startup
would otherwise scan the indexes and the log. A segment whose `.log` is shorter than listed, or
missing, is damaged. The bytes of the log file alone may not show the damage, because the file may
have been cut off at the end of a batch.

Format: text with version, count, then one line per segment; the last line is the CRC of all
previous lines.
"""

from collections.abc import Iterable
from typing import NamedTuple
from zlib import crc32

from ottla.model.errors import CorruptDataError

CLOSED_SEGMENTS = "closed-segments"
VERSION = 0


class ClosedSegment(NamedTuple):
    """File sizes and largest timestamp of one closed segment, as recorded at a clean shutdown."""

    base_offset: int
    size_bytes: int
    offset_entry_count: int
    time_entry_count: int
    abort_count: int
    max_timestamp_ms: int
    max_timestamp_offset: int


def format_segments(segments: Iterable[ClosedSegment]) -> bytes:
    """Return the bytes of a `closed-segments` file that describes `segments`."""
    rows = [" ".join(map(str, segment)) for segment in segments]
    text = ("\n".join([str(VERSION), str(len(rows)), *rows]) + "\n").encode()
    return text + f"{crc32(text)}\n".encode()


def parse_segments(data: bytes) -> dict[int, ClosedSegment]:
    """Return the segments that a `closed-segments` file describes, by base offset.

    Raises CorruptDataError if the file is malformed.
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
