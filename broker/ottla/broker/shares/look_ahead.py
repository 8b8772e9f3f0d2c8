"""Look-ahead of a share partition: reads the log and adds its records to the order of deliveries.

Pure except for reading bytes in the page cache. A batch is decompressed only if the keys or headers
of its records determine their delivery. A batch that cannot be decompressed is delivered as if its
records had no key and no headers. Its consumers then detect the damage.
"""

from collections.abc import Iterator

from ottla.broker.coordinators.effects import Instant
from ottla.broker.shares.led_share import LedShare
from ottla.broker.shares.ordering.delivery_order import AheadRecord, DeliveryOrder, PendingBatch
from ottla.broker.shares.ordering.ordering_rules import OrderingRules
from ottla.broker.shares.ordering.record_traits import PLAIN, due_ms_of, traits_of
from ottla.broker.shares.share_partition import LogBatch, SharePartition
from ottla.broker.shares.share_read import ShareRead
from ottla.model.errors import CorruptDataError
from ottla.model.ids import Offset
from ottla.model.limits import MIB
from ottla.storage.log.log import Log
from ottla.wire.batch import BatchHeader, parse_header
from ottla.wire.records import RecordHeaders, record_body, scan_body_as

RECORDS_PER_TURN = 500
"""Maximum number of records that are read ahead per event-loop iteration. A larger value blocks the
event loop longer. A smaller value needs more iterations to read the log again after a failover."""

BYTES_PER_TURN = 256 * 1024
"""Maximum bytes of the log that are read ahead per event-loop iteration. A batch that is larger is
still read whole."""

DECOMPRESSED_BYTES_MAX = 16 * MIB
"""Maximum decompressed size in bytes of a batch whose records are read for keys and headers. A
larger value uses more memory and time for one batch. A smaller value ignores the headers of more
batches."""


def read_ahead(led: LedShare, order: DeliveryOrder, log: Log, bound: Offset, now: Instant) -> bool:
    """Add up to RECORDS_PER_TURN records of the log below `bound` to the order of deliveries.
    Returns False if all records are added.

    Raises NotCachedError if the bytes are not in the page cache.
    """
    share = led.share
    if order.scanned_offset < log.log_start_offset:
        order.pending = None
        share.pass_gap(order, log.log_start_offset - 1)
    left = _add_pending(share, order, RECORDS_PER_TURN, now)
    _skip_settled(share, order)
    if left <= 0 or order.is_full or order.scanned_offset >= bound:
        return left < RECORDS_PER_TURN
    offset = Offset(order.scanned_offset)
    found = log.read(
        offset, bytes_max=BYTES_PER_TURN, end_offset=bound, at_least_one=True, whole_batches=False
    )
    if found.slice is None:
        return left < RECORDS_PER_TURN
    read = ShareRead(led, log, offset, found.slice)
    if order.rules.is_committed:
        read.aborted = log.aborted_transactions(offset, found.end_offset)
    for batch in read.batches(BYTES_PER_TURN, is_first=True):
        _skip_settled(share, order)
        if batch.last_offset < order.scanned_offset:
            continue
        _add_batch(share, order, read, batch, now)
        left = _add_pending(share, order, left - 1, now)
        if left <= 0 or order.is_full:
            break
    return True


def _skip_settled(share: SharePartition, order: DeliveryOrder) -> None:
    """Skip the records that are acknowledged or archived, without decoding them. After a failover,
    these may be most records of the delivery window."""
    window = share.window
    for _ in range(RECORDS_PER_TURN):
        if not window.start_offset <= order.scanned_offset < window.end_offset:
            return
        span = window.spans[window.index_of(order.scanned_offset)]
        if not span.is_settled:
            return
        order.scanned_offset = span.last + 1


def _add_batch(
    share: SharePartition, order: DeliveryOrder, read: ShareRead, batch: LogBatch, now: Instant
) -> None:
    """Add a batch to the order of deliveries. A batch whose records must be read first is only
    prepared for `_add_pending`."""
    if batch.first_offset > order.scanned_offset:
        share.pass_gap(order, batch.first_offset - 1)
    if not batch.is_delivered:
        share.pass_gap(order, batch.last_offset)
    elif not order.rules.reads_records:
        first = order.scanned_offset
        share.admit(order, first, batch.last_offset, traits=PLAIN, due_ms=0, now=now)
    else:
        data = read.last_batch().read_cached()
        records = ahead_records(order.rules, data, order.scanned_offset)
        order.pending = PendingBatch(records, batch.last_offset)


def _add_pending(share: SharePartition, order: DeliveryOrder, left: int, now: Instant) -> int:
    """Add up to `left` records of a batch that is only partly added to the order of deliveries.
    Returns the number of records that may still be added now."""
    pending = order.pending
    if pending is None:
        return left
    for record in pending.records:
        if record.offset < order.scanned_offset:
            continue
        if record.offset > order.scanned_offset:
            share.pass_gap(order, record.offset - 1)
        share.admit(
            order,
            record.offset,
            record.offset,
            traits=record.traits,
            due_ms=record.due_ms,
            now=now,
        )
        left -= 1
        if left <= 0:
            return left
    order.pending = None
    if pending.last_offset >= order.scanned_offset:
        share.pass_gap(order, pending.last_offset)
    return left


def ahead_records(
    rules: OrderingRules, data: bytes | bytearray, from_offset: int
) -> Iterator[AheadRecord]:
    """Yield the due time, key and priority of each record in a batch that is read ahead, from
    `from_offset` on."""
    header = parse_header(data)
    last = from_offset - 1
    try:
        for record in _readable(rules, data, header):
            if record.offset > last:
                yield record
                last = record.offset
    except CorruptDataError:
        for offset in range(last + 1, header.last_offset + 1):
            yield AheadRecord(offset, due_ms_of(rules, header.max_timestamp, ()), PLAIN)


def _readable(
    rules: OrderingRules, data: bytes | bytearray, header: BatchHeader
) -> Iterator[AheadRecord]:
    def make(
        offset: Offset,
        timestamp_ms: int,
        key: bytes | None,
        _value: bytes | None,
        headers: RecordHeaders,
    ) -> AheadRecord:
        due_ms = due_ms_of(rules, timestamp_ms, headers)
        return AheadRecord(offset, due_ms, traits_of(rules, key, headers))

    body = record_body(data, 0, header, DECOMPRESSED_BYTES_MAX)
    return scan_body_as(make, body, header)
