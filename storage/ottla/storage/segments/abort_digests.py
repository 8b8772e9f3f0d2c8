"""Encoder and decoder of a log's `abort-digests` file: the number and CRC of the aborted
transactions in each segment's `.txnindex`. Pure.

A missing or changed `.txnindex` makes aborted records visible, or hides committed ones. Without
digests, only a check of all markers in the segment would detect this. Startup compares the digests,
and rebuilds an index whose digest differs.

Kafka has no such file. If a log without the file has indexes, as in a directory that Kafka wrote,
they are accepted unchecked. A log without aborted transactions has no such file either.

Format: text with version, count, then one line `base-offset entries crc` for each segment; the last
line is the CRC of all previous lines.
"""

from collections.abc import Mapping
from typing import NamedTuple
from zlib import crc32

from ottla.model.errors import CorruptDataError

ABORT_DIGESTS = "abort-digests"
VERSION = 0


class AbortDigest(NamedTuple):
    """Digest of a segment's `.txnindex` file: the number of its entries and their CRC."""

    entry_count: int
    crc: int


NO_ABORTS = AbortDigest(0, 0)


def format_digests(digests: Mapping[int, AbortDigest]) -> bytes:
    """Return the bytes of an `abort-digests` file. `digests` contains the digest of each segment
    that has aborted transactions, by the segment's base offset."""
    lines = [str(VERSION), str(len(digests))]
    lines += [f"{base} {one.entry_count} {one.crc}" for base, one in sorted(digests.items())]
    text = ("\n".join(lines) + "\n").encode()
    return text + f"{crc32(text)}\n".encode()


def parse_digests(data: bytes) -> dict[int, AbortDigest]:
    """Return the digests in an `abort-digests` file, by the base offsets of their segments.

    Raises CorruptDataError if the file is malformed.
    """
    try:
        *lines, crc = data.decode("ascii").splitlines()
        text = ("\n".join(lines) + "\n").encode()
        if int(crc) != crc32(text) or int(lines[0]) != VERSION:
            raise CorruptDataError(f"{ABORT_DIGESTS}: version or CRC is wrong")
        rows = [tuple(map(int, line.split(" "))) for line in lines[2:]]
        return {base: AbortDigest(entry_count, each) for base, entry_count, each in rows}
    except (ValueError, IndexError):
        raise CorruptDataError(f"{ABORT_DIGESTS}: not the format") from None
