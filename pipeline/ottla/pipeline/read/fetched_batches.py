"""The batches of one partition in one fetch response, within a range of offsets. Pure.

Headers of batches are read at once, because they determine the offset of the next fetch. Checksums
are verified and records decompressed on demand, one batch at a time. A small response with highly
compressed data therefore needs only the memory of its largest batch. Control batches, aborted
transactions (read_committed) and records outside of the range are skipped. A batch that is cut off
at the end of the response is left for the next fetch.
"""

from collections.abc import Iterator, Sequence

from ottla.client.fetch.aborted_producers import AbortedProducers
from ottla.model.errors import CorruptDataError
from ottla.model.ids import Offset
from ottla.model.limits import BATCH_HEADER_BYTES, DECOMPRESSED_BATCH_BYTES_MAX
from ottla.wire.batch import BatchHeader, Buffer, batches, check_crc
from ottla.wire.compression import Codec, codec_of
from ottla.wire.records import Body, record_body


class FetchedBatches:
    """Record batches in one fetch response that contain records at offsets in [first, end)."""

    def __init__(
        self,
        data: Buffer,
        first: int,
        end: int,
        *,
        aborted: Sequence[tuple[int, int]] | None = None,
        check_crcs: bool = True,
    ) -> None:
        """Check the headers of the record batches in `data`. Raises CorruptDataError if they are
        malformed.

        `aborted` contains (producer id, first offset) of each aborted transaction. If it is None,
        the records of aborted transactions are also returned.
        """
        self._data = data
        self.first = first
        self._check_crcs = check_crcs
        self._aborted = aborted
        self._found: list[tuple[int, BatchHeader]] = []
        self.next_offset = first
        """Offset of the next fetch.  It is at least `first`, and may be greater than `end` after a
        gap in the offsets."""
        for at, header in batches(data, is_partial_end_allowed=True):
            if header.end_offset <= first:
                continue
            if header.base_offset >= end:
                self.next_offset = max(self.next_offset, end)
                break
            if header.end_offset <= self.next_offset:
                raise CorruptDataError(
                    f"offset {self.next_offset}: a batch of offsets {header.base_offset} to "
                    f"{header.last_offset} follows"
                )
            self.next_offset = int(header.end_offset)
            self._found.append((at, header))

    def bodies(self) -> Iterator[Body]:
        """Yield the records of each batch in order, decompressed. Raises CorruptDataError if they
        are corrupt."""
        aborted = AbortedProducers(self._aborted)
        for at, header in self._found:
            try:
                if self._check_crcs and not check_crc(self._data, at, header):
                    raise CorruptDataError("the batch fails its checksum")
                if header.is_control:
                    aborted.on_control(self._data, at, header)
                elif not aborted.is_aborted(header):
                    yield self._body(at, header)
            except CorruptDataError as error:
                raise corrupt_at(header.base_offset, error) from error

    def _body(self, at: int, header: BatchHeader) -> Body:
        if codec_of(header.codec) is Codec.NONE:
            # Nothing is copied: the records are read from the received buffer.
            return Body(header, self._data, at + BATCH_HEADER_BYTES, at + header.size_bytes)
        unpacked = record_body(self._data, at, header, DECOMPRESSED_BATCH_BYTES_MAX)
        return Body(header, unpacked, 0, len(unpacked))


def corrupt_at(offset: Offset, error: CorruptDataError) -> CorruptDataError:
    """Return the error for a corrupt record batch, with the base offset of the batch added."""
    return CorruptDataError(f"batch at offset {offset}: {error.where}")
