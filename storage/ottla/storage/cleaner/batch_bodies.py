"""Decompression of the record data (body) of scanned batches. Pure.

Bodies are returned in runs. A run is several small bodies that are processed together, or one large
body. The decompressed size of one batch is bounded. At most one batch and one run are in memory at
a time.
"""

from collections.abc import Iterable, Iterator

from ottla.model.limits import BATCH_HEADER_BYTES, MIB
from ottla.wire.batch import BatchHeader
from ottla.wire.compression import Codec, codec_of
from ottla.wire.records import Body, record_body

RUN_RECORDS_MAX = 16_384
"""Maximum number of records in one run of batch bodies. With more, the columns exceed the
processor's cache. With fewer, the overhead per run becomes noticeable."""
RUN_BYTES_MAX = 2 * MIB
"""Maximum number of decompressed bytes in one run of batch bodies. A larger batch is a run of its
own."""


def body_of(data: bytes, at: int, header: BatchHeader) -> Body:
    """Return the decompressed records of the batch at position `at` of `data`. Uncompressed records
    are not copied.

    Raises CorruptDataError if the records cannot be decompressed.
    """
    if codec_of(header.codec) is Codec.NONE:
        return Body(header, data, at + BATCH_HEADER_BYTES, at + header.size_bytes)
    unpacked = record_body(data, at, header)
    return Body(header, unpacked, 0, len(unpacked))


class RunBounds:
    """Counter of the records and bytes in the current run of batch bodies. The run ends when the
    number of records or of bytes reaches its maximum."""

    __slots__ = ("byte_count", "record_count")

    def __init__(self) -> None:
        self.record_count = 0
        self.byte_count = 0

    def is_full_after(self, body: Body) -> bool:
        """Count a batch body as part of the current run. Returns True if the run ends with this
        body."""
        self.record_count += body.header.record_count
        self.byte_count += body.size_bytes
        if self.record_count < RUN_RECORDS_MAX and self.byte_count < RUN_BYTES_MAX:
            return False
        self.record_count = self.byte_count = 0
        return True


def runs_of(data: bytes, batches: Iterable[tuple[int, BatchHeader]]) -> Iterator[list[Body]]:
    """Yield the decompressed bodies of batches in `data`, grouped in runs that are processed
    together. `batches` contains the position and header of each batch. No body is empty."""
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
