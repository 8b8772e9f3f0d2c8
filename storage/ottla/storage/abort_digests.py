"""The `abort-digests` file of a log: how many aborts each segment's `.txnindex` has, and their CRC.

Ours.  A `.txnindex` that is gone or changed makes aborted records visible, or hides committed ones,
and only a walk over its segment's markers would show it.  A start compares the digests instead, and
builds an index that differs again.  A log without aborts has no such file; neither has a directory
of Kafka's, whose indexes are taken as they are.

Text: version, count, then `base-offset entries crc` a line; the last line is the CRC of the others.
"""

from collections.abc import Mapping
from typing import NamedTuple
from zlib import crc32

from ottla.model.errors import CorruptDataError

ABORT_DIGESTS = "abort-digests"
VERSION = 0


class AbortDigest(NamedTuple):
    """Number and CRC of the entries of a segment's `.txnindex`."""

    entry_count: int
    crc: int


NO_ABORTS = AbortDigest(0, 0)


def format_digests(digests: Mapping[int, AbortDigest]) -> bytes:
    """Return the file's bytes, from the digests of segments with aborts by base offset."""
    lines = [str(VERSION), str(len(digests))]
    lines += [f"{base} {one.entry_count} {one.crc}" for base, one in sorted(digests.items())]
    text = ("\n".join(lines) + "\n").encode()
    return text + f"{crc32(text)}\n".encode()


def parse_digests(data: bytes) -> dict[int, AbortDigest]:
    """Return the digests by the base offset of their segment.

    Raises CorruptDataError if the bytes are not the format's.
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
