"""Checker of share groups with Ottla's extensions to KIP-932: order by key, delays and priorities.

The module is pure. The reference model of one partition: a record is ready once its due time has
passed, the back-off after its last attempt is over, and all earlier records with its key are
settled. Ready records of three priorities take turns. Key, delay and priority of a record are
derived from its value (`order_of`), so they are also known for records that no member has received.

- delivered-early: a member received a record before its due time.
- back-off-cut: a record was delivered again before the shortest back-off after a confirmed release.
- key-order: a record was delivered while no acknowledgement can have settled an earlier record of
  its key. One record of a key is in flight at a time.
- priority-starved: very many later records of other priorities were delivered before a record of
  low priority.
"""

from bisect import bisect_left
from collections.abc import Iterator
from enum import StrEnum
from math import inf
from typing import Final, NamedTuple
from zlib import crc32

from ottla.jepsen.checkers.log_reading import indexes
from ottla.jepsen.checkers.share_reading import (
    NS_PER_MS,
    RELEASE,
    DeliveryToMember,
    RecordPlace,
    ShareReading,
)
from ottla.jepsen.checkers.shares import MOVED_CLOCKS, RecordTimes, settled_from_ns
from ottla.jepsen.checkers.verdict import Findings, RunFacts, Verdict
from ottla.jepsen.history import History, Json

DELAYS_MS: Final = (0, 0, 0, 700, 2_500, 9_000)
"""Delivery delays in ms of records without a key. Each element of the tuple is equally frequent."""
KEY_COUNT = 3
EARLY_MS_MAX = 100
"""Clock difference in ms between a member and a broker that the checks of due times tolerate."""
OVERTAKES_PER_TURN = 6
"""Number of records with a higher priority that a share group delivers for each record of low
priority."""
OVERTAKES_MAX = 60
"""Number of additional records that a share group may deliver before a record of low priority. They
account for the time in which a lost response keeps that record locked, and for the first turn of
each new leader."""


