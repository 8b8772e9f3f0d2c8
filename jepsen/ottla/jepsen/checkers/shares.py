"""Checker of share groups, which are queues (KIP-932): each record is finished once, and none is
lost.

The module is pure. Reference model of one record in one group: it is available, or acquired by one
member. An acquisition raises the record's delivery count. An acquisition ends with an
acknowledgement. It may also end by an event that the history does not contain: the end of its lock
or of the member's session, or a failover of the partition's leader. A failover also loses delivery
counts that no confirmed release has made durable. A record is settled (finished) by acceptance, by
rejection, and by the end of its last delivery. An acknowledgement of a record below the start
offset has no effect, but is confirmed, as in Kafka. Deliveries are anomalous only if no order of
these events, within the times at which they may have happened, agrees with the model.

- delivered-after-settled: a record was acquired after its final acknowledgement was confirmed.
- two-owners: a record was acquired while another delivery of it was locked. That delivery was
  acknowledged later, and the acknowledgement confirmed.
- count-went-back: a delivery count is not above that of an earlier delivery, whose release was
  confirmed.
- count-above-limit: a record was delivered more often than the group's limit.
- acknowledged-after-lock: an acknowledgement was confirmed although the lock had ended before.
- start-passed-unsettled: the start offset is above a record that no acknowledgement, and no last
  delivery, can have settled.
- lost-record: the same, and no member has ever received the record.
- start-went-back: the start offset is below a start offset that was described before.
- dead-letter-lost: a rejected record did not become a dead letter (KIP-1191).
- dead-letter-of-accepted: an accepted record became a dead letter.
- inconsistent-value, invented-record, duplicate-record: members received other records than those
  that were sent.

The delivery limit must be so high that faults cannot use up all deliveries of a record unnoticed.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate, combinations
from math import inf

from ottla.jepsen.checkers.log_reading import indexes
from ottla.jepsen.checkers.share_reading import (
    ACCEPT,
    NS_PER_MS,
    REJECT,
    RENEW,
    DeliveryToMember,
    RecordPlace,
    ShareAck,
    ShareReading,
    StartOffset,
)
from ottla.jepsen.checkers.verdict import Findings, RunFacts, Verdict
from ottla.jepsen.history import History

SLACK_NS = 2_000 * NS_PER_MS
"""Clock difference in ns between a client and a broker that the checks of acquisition locks
tolerate."""
MOVED_CLOCKS = "clock"
"""Name of the nemesis (fault) that moves clocks. Clocks may then disagree by any amount, so the
expiry of acquisition locks cannot be checked."""


def check_shares(history: History, facts: RunFacts) -> Verdict:
    """Return the verdict on all records that share groups of a history received."""
    findings = Findings("shares")
    reading = ShareReading.of(history)
    _check_values(reading, facts, findings)
    for group, key in reading.partitions():
        partition = PartitionTimes(reading, group, key, facts)
        for offset in partition.offsets:
            deliveries = reading.deliveries.get(RecordPlace(group, key, offset), ())
            record = RecordTimes(deliveries, partition.passed_ns(offset), facts)
            _check_record(record, findings)
            if group in reading.letters:
                is_letter = offset in reading.letters[group].get(key, ())
                _check_letter(record, findings, is_letter=is_letter)
        starts = reading.starts.get((group, key), ())
        _check_starts(partition, starts, findings)
    _add_figures(reading, facts, findings)
    return findings.verdict(facts)


class PartitionTimes:
    """Earliest times at which one share group may have finished the records of one partition."""

    def __init__(self, reading: ShareReading, group: str, key: str, facts: RunFacts) -> None:
        self.group = group
        self.key = key
        self.offsets = reading.known_offsets(group, key)
        """Offsets of the partition at which a record certainly exists, in ascending order."""
        self.deliveries = reading.deliveries
        limit = facts.delivery_count_limit
        self.settled_ns = [
            settled_from_ns(self.deliveries.get(RecordPlace(group, key, offset), ()), limit)
            for offset in self.offsets
        ]
        """For each offset in `offsets`, the time in ns before which the group had not finished the
        record there. Infinity if the record cannot have been finished."""
        self.latest_ns = list(accumulate(self.settled_ns, max))
        """For each offset in `offsets`, the time in ns before which the record there or an earlier
        one was not finished."""

    def passed_ns(self, offset: int) -> float:
        """Return the time in ns before which the group's start offset was certainly below `offset`.
        Until then, a record below `offset` was not finished."""
        count = bisect_left(self.offsets, offset)
        return self.latest_ns[count - 1] if count else -inf


def settled_from_ns(deliveries: Iterable[DeliveryToMember], limit: int) -> float:
    """Return the earliest time in ns at which one of the deliveries may have finished the record.
    Returns infinity if no delivery can have finished it."""
    found = [delivery.settled_from_ns(limit) for delivery in deliveries]
    return min((since for since in found if since is not None), default=inf)


class RecordTimes:
    """The deliveries of one record to a share group, with times that follow from their
    acknowledgements."""

    def __init__(
        self, deliveries: Sequence[DeliveryToMember], passed_ns: float, facts: RunFacts
    ) -> None:
        """Create the index of one record. `passed_ns` is the time in ns before which the group's
        start offset was at or below the record."""
        self.deliveries = deliveries
        self.facts = facts
        self.limit = facts.delivery_count_limit
        self._passed_ns = passed_ns

    def is_proof(self, delivery: DeliveryToMember, ack: ShareAck) -> bool:
        """Return whether a confirmed acknowledgement of a delivery proves that its member had
        acquired the record.

        The acknowledgement is no proof if another delivery may have finished the record earlier,
        and the start offset may have passed the record.
        """
        others = [one for one in self.deliveries if one is not delivery]
        passed_ns = max(self._passed_ns, settled_from_ns(others, self.limit))
        return bool(ack.is_confirmed) and passed_ns > ack.done_ns

    def held_until_ns(self, delivery: DeliveryToMember) -> int:
        """Return a time in ns before which the acquisition lock of a delivery certainly had not
        ended."""
        proofs = [ack.begun_ns for ack in delivery.acks if self.is_proof(delivery, ack)]
        return max(proofs, default=delivery.earliest_ns)

    def proven_end(self, delivery: DeliveryToMember) -> ShareAck | None:
        """Return the confirmed acknowledgement that certainly ended a delivery, or None if no
        acknowledgement certainly ended the delivery."""
        end = delivery.end
        return end if end is not None and self.is_proof(delivery, end) else None


# ---- the records


def _check_values(reading: ShareReading, facts: RunFacts, findings: Findings) -> None:
    offsets: dict[tuple[str, object], int] = {}
    for (key, offset), values in reading.values.items():
        if len(values) > 1:
            detail = f"{key} has {sorted(values, key=str)} at offset {offset}"
            findings.add("inconsistent-value", detail, key=key)
        for value in values:
            if value not in reading.sent.get(key, ()):
                detail = f"{key} has {value} at offset {offset}, which was not sent"
                findings.add("invented-record", detail, key=key)
            first = offsets.setdefault((key, value), offset)
            if first != offset and facts.idempotent:
                detail = f"{key} has {value} at offsets {first} and {offset}"
                findings.add("duplicate-record", detail, key=key)


# ---- deliveries


def _check_record(record: RecordTimes, findings: Findings) -> None:
    """Report the anomalies of one record's deliveries to a share group."""
    for delivery in record.deliveries:
        _check_count(delivery, record.limit, findings)
        if MOVED_CLOCKS not in record.facts.nemeses:
            _check_locks(record, delivery, findings)
    settled = [one for one in record.deliveries if one.settles(record.limit)]
    for one, other in combinations(record.deliveries, 2):
        for first, second in ((one, other), (other, one)):
            end = first.end
            if first in settled and end is not None and second.earliest_ns > end.done_ns:
                detail = "it was settled before"
                _report("delivered-after-settled", detail, first, second, findings)
                break
        else:
            _check_pair(record, one, other, findings)


