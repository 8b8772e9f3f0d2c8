"""Reads the records of a share partition's log that a member may acquire.

Pure except for reading bytes in the page cache. Only the headers of batches are read. The records
are sent as a slice of the file, as for Fetch. The slice begins with the first acquired batch and
ends with the last acquired batch. It may contain records that the member has not acquired; clients
skip these records (KIP-932). Records that only the object store has are sent from memory.
"""

from collections.abc import Callable, Iterator

from ottla.broker.replicas.partition import Partition
from ottla.broker.shares.acquired_ranges import AcquiredRange
from ottla.broker.shares.led_share import LedShare
from ottla.broker.shares.share_partition import LogBatch
from ottla.broker.tier.remote_reads import RemoteRead
from ottla.model.ids import Offset
from ottla.model.limits import BATCH_HEADER_BYTES
from ottla.model.settings.share_groups import READ_COMMITTED, ShareGroupSettings
from ottla.storage.disk.slice import FileSlice
from ottla.storage.log.log import Log
from ottla.wire.batch import parse_header

CHUNK_BYTES = 4_096
"""Bytes of a log that are read at once to find batch headers. A smaller value needs more reads if
batches are small. A larger value copies more record bytes if batches are large."""

COPIED_BYTES_MAX = 4_096
"""Maximum size in bytes of records that a ShareFetch response contains as a copy instead of as a
slice of the file."""

ReadCopied = Callable[[Partition, Log, Offset, bool], RemoteRead | None]
"""Function that returns records of a partition, from an offset on, that only the object store has.
If the records are not in memory yet, it starts to read them and returns None. If the flag is True,
only committed records are read."""

BATCHES_MAX = 2_000
"""Maximum number of batches whose headers one read of a share partition examines. With a larger
value, small batches block the event loop longer. With a smaller value, more fetches are needed if
most of the batches are acquired."""


class ShareRead:
    """Readable records of one share partition, beginning at the first available offset."""

    __slots__ = ("_ends", "_starts", "aborted", "fetch_offset", "led", "log", "piece")

    def __init__(
        self, led: LedShare, log: Log, fetch_offset: Offset, piece: FileSlice | bytes
    ) -> None:
        self.led = led
        self.log = log
        self.fetch_offset = fetch_offset
        self.piece = piece
        """Readable bytes of the log, beginning with the batch that contains the fetch offset."""
        self.aborted: list[tuple[int, Offset]] = []
        """Producer id and first offset of each aborted transaction. Empty if the group also reads
        uncommitted records."""
        self._starts: list[tuple[int, int]] = []
        """First offset and start position in the file of each batch whose header was read."""
        self._ends: list[tuple[int, int]] = []
        """Last offset and end position in the file of each batch whose header was read."""

    def batches(self, bytes_max: int, *, is_first: bool) -> Iterator[LogBatch]:
        """Yield the batches of the log that fit into `bytes_max`. If `is_first` is True, the first
        batch is yielded even if it is larger.

        Raises NotCachedError if a header is not in the page cache, and CorruptDataError if a header
        is malformed.
        """
        piece = self.piece
        at = 0 if isinstance(piece, bytes) else piece.position
        end = at + len(piece)
        limit = at + bytes_max
        open_aborts = list(self.aborted)
        aborting: set[int] = set()
        chunk, chunk_at = b"", at
        for count in range(BATCHES_MAX):
            if at + BATCH_HEADER_BYTES > end:
                return
            if at + BATCH_HEADER_BYTES > chunk_at + len(chunk):
                chunk, chunk_at = self._bytes_at(at, min(CHUNK_BYTES, end - at)), at
            header = parse_header(chunk, at - chunk_at)
            batch_end = at + header.size_bytes
            if batch_end > end or (batch_end > limit and not (is_first and not count)):
                return
            while open_aborts and open_aborts[0][1] <= header.last_offset:
                aborting.add(open_aborts.pop(0)[0])
            is_delivered = not header.is_control
            if header.is_control:
                # The marker of a producer ends its transaction; an aborted one ends with no other.
                aborting.discard(header.producer_id)
            elif header.is_transactional and header.producer_id in aborting:
                is_delivered = False
            self._starts.append((header.base_offset, at))
            self._ends.append((header.last_offset, batch_end))
            yield LogBatch(header.base_offset, header.last_offset, is_delivered)
            at = batch_end

    def last_batch(self) -> FileSlice:
        """Return the bytes of the batch that the method `batches` yielded last."""
        assert isinstance(self.piece, FileSlice), "an order of deliveries reads the local log only"
        begin, end = self._starts[-1][1], self._ends[-1][1]
        return FileSlice(self.piece.file, begin, end - begin)

    def _bytes_at(self, at: int, size: int) -> bytes:
        piece = self.piece
        if isinstance(piece, bytes):
            return piece[at : at + size]
        return bytes(piece.file.read_cached(at, size))

    def records_of(self, acquired: list[AcquiredRange]) -> FileSlice | bytes | bytearray:
        """Return the bytes of all batches from the first to the last acquired record."""
        first, last = acquired[0].first_offset, acquired[-1].last_offset
        begin = max(position for offset, position in self._starts if offset <= first)
        end = min(position for offset, position in self._ends if offset >= last)
        if isinstance(self.piece, bytes):
            return self.piece[begin:end]
        piece = FileSlice(self.piece.file, begin, end - begin)
        return piece.read_cached() if len(piece) <= COPIED_BYTES_MAX else piece


def read_share(
    led: LedShare, settings: ShareGroupSettings, bytes_max: int, read_copied: ReadCopied
) -> ShareRead | None:
    """Return the readable records of a share partition, or None if no record can be acquired now.

    The function `read_copied` is called if only the object store still has the records. Raises
    RefusedError with Kafka's error code if the partition cannot be read, and NotCachedError if a
    position in the log is not in the page cache.
    """
    log = led.log()
    share = led.share
    share.on_log_start(log.log_start_offset)
    is_committed = settings.isolation_level == READ_COMMITTED
    bound = log.last_stable_offset if is_committed else log.high_watermark
    offset = share.fetch_offset()
    if offset is None or offset >= bound:
        return None
    fetch_offset = Offset(offset)
    if log.log_start_offset <= offset < log.local_start_offset:
        copied = read_copied(led.partition, log, fetch_offset, is_committed)
        if copied is None:
            return None
        read = ShareRead(led, log, fetch_offset, copied.records)
        read.aborted = list(copied.aborted)
        return read
    found = log.read(
        fetch_offset, bytes_max=bytes_max, end_offset=bound, at_least_one=True, whole_batches=False
    )
    if found.slice is None:
        return None
    read = ShareRead(led, log, fetch_offset, found.slice)
    if is_committed:
        read.aborted = log.aborted_transactions(fetch_offset, found.end_offset)
    return read
