"""Reads the records that a page of the console shows, within limits of count, bytes and time.

The reads are single Fetch requests with the permissions of the user. They commit no offsets and
join no group. Empty partitions and partitions without a leader cause no delay.
"""

from collections.abc import Callable, Iterable, Mapping
from heapq import nlargest
from operator import attrgetter
from typing import Any

import trio

from ottla.client.admin import Admin
from ottla.client.fetch.position_reads import ReadLimits, ReadPosition, fetch_once, wanted_of
from ottla.client.fetch.record_batch import ConsumerRecord
from ottla.client.fetch.record_decoder import RecordDecoder
from ottla.client.network.cluster import raise_for
from ottla.client.produce.partitioner import Partitioner
from ottla.console.partition_offsets_driver import known_offsets
from ottla.console.records.filter_terms import MISSING
from ottla.console.records.read_query import ReadQuery, Start
from ottla.console.records.record_text import DecodedField
from ottla.console.records.schema_formats_driver import FieldDecoder
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId, TopicPartition
from ottla.model.limits import KIB, MIB
from ottla.model.values import frozen
from ottla.wire.offset_timestamps import EARLIEST, LATEST

PARTITIONS_MAX = 100
"""Maximum number of partitions from which the records of one page are read."""
SCANNED_RECORDS_MAX = 20_000
SCANNED_BYTES_MAX = 32 * MIB
SCAN_S = 5.0
"""Maximum seconds for reading the records of one page. With a filter, the page then shows the
records found so far, and the next page continues where the scan ended."""
RESPONSE_BYTES = 2 * MIB
PARTITION_BYTES_MIN = 64 * KIB
FILTERED_WINDOW = 500
WINDOW_MAX = 10_000
WINDOW_GROWTH = 4
PACE_BYTES = 256 * KIB
"""Number of bytes of records that the scan of one page examines before the scans of other pages
continue."""
RECORD_COST_BYTES = KIB
"""Number of bytes that are added to the size of each examined record, to account for the fixed work
per record."""
SCANS_AT_ONCE = 4
"""Maximum number of pages whose records are read at the same time. Other pages wait. Each scan may
use SCANNED_BYTES_MAX bytes of memory."""
KEPT_MATCHES = 200
"""Number of matching records, in addition to two pages of records, that are stored in memory before
some are dropped."""
STALE_MAX = 5
STALE_WAIT_S = 0.2


@frozen(kw_only=True)
class FoundRecords:
    """Records that a page shows, and the extent of the scan that found them."""

    records: tuple[ConsumerRecord, ...]
    scanned_count: int
    scanned_bytes: int
    limit: str = ""
    """Limit that ended the scan of records early: "records", "bytes" or "time". Empty if the scan
    was complete."""
    cursor: Mapping[int, int] | None = None
    """Offset of each partition at which the next page of records continues, or None at the end."""
    unreadable: tuple[int, ...] = ()
    """Numbers of the partitions whose records could not be read because they have no leader, or
    because the leader does not respond."""
    left_out: int = 0
    """Number of partitions beyond PARTITIONS_MAX. Their records were not read."""


class FilteredView:
    """A record as the filter of a page reads it. Its content is decoded only when the filter reads
    it."""

    def __init__(self, record: ConsumerRecord, decoder: FieldDecoder) -> None:
        self.offset = int(record.offset)
        self.partition = record.partition
        self.timestamp_ms = record.timestamp_ms
        self._record = record
        self._decoder = decoder
        self._decoded: dict[str, DecodedField] = {}

    @property
    def size_bytes(self) -> int:
        """Size of the record's key, value and headers in bytes."""
        return size_of(self._record)

    @property
    def key_text(self) -> str | None:
        """Record key decoded as text, or None if the record has no key."""
        return None if self._record.key is None else self._of("key", self._record.key).text

    @property
    def value_text(self) -> str | None:
        """Record value decoded as text, or None if the record has no value (tombstone)."""
        return None if self._record.value is None else self._of("value", self._record.value).text

    @property
    def key_object(self) -> object:
        """Record key decoded to dicts, lists and scalars."""
        return None if self._record.key is None else self._of("key", self._record.key).content

    @property
    def value_object(self) -> object:
        """Record value decoded to dicts, lists and scalars."""
        return None if self._record.value is None else self._of("value", self._record.value).content

    def header_text(self, name: str) -> Any:
        """Return the record's last header with this name as text, or MISSING if the record has no
        such header."""
        for header, value in reversed(self._record.headers):
            if header == name:
                return None if value is None else value.decode(errors="backslashreplace")
        return MISSING

    def _of(self, part: Any, data: bytes) -> DecodedField:
        found = self._decoded.get(part)
        if found is None:
            found = self._decoder.decode(part, data, self._record.headers)
            self._decoded[part] = found
        return found


