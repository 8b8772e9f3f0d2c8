"""The records of scanned batches, unpacked, in runs that are worked on together.

A run has few records and few bytes, or is one batch: what one batch unpacks to is bounded, and no
more than that and a run are in memory at a time.
"""

from collections.abc import Iterable, Iterator

from ottla.model.limits import BATCH_HEADER_BYTES, MIB
from ottla.wire.batch import BatchHeader
from ottla.wire.compression import Codec, codec_of
from ottla.wire.records import Body, record_body

RUN_RECORDS_MAX = 16_384
"""Records of one run.  More, and their columns leave the processor's cache; fewer, and the work per
run shows."""
RUN_BYTES_MAX = 2 * MIB
"""Unpacked bytes of one run, but for a single batch."""


def body_of(data: bytes, at: int, header: BatchHeader) -> Body:
    """Return the records of the batch at `at`; uncompressed ones are not copied.

    Raises CorruptDataError if they cannot be unpacked.
    """
    if codec_of(header.codec) is Codec.NONE:
        return Body(header, data, at + BATCH_HEADER_BYTES, at + header.size_bytes)
    unpacked = record_body(data, at, header)
    return Body(header, unpacked, 0, len(unpacked))


class RunBounds:
    """Counts what a run holds."""

    __slots__ = ("byte_count", "record_count")

    def __init__(self) -> None:
        self.record_count = 0
        self.byte_count = 0

    def is_full_after(self, body: Body) -> bool:
        """Count a body; return whether the run ends with it."""
        self.record_count += body.header.record_count
        self.byte_count += body.size_bytes
        if self.record_count < RUN_RECORDS_MAX and self.byte_count < RUN_BYTES_MAX:
            return False
        self.record_count = self.byte_count = 0
        return True


def runs_of(data: bytes, batches: Iterable[tuple[int, BatchHeader]]) -> Iterator[list[Body]]:
    """Yield the bodies of batches of data in runs, none of them empty."""
    run: list[Body] = []
    bounds = RunBounds()
    for at, header in batches:
        body = body_of(data, at, header)
        run.append(body)
        if bounds.is_full_after(body):
            yield run
            run = []
    if run:
        yield run
