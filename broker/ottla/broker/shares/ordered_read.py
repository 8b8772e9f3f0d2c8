"""Reads one share partition whose records are not delivered in the order of the log.

Pure except for reading bytes in the page cache. A response contains only the batches of the
acquired records, which need not be adjacent in the log. Clients skip records that they have not
acquired (KIP-932).
"""

from ottla.broker.shares.acquired_ranges import AcquiredRange, add_range
from ottla.broker.shares.led_share import LedShare
from ottla.broker.shares.look_ahead import read_ahead
from ottla.broker.shares.ordering.delivery_order import DeliveryOrder
from ottla.model.errors import CorruptDataError, RefusedError
from ottla.model.ids import Offset
from ottla.model.limits import BATCH_HEADER_BYTES, MIB
from ottla.model.settings.share_groups import READ_COMMITTED, ShareGroupSettings
from ottla.storage.disk.disk_seam import NotCachedError
from ottla.storage.disk.slice import FileSlice
from ottla.storage.log.log import Log
from ottla.wire.batch import BatchHeader, parse_header

AHEAD_TURNS_MAX = 4
"""Maximum number of reads ahead in one attempt of a ShareFetch if no record is ready. A larger
value blocks the event loop longer. A smaller value needs more attempts after a failover."""

BATCHES_MAX = 128
"""Maximum number of batches of one share partition in a ShareFetch response. A larger value blocks
the event loop longer if each due record is in another batch. A smaller value needs more fetches for
such records."""

COPIED_BYTES_MAX = MIB
"""Maximum bytes of batches in a response that are copied because they are not adjacent in the log.
A larger value uses more memory. A smaller value needs more fetches for scattered records."""


class OrderedRead:
    """Records of one share partition that are next in the group's order of deliveries (by delay,
    key or priority)."""

    __slots__ = ("_batch", "_bound", "_copied", "_first", "_order", "led", "log", "piece")

    def __init__(self, led: LedShare, order: DeliveryOrder, log: Log, bound: Offset) -> None:
        self.led = led
        self.log = log
        self.piece = range(order.ready_count)
        """Placeholder for the readable bytes. Its length is the number of ready records. A fetch
        that waits for more bytes than this length is answered at its timeout."""
        self._order = order
        self._bound = bound
        self._batch: tuple[BatchHeader, FileSlice] | None = None
        """Header and bytes of the batch that was read last, or None before the first read."""
        self._first: FileSlice | None = None
        """Bytes of the first batch with acquired records, or None before the first acquired
        record."""
        self._copied = bytearray()
        """Copy of all batches with acquired records, one after the other. A single batch is not
        copied, so the copy is then empty."""

    def acquire(
        self, member_id: str, *, records_max: int, bytes_max: int, now_ms: int
    ) -> list[AcquiredRange]:
        """Acquire the next records in the order of deliveries, until their batches exceed
        `bytes_max` bytes in total. The first batch may be larger.

        Raises NotCachedError if none of the bytes are in the page cache, CorruptDataError if a
        batch header is malformed, and RefusedError if the log cannot be read. After an error, no
        record is acquired.
        """
        share, order = self.led.share, self._order
        ranges = share.take_ready(order, records_max)
        found: list[AcquiredRange] = []
        left, batch_count = bytes_max, 0
        while ranges:
            first, last = ranges[0]
            try:
                header, piece = self._batch_of(Offset(first))
                is_new = self._batch is None or piece is not self._batch[1]
                if header.base_offset <= first and is_new and self._first is not None:
                    is_over = batch_count >= BATCHES_MAX or len(piece) > left
                    if is_over or not self._has_added(piece):
                        break
            except (NotCachedError, CorruptDataError, RefusedError):
                if not found:
                    self._put_back(ranges)
                    raise
                break
            if header.base_offset > first:
                end = min(last, header.base_offset - 1)
                share.drop_ready(order, first, end, now_ms)
            else:
                if is_new:
                    self._batch = header, piece
                    self._first = self._first or piece
                    left -= len(piece)
                    batch_count += 1
                end = min(last, header.last_offset)
                for one in share.own_ready(order, member_id, first, end, now_ms):
                    add_range(found, *one)
            ranges[0] = end + 1, last
            if end >= last:
                del ranges[0]
        self._put_back(ranges)
        return found

    def _put_back(self, ranges: list[tuple[int, int]]) -> None:
        for first, last in ranges:
            self._order.put_back(first, last)

    def _batch_of(self, offset: Offset) -> tuple[BatchHeader, FileSlice]:
        """Return the header and bytes of the batch that contains an offset. If no batch contains
        the offset, return the next batch."""
        if self._batch is not None and offset <= self._batch[0].last_offset:
            return self._batch
        found = self.log.read(
            offset, bytes_max=1, end_offset=self._bound, at_least_one=True, whole_batches=False
        )
        piece = found.slice
        if piece is None:
            raise CorruptDataError(f"the log has no batch at offset {offset}")
        header = parse_header(bytes(piece.file.read_cached(piece.position, BATCH_HEADER_BYTES)))
        return header, FileSlice(piece.file, piece.position, header.size_bytes)

    def _has_added(self, piece: FileSlice) -> bool:
        """Append the bytes of a batch to the copied batches. Returns False if the copies would be
        too large. Raises NotCachedError if bytes are not in the page cache."""
        assert self._first is not None
        size = len(self._copied or self._first) + len(piece)
        if size > COPIED_BYTES_MAX:
            return False
        data = piece.read_cached()
        if not self._copied:
            self._copied += self._first.read_cached()
        self._copied += data
        return True

    def records_of(self, _acquired: list[AcquiredRange]) -> FileSlice | bytes | bytearray:
        """Return the bytes of the batches that contain the acquired records."""
        assert self._first is not None
        return self._copied or self._first


def read_ordered(led: LedShare, settings: ShareGroupSettings, bytes_max: int) -> OrderedRead | None:
    """Read the log ahead, and return the records that are next in the order of deliveries, or None
    if no record may be delivered now.

    Raises RefusedError with Kafka's code, and NotCachedError if bytes of the log are not in the
    page cache.
    """
    log, share, order = led.log(), led.share, led.share.order
    assert order is not None, "the share partition has an order of deliveries"
    now = led.now
    share.on_log_start(log.log_start_offset)
    if log.log_start_offset > order.log_start_offset:
        order.drop_before(log.log_start_offset, now.mono_ms)
    is_committed = settings.isolation_level == READ_COMMITTED
    bound = log.last_stable_offset if is_committed else log.high_watermark
    order.ripen(now)
    led.is_reading_ahead = False
    for _ in range(AHEAD_TURNS_MAX):
        is_passed = not order.is_full and read_ahead(led, order, log, bound, now)
        led.is_reading_ahead = is_passed and not order.ready_count
        if not led.is_reading_ahead:
            break
    led.set_timer()
    return OrderedRead(led, order, log, bound) if order.ready_count else None