def size_of(record: ConsumerRecord) -> int:
    """Return the size of a record's key, value and headers in bytes."""
    size = len(record.key or b"") + len(record.value or b"")
    return size + sum(len(name) + len(value or b"") for name, value in record.headers)


class RecordScan:
    """One scan of a topic: searches the records that match a page's query, within limits."""

    def __init__(self, admin: Admin, topic: str, query: ReadQuery, decoder: FieldDecoder) -> None:
        self._cluster = admin.cluster
        self._topic = topic
        self._query = query
        self._decoder = decoder
        self._records = RecordDecoder()
        self._key = None if query.key is None else query.key.encode("utf-8", "surrogatepass")
        self._end_s = trio.current_time() + SCAN_S
        self.scanned_count = 0
        self.scanned_bytes = 0
        self._renewed_count = 0
        self._renewed_bytes = 0

    @property
    def limit(self) -> str:
        """Limit of the scan that is reached: "records", "bytes" or "time". Empty if no limit is
        reached."""
        if self.scanned_count - self._renewed_count >= SCANNED_RECORDS_MAX:
            return "records"
        if self.scanned_bytes - self._renewed_bytes >= SCANNED_BYTES_MAX:
            return "bytes"
        return "time" if trio.current_time() >= self._end_s else ""

    def renew(self) -> None:
        """Reset the limits of the scan, as if it had just started."""
        self._end_s = trio.current_time() + SCAN_S
        self._renewed_count, self._renewed_bytes = self.scanned_count, self.scanned_bytes

    @property
    def is_choosy(self) -> bool:
        """True if the query has a key or a filter. Records that do not match are then omitted."""
        return self._key is not None or self._query.filter is not None

    async def read(
        self,
        positions: list[ReadPosition],
        on_match: Callable[[ConsumerRecord], bool],
    ) -> None:
        """Read records from each position to its end, and pass matching records to `on_match`.
        Stops when `on_match` returns False or a limit is reached. Afterwards, the positions are
        after the last record that was examined."""
        stale_count = 0
        while (left := [one for one in positions if not one.is_at_end]) and not self.limit:
            share = max(PARTITION_BYTES_MIN, RESPONSE_BYTES // len(left))
            limits = ReadLimits(partition_bytes=share, response_bytes=RESPONSE_BYTES, wait_ms=100)
            with trio.move_on_at(self._end_s):
                found, stale = await fetch_once(
                    self._cluster, left, self._query.level, self._records, limits
                )
                stale_count = stale_count + 1 if stale else 0
                if stale:
                    self._cluster.forget_leaders()
                    if stale_count > STALE_MAX:
                        raise_for(stale)
                    await trio.sleep(STALE_WAIT_S)
                for position, records in found:
                    if not await self._examine(position, records, on_match):
                        return

    async def _examine(
        self,
        position: ReadPosition,
        records: list[ConsumerRecord],
        on_match: Callable[[ConsumerRecord], bool],
    ) -> bool:
        wanted = list(wanted_of(records, position))
        await self.prepare(wanted)
        paced_bytes = 0
        for record in wanted:
            self.scanned_count += 1
            size = size_of(record)
            self.scanned_bytes += size
            paced_bytes += size + RECORD_COST_BYTES
            if paced_bytes > PACE_BYTES:
                paced_bytes = 0
                await trio.lowlevel.checkpoint()
            if self.is_match(record) and not on_match(record):
                return False
            position.offset = record.offset + 1
            if self.limit:
                return False
        return True

    async def prepare(self, records: Iterable[ConsumerRecord]) -> None:
        """Load the schemas that the filter needs to decode some records."""
        if self._query.filter is not None and self._query.filter.reads_content:
            await self._decoder.prepare((one.key, one.value, one.headers) for one in records)

    def is_match(self, record: ConsumerRecord) -> bool:
        """Return whether a record has the query's key and matches its filter."""
        if self._key is not None and record.key != self._key:
            return False
        chosen = self._query.filter
        return chosen is None or chosen.matches(FilteredView(record, self._decoder))


_SCANS = trio.CapacityLimiter(SCANS_AT_ONCE)


async def find_records(
    admin: Admin, topic: str, query: ReadQuery, decoder: FieldDecoder
) -> FoundRecords:
    """Return the records that a page shows. Raises RefusedError if the topic or the partition does
    not exist, or if the user may not read it."""
    async with _SCANS:
        return await _find_records(admin, topic, query, decoder)


async def _find_records(
    admin: Admin, topic: str, query: ReadQuery, decoder: FieldDecoder
) -> FoundRecords:
    described = await admin.describe_topic(topic)
    leaders = {one.partition: one.leader for one in described.partitions}
    chosen = chosen_partitions(topic, query, leaders)
    wanted = {one: leaders[one] for one in chosen[:PARTITIONS_MAX]}
    begins = await _offsets(admin, topic, wanted, EARLIEST, query.level)
    ends = await _offsets(admin, topic, wanted, LATEST, query.level)
    readable = {one: wanted[one] for one in wanted if one in begins and one in ends}
    scan = RecordScan(admin, topic, query, decoder)
    if query.is_backward:
        bounds = {
            one: (begins[one], min(ends[one], (query.cursor or {}).get(one, ends[one])))
            for one in readable
        }
        found, cursor = await _backward(scan, topic, bounds, query.count)
    else:
        starts = await _starts(admin, topic, query, readable, begins, ends)
        found, cursor = await _forward(scan, topic, starts, ends, query.count)
    return FoundRecords(
        records=tuple(found),
        scanned_count=scan.scanned_count,
        scanned_bytes=scan.scanned_bytes,
        limit=scan.limit if cursor else "",
        cursor=cursor,
        unreadable=tuple(one for one in wanted if one not in readable),
        left_out=len(chosen) - len(wanted),
    )


async def find_record(admin: Admin, topic: str, partition: int, offset: int) -> ConsumerRecord:
    """Return the record at an offset of a partition. If the offset has no record, raises
    RefusedError, which names the next offset with a record."""
    position = ReadPosition(topic, partition, offset, None)
    limits = ReadLimits(partition_bytes=1, response_bytes=1, wait_ms=0)
    described = await admin.describe_topic(topic)
    leaders = {one.partition: one.leader for one in described.partitions}
    if leaders.get(partition) is None:
        chosen_partitions(topic, ReadQuery(start=Start.OLDEST, partition=partition), leaders)
        raise RefusedError(
            ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition} of {topic!r} has no leader"
        )
    for _ in range(STALE_MAX):
        try:
            found, stale = await fetch_once(
                admin.cluster, [position], "read_uncommitted", RecordDecoder(), limits
            )
        except RefusedError as refusal:
            if refusal.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            break
        for _, records in found:
            for record in records:
                if record.offset == offset:
                    return record
        if not stale:
            break
        admin.cluster.forget_leaders()
        await trio.sleep(STALE_WAIT_S)
    raise RefusedError(
        ErrorCode.RESOURCE_NOT_FOUND,
        f"there is no record at offset {offset} of partition {partition}: it was deleted or "
        "compacted, it marks the end of a transaction, or it was not written yet",
    )