class RecordPriority(StrEnum):
    """Priorities of records in share groups: the values of the header `ottla.priority`."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class RecordOrder(NamedTuple):
    """Properties of a record (key, delay, priority) that decide when a share group delivers it."""

    key: str | None
    delay_ms: int
    priority: RecordPriority


def order_of(value: Json) -> RecordOrder:
    """Return the key, delay and priority of a record, which are derived from its value. Only
    records without a key are delayed, so that records with one key stay in the order of the log."""
    draw = crc32(str(value).encode())
    priority = tuple(RecordPriority)[draw % 3]
    draw //= 3
    if draw % 2:
        return RecordOrder(f"k{draw // 2 % KEY_COUNT}", 0, priority)
    return RecordOrder(None, DELAYS_MS[draw // 2 % len(DELAYS_MS)], priority)


def check_share_order(history: History, facts: RunFacts) -> Verdict:
    """Return the verdict on the order in which all share groups of a history delivered records."""
    findings = Findings("share-order")
    reading = ShareReading.of(history)
    for group, key in reading.partitions():
        partition = OrderedPartition(reading, group, key, facts)
        for name, count in partition.figures().items():
            findings.figures[name] = findings.figures.get(name, 0) + count
        partition.check_times(findings)
        partition.check_keys(findings)
        partition.check_priorities(findings)
    return findings.verdict(facts)


class OrderedPartition:
    """Deliveries of one partition's records to one share group, with the key, delay and priority of
    each record."""

    def __init__(self, reading: ShareReading, group: str, key: str, facts: RunFacts) -> None:
        self._facts = facts
        self._group = group
        self._key = key
        self._deliveries: dict[int, list[DeliveryToMember]] = {}
        self._orders: dict[int, RecordOrder] = {}
        for offset in reading.known_offsets(group, key):
            values = reading.values.get((key, offset), ())
            if len(values) == 1:
                (value,) = values
                self._orders[offset] = order_of(value)
                place = RecordPlace(group, key, offset)
                self._deliveries[offset] = reading.deliveries.get(place, [])

    def _all(self) -> Iterator[tuple[int, DeliveryToMember]]:
        for offset, deliveries in self._deliveries.items():
            for delivery in deliveries:
                yield offset, delivery

    def _report(
        self, findings: Findings, anomaly: str, delivery: DeliveryToMember, detail: str
    ) -> None:
        place = delivery.place
        findings.add(
            anomaly,
            f"{self._group}: {delivery.member} received offset {place.offset} of {self._key} "
            f"{detail}",
            indexes([delivery.operation, *(ack.operation for ack in delivery.confirmed)]),
            self._key,
        )

    def figures(self) -> dict[str, int]:
        """Return three numbers of deliveries, by name: of records with a key, of records with a
        delay, and of records with low priority."""
        orders = [self._orders[offset] for offset, _ in self._all()]
        return {
            "share_keyed": sum(one.key is not None for one in orders),
            "share_delayed": sum(one.delay_ms > 0 for one in orders),
            "share_low": sum(one.priority is RecordPriority.LOW for one in orders),
        }

    # ---- due times and back-off

    def check_times(self, findings: Findings) -> None:
        """Report deliveries of a record before its due time or before the end of its back-off."""
        if MOVED_CLOCKS in self._facts.nemeses:
            return
        for _, delivery in self._all():
            early_ms = delivery.early_ms
            if early_ms is not None and early_ms > EARLY_MS_MAX:
                self._report(
                    findings, "delivered-early", delivery, f"{early_ms} ms before it is due"
                )
        backoff_ns = self._facts.share_backoff_ms * NS_PER_MS
        for deliveries in self._deliveries.values():
            record = RecordTimes(deliveries, inf, self._facts)
            for delivery in deliveries:
                end = record.proven_end(delivery)
                if end is None or end.type != RELEASE:
                    continue
                for later in deliveries:
                    is_later = later.earliest_ns > end.done_ns
                    if is_later and later.seen_ns < end.begun_ns + backoff_ns:
                        wait_ms = (later.seen_ns - end.begun_ns) // NS_PER_MS
                        detail = f"again, {wait_ms} ms after its release"
                        self._report(findings, "back-off-cut", later, detail)

    # ---- keys

    def check_keys(self, findings: Findings) -> None:
        """Report deliveries of a record before an earlier record of the same key was finished."""
        limit = self._facts.delivery_count_limit
        blocked: dict[str, tuple[float, int]] = {}
        for offset in sorted(self._orders):
            key = self._orders[offset].key
            if key is None:
                continue
            since_ns, earlier = blocked.get(key, (-inf, -1))
            for delivery in self._deliveries[offset]:
                if delivery.seen_ns < since_ns:
                    detail = f"while offset {earlier} of its record key {key} was not settled"
                    self._report(findings, "key-order", delivery, detail)
            settled_ns = settled_from_ns(self._deliveries[offset], limit)
            if settled_ns > since_ns:
                blocked[key] = settled_ns, offset

    # ---- priorities

    def check_priorities(self, findings: Findings) -> None:
        """Report records of low priority that were delivered after too many later records of other
        priorities."""
        low = RecordPriority.LOW
        others = sorted(
            (delivery.seen_ns, offset)
            for offset, delivery in self._all()
            if self._orders[offset].priority is not low
        )
        lows = sorted(
            (delivery.earliest_ns, offset)
            for offset, delivery in self._all()
            if self._orders[offset].priority is low
        )
        for offset, order in self._orders.items():
            deliveries = self._deliveries[offset]
            if order != RecordOrder(None, 0, low):
                continue
            first = min(deliveries, key=lambda one: one.seen_ns, default=None)
            begun_ns, seen_ns = (inf, inf) if first is None else (first.earliest_ns, first.seen_ns)
            before = bisect_left(others, (begun_ns, -1))
            overtakes = sum(1 for _, other in others[:before] if other > offset)
            turns = 1 + sum(1 for low_ns, other in lows if low_ns < seen_ns and other < offset)
            if overtakes > OVERTAKES_PER_TURN * turns + OVERTAKES_MAX:
                detail = f"{overtakes} later records, in {turns} turns of low priority"
                if first is None:
                    detail = (
                        f"{self._group} never received offset {offset} of {self._key}: {detail}"
                    )
                    findings.add("priority-starved", detail, [], self._key)
                else:
                    self._report(findings, "priority-starved", first, f"after {detail}")