def _check_count(delivery: DeliveryToMember, limit: int, findings: Findings) -> None:
    if delivery.count > limit:
        place = delivery.place
        findings.add(
            "count-above-limit",
            f"{place.group}: {_words(delivery)}, the limit is {limit}",
            indexes([delivery.operation]),
            place.key,
        )


def _check_locks(record: RecordTimes, delivery: DeliveryToMember, findings: Findings) -> None:
    place = delivery.place
    lock_ns = record.facts.lock_ms * NS_PER_MS
    lock_end_ns: float = delivery.seen_ns + lock_ns
    for ack in delivery.acks:
        is_late = ack.begun_ns > lock_end_ns + SLACK_NS
        if is_late and record.is_proof(delivery, ack):
            findings.add(
                "acknowledged-after-lock",
                f"{place.group}: {_words(delivery)}, and its {ack.type} was confirmed "
                f"{(ack.begun_ns - lock_end_ns) / 1e9:.1f} s after the end of the lock",
                indexes([delivery.operation, ack.operation]),
                place.key,
            )
        if ack.type == RENEW and ack.is_confirmed is not False:
            # A renewal with an unknown outcome may take effect at any time.
            lock_end_ns = ack.done_ns + lock_ns if ack.is_confirmed else inf


def _check_letter(record: RecordTimes, findings: Findings, *, is_letter: bool) -> None:
    """Report a record whose proven end contradicts the dead letters of its group. `is_letter` is
    True if the record was among the dead letters, which were read at the end of the run."""
    for delivery in record.deliveries:
        end = record.proven_end(delivery)
        kind = None if end is None else end.type
        if kind == REJECT and not is_letter:
            anomaly, detail = "dead-letter-lost", "rejected it, and there is no dead letter"
        elif kind == ACCEPT and is_letter:
            anomaly, detail = "dead-letter-of-accepted", "accepted it, and there is a dead letter"
        else:
            continue
        place = delivery.place
        findings.add(
            anomaly,
            f"{place.group}: {_words(delivery)}, {detail}",
            indexes([delivery.operation, *(ack.operation for ack in delivery.confirmed)]),
            place.key,
        )