def chosen_partitions(
    topic: str, query: ReadQuery, leaders: Mapping[int, NodeId | None]
) -> list[int]:
    """Return the numbers of the partitions that a query reads. `leaders` has the leader of each
    partition of the topic. Raises RefusedError if the query's partition does not exist."""
    if query.partition is not None:
        if query.partition not in leaders:
            raise RefusedError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic!r} has no partition {query.partition}; it has 0 to {max(leaders)}",
            )
        return [query.partition]
    if query.key is not None:
        key = query.key.encode("utf-8", "surrogatepass")
        placed = {one.partition_of(key, len(leaders)) for one in Partitioner}
        return sorted(one for one in placed if one is not None and one in leaders)
    if query.cursor is not None:
        return sorted(one for one in query.cursor if one in leaders)
    return sorted(leaders)


async def _starts(
    admin: Admin,
    topic: str,
    query: ReadQuery,
    leaders: Mapping[int, NodeId | None],
    begins: Mapping[int, int],
    ends: Mapping[int, int],
) -> dict[int, int]:
    if query.cursor is not None:
        starts = {one: query.cursor.get(one, ends[one]) for one in leaders}
    elif query.start is Start.OFFSET:
        starts = dict.fromkeys(leaders, query.offset)
    elif query.start is Start.TIME:
        found = await _offsets(admin, topic, leaders, query.time_ms, query.level)
        starts = {one: ends[one] if at < 0 else at for one, at in found.items()}
    else:
        starts = {one: begins[one] for one in leaders}
    return {one: max(begins[one], at) for one, at in starts.items()}


async def _forward(
    scan: RecordScan,
    topic: str,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    count: int,
) -> tuple[list[ConsumerRecord], dict[int, int] | None]:
    """Return the first records from the offsets `starts` on that match the query. Also returns the
    cursor (offset by partition) of the next page, or None at the end."""
    found: list[ConsumerRecord] = []

    def on_match(record: ConsumerRecord) -> bool:
        if len(found) >= count:
            return False
        found.append(record)
        return True

    positions = [ReadPosition(topic, one, at, ends[one]) for one, at in starts.items()]
    await scan.read(positions, on_match)
    cursor = {one.partition: one.offset for one in positions if not one.is_at_end}
    found.sort(key=attrgetter("timestamp_ms", "partition", "offset"))
    return found, cursor or None