def _check_pair(
    record: RecordTimes, one: DeliveryToMember, other: DeliveryToMember, findings: Findings
) -> None:
    """Report two deliveries of a record whose times overlap, so that neither ended before the other
    began."""
    orders = [
        (first, second)
        for first, second in ((one, other), (other, one))
        if record.held_until_ns(first) <= second.seen_ns
    ]
    if not orders:
        _report("two-owners", "the locks overlap", one, other, findings)
        return
    left = [
        (first, second)
        for first, second in orders
        if record.proven_end(first) is None or not first.settles(record.limit)
    ]
    if not left:
        detail = "it was settled by then"
        _report("delivered-after-settled", detail, *orders[0], findings)
        return
    if all(
        record.proven_end(first) is not None and second.count <= first.count
        for first, second in left
    ):
        _report("count-went-back", "its release was confirmed", *left[0], findings)


def _report(
    anomaly: str, detail: str, first: DeliveryToMember, second: DeliveryToMember, findings: Findings
) -> None:
    acks = [ack.operation for one in (first, second) for ack in one.confirmed]
    place = first.place
    findings.add(
        anomaly,
        f"{place.group}: {_words(first)}, and {second.member} for the {_nth(second.count)} time: "
        f"{detail}",
        indexes([first.operation, second.operation, *acks]),
        place.key,
    )


def _words(delivery: DeliveryToMember) -> str:
    place = delivery.place
    return (
        f"{delivery.member} received offset {place.offset} of {place.key} for the "
        f"{_nth(delivery.count)} time"
    )


def _nth(count: int) -> str:
    return {1: "1st", 2: "2nd", 3: "3rd"}.get(count, f"{count}th")


# ---- start offsets


def _check_starts(
    partition: PartitionTimes, starts: Sequence[StartOffset], findings: Findings
) -> None:
    offsets = partition.offsets
    reported: set[int] = set()
    for start in starts:
        assert start.operation.completion is not None
        seen_ns = start.operation.completion.time_ns
        count = bisect_left(offsets, start.offset)
        if not count or partition.latest_ns[count - 1] <= seen_ns:
            continue
        for offset, since_ns in zip(offsets[:count], partition.settled_ns, strict=False):
            if since_ns > seen_ns and offset not in reported:
                reported.add(offset)
                _report_passed(partition, offset, start, findings)
    newest: StartOffset | None = None
    for start in sorted(starts, key=lambda one: one.operation.index):
        if newest is not None and start.offset < newest.offset:
            if newest.operation.index < start.operation.invoke.index:
                findings.add(
                    "start-went-back",
                    f"{partition.group}: the start offset of {partition.key} went from "
                    f"{newest.offset} to {start.offset}",
                    indexes([newest.operation, start.operation]),
                    partition.key,
                )
        else:
            newest = start


def _report_passed(
    partition: PartitionTimes, offset: int, start: StartOffset, findings: Findings
) -> None:
    group, key = partition.group, partition.key
    deliveries = partition.deliveries.get(RecordPlace(group, key, offset), [])
    anomaly = "start-passed-unsettled" if deliveries else "lost-record"
    findings.add(
        anomaly,
        f"{group}: the start offset of {key} is {start.offset}, offset {offset} is not settled "
        f"after {len(deliveries)} deliveries",
        indexes([*(each.operation for each in deliveries), start.operation]),
        key,
    )


# ---- figures


def _add_figures(reading: ShareReading, facts: RunFacts, findings: Findings) -> None:
    every = list(reading.all_deliveries())
    acks = [ack for delivery in every for ack in delivery.acks]
    findings.figures |= {
        "share_members": len({delivery.member for delivery in every}),
        "share_deliveries": len(every),
        "share_records": len(reading.deliveries),
        "share_redeliveries": len(every) - len(reading.deliveries),
        "share_settled": sum(
            any(one.settles(facts.delivery_count_limit) for one in deliveries)
            for deliveries in reading.deliveries.values()
        ),
        "share_acks_refused": sum(ack.is_confirmed is False for ack in acks),
        "share_acks_unknown": sum(ack.is_confirmed is None for ack in acks),
        "share_delivery_count_max": max((delivery.count for delivery in every), default=0),
    }