async def _backward(
    scan: RecordScan, topic: str, bounds: Mapping[int, tuple[int, int]], count: int
) -> tuple[list[ConsumerRecord], dict[int, int] | None]:
    """Return the newest records within `bounds` that match the query, newest first. Also returns
    the cursor (offset by partition) of the next page, or None at the end. Windows of offsets before
    the end are read backwards, each larger than the previous window."""
    reader = _BackwardReader(scan, topic, bounds, count)
    window = max(count, FILTERED_WINDOW) if scan.is_choosy else count
    while reader.highs and not scan.limit and len(reader.found) < count:
        for some in _groups(list(reader.highs)):
            await reader.read(some, window)
            if scan.limit:
                break
        window = min(WINDOW_MAX, window * WINDOW_GROWTH)
    if scan.limit and not reader.found and reader.cut is not None:
        # The window did not fit the limits. A part of it that does is read, so that each page
        # goes further back than the one before.
        partition, examined_count = reader.cut
        scan.renew()
        await reader.read([partition], max(1, examined_count // 2))
    cursor = {**reader.highs, **reader.left_out}
    return reader.found, cursor or None


class _BackwardReader:
    """Backward reader of a topic's newest records. It stores the records found so far, and the
    offset to which each partition was read."""

    def __init__(
        self, scan: RecordScan, topic: str, bounds: Mapping[int, tuple[int, int]], count: int
    ) -> None:
        self._scan = scan
        self._topic = topic
        self._lows = {one: low for one, (low, _) in bounds.items()}
        self._count = count
        self.found: list[ConsumerRecord] = []
        self.highs = {one: high for one, (low, high) in bounds.items() if low < high}
        """Offset of each partition up to which (exclusive) the reader still has to read
        backwards."""
        self.left_out: dict[int, int] = {}
        """Offset after the newest record of each partition that matched and is not shown."""
        self.cut: tuple[int, int] | None = None
        """Partition whose window of offsets exceeded the limits, and the number of its examined
        records. None if no window exceeded them."""

    async def read(self, partitions: list[int], window: int) -> None:
        """Read `window` offsets before the offsets that were already read, in each of
        `partitions`."""
        before = self._scan.scanned_count
        positions = [
            ReadPosition(
                self._topic, one, max(self._lows[one], self.highs[one] - window), self.highs[one]
            )
            for one in partitions
        ]
        lows = {one.partition: one.offset for one in positions}
        matches: list[ConsumerRecord] = []

        def on_match(record: ConsumerRecord) -> bool:
            matches.append(record)
            if len(matches) > 2 * self._count + KEPT_MATCHES:
                self._keep(matches)
            return True

        await self._scan.read(positions, on_match)
        for position in positions:
            one = position.partition
            if position.is_at_end:
                self.highs[one] = lows[one]
                if lows[one] <= self._lows[one]:
                    del self.highs[one]
            else:
                # Its newest records are missing: the next page reads this window again.
                matches[:] = [record for record in matches if record.partition != one]
                self.left_out.pop(one, None)
                self.cut = one, self._scan.scanned_count - before
        matches += self.found
        self._keep(matches)
        self.found = matches

    def _keep(self, matches: list[ConsumerRecord]) -> None:
        """Keep the newest matching records, and store for each partition the newest offset that is
        not shown."""
        kept = nlargest(self._count, matches, key=attrgetter("timestamp_ms", "partition", "offset"))
        places = {(one.partition, one.offset) for one in kept}
        for one in matches:
            if (one.partition, one.offset) not in places:
                self.left_out[one.partition] = max(
                    self.left_out.get(one.partition, 0), one.offset + 1
                )
        matches[:] = kept


def _groups(partitions: list[int]) -> Iterable[list[int]]:
    """Yield groups of partitions whose records are read together."""
    size = RESPONSE_BYTES // PARTITION_BYTES_MIN
    return (partitions[at : at + size] for at in range(0, len(partitions), size))


async def _offsets(
    admin: Admin, topic: str, leaders: Mapping[int, NodeId | None], time_ms: int, level: str
) -> dict[int, int]:
    wanted = {TopicPartition(topic, one): leader for one, leader in leaders.items()}
    found = await known_offsets(admin, wanted, time_ms, isolation_level=level)
    return {at.partition: offset for at, offset in found.items()}
