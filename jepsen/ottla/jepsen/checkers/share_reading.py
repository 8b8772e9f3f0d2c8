"""Index of a history of share groups, by record: the deliveries of each record, and their
acknowledgements.

The module is pure. A member is one open share consumer. An acknowledgement belongs to the last
delivery of the record to its member, because a consumer drops its records when its session ends.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla.jepsen.history import EventKind, History, Json, Operation

ACCEPT: Final = "accept"
RELEASE: Final = "release"
REJECT: Final = "reject"
RENEW: Final = "renew"
FINAL_TYPES = frozenset({ACCEPT, REJECT})
"""Types of acknowledgements after which a record is never delivered again."""
NS_PER_MS = 1_000_000


class RecordPlace(NamedTuple):
    """Identity of a record in a share group: group, key (partition) and offset."""

    group: str
    key: str
    offset: int


@dataclass(slots=True, eq=False)
class ShareAck:
    """A share group member's acknowledgement of one delivery of a record."""

    operation: Operation
    type: str
    is_confirmed: bool | None
    """True if the broker confirmed the acknowledgement, False if the acknowledgement certainly had
    no effect, None if its outcome is unknown."""

    @property
    def begun_ns(self) -> int:
        """Time in ns before which the broker cannot have processed the acknowledgement."""
        return self.operation.invoke.time_ns

    @property
    def done_ns(self) -> int:
        """Time in ns at which the member received the result of the acknowledgement."""
        return (self.operation.completion or self.operation.invoke).time_ns


@dataclass(slots=True, eq=False)
class DeliveryToMember:
    """Delivery of one record to one member of a share group."""

    operation: Operation
    place: RecordPlace
    member: str
    count: int
    """Delivery count that the member received with the record."""
    earliest_ns: int
    """Time in ns before which the broker cannot have acquired the record for this delivery."""
    early_ms: int | None = None
    """Time in ms from the receipt of the record (by the member's clock) to its due time. Negative
    if the due time had passed; None if the record has no delay."""
    acks: list[ShareAck] = field(default_factory=list)

    @property
    def seen_ns(self) -> int:
        """Time in ns at which the member received the record of this delivery. The broker acquired
        the record earlier."""
        return (self.operation.completion or self.operation.invoke).time_ns

    @property
    def confirmed(self) -> list[ShareAck]:
        """Acknowledgements of this delivery that the broker has confirmed, including renewals of
        the lock."""
        return [ack for ack in self.acks if ack.is_confirmed]

    @property
    def end(self) -> ShareAck | None:
        """Confirmed acknowledgement that ended the delivery, or None if no confirmed
        acknowledgement ended the delivery."""
        return next((ack for ack in self.acks if ack.is_confirmed and ack.type != RENEW), None)

    def settles(self, limit: int) -> bool:
        """Return whether this delivery certainly finished the record. A delivery finishes a record
        if a confirmed acknowledgement accepted or rejected it, or if `limit` allows no further
        delivery."""
        end = self.end
        return end is not None and (end.type in FINAL_TYPES or self.count >= limit)

    def settled_from_ns(self, limit: int) -> int | None:
        """Return the earliest time in ns at which this delivery may have finished the record, or
        None if it cannot have finished the record.

        The last delivery that `limit` allows finishes the record when its acquisition lock ends.
        """
        if self.count >= limit:
            return self.earliest_ns
        begun = [
            ack.begun_ns
            for ack in self.acks
            if ack.type in FINAL_TYPES and ack.is_confirmed is not False
        ]
        return min(begun, default=None)


class StartOffset(NamedTuple):
    """Start offset of a share group in one partition, as returned by a describe operation."""

    operation: Operation
    offset: int


@dataclass(slots=True)
class ShareReading:
    """Index of one history by record of a share group, with deliveries and acknowledgements."""

    deliveries: dict[RecordPlace, list[DeliveryToMember]] = field(default_factory=dict)
    """Deliveries of each record, in the order in which members received them."""
    values: dict[tuple[str, int], set[Json]] = field(default_factory=dict)
    """Record values that were acknowledged to a producer or delivered to a member, by (key,
    offset)."""
    promised: dict[str, set[int]] = field(default_factory=dict)
    """Offsets of records that were acknowledged to a producer, by key (partition)."""
    sent: dict[str, set[Json]] = field(default_factory=dict)
    """Values of records that may have been appended, by key (partition)."""
    starts: dict[tuple[str, str], list[StartOffset]] = field(default_factory=dict)
    """Start offsets that operations described, by (group, key)."""
    letters: dict[str, dict[str, set[int]]] = field(default_factory=dict)
    """Offsets of the records that became dead letters, by group and key (partition). A group is
    missing if its dead letters were not read."""
    _joined_ns: dict[str, int] = field(default_factory=dict)
    _newest: dict[tuple[str, RecordPlace], DeliveryToMember] = field(default_factory=dict)

    @staticmethod
    def of(history: History) -> "ShareReading":
        """Return the index of a history of share groups."""
        reading = ShareReading()
        # By completion: a member acknowledges records that an earlier operation has returned.
        operations = history.operations(
            "send", "join", "take", "acknowledge", "start-offsets", "letters"
        )
        for operation in sorted(operations, key=lambda one: one.index):
            reading._add(operation)
        return reading

    def _add(self, operation: Operation) -> None:
        value = operation.value
        if operation.invoke.f == "send":
            self._add_send(operation)
        elif not isinstance(value, Mapping):
            return
        elif operation.invoke.f == "join":
            if operation.kind is EventKind.OK:
                self._joined_ns[value["member"]] = operation.invoke.time_ns
        elif operation.invoke.f == "take":
            if operation.kind is EventKind.OK:
                self._add_deliveries(operation, value)
        elif operation.invoke.f == "acknowledge":
            self._add_acks(operation, value)
        elif operation.invoke.f == "letters":
            if operation.kind is EventKind.OK:
                found = {key: set(offsets) for key, offsets in value["keys"].items()}
                self.letters[value["group"]] = found
        elif operation.kind is EventKind.OK:
            for key, (offset, _) in value["keys"].items():
                if offset is not None:
                    starts = self.starts.setdefault((value["group"], key), [])
                    starts.append(StartOffset(operation, offset))

    def _add_send(self, operation: Operation) -> None:
        for _, key, value in operation.invoke.value:
            if operation.kind is not EventKind.FAIL:
                self.sent.setdefault(key, set()).add(value)
        if operation.kind is not EventKind.OK:
            return
        for _, key, (offset, value) in operation.value:
            if offset is not None:
                self.values.setdefault((key, offset), set()).add(value)
                self.promised.setdefault(key, set()).add(offset)

    def _add_deliveries(self, operation: Operation, value: Mapping[str, Json]) -> None:
        group, member = value["group"], value["member"]
        assert operation.completion is not None
        done_ns = operation.completion.time_ns
        for key, records in value["keys"].items():
            for offset, content, count, age_ms, *early in records:
                earliest_ns = self._joined_ns.get(member, 0)
                if age_ms is not None:
                    earliest_ns = max(earliest_ns, done_ns - age_ms * NS_PER_MS)
                place = RecordPlace(group, key, offset)
                delivery = DeliveryToMember(operation, place, member, count, earliest_ns, *early)
                self.deliveries.setdefault(place, []).append(delivery)
                self.values.setdefault((key, offset), set()).add(content)
                self._newest[member, place] = delivery

    def _add_acks(self, operation: Operation, value: Mapping[str, Json]) -> None:
        group, member = value["group"], value["member"]
        is_known = operation.completion is not None and operation.completion.value is not None
        for key, acks in value["keys"].items():
            for offset, kind, *outcome in acks:
                delivery = self._newest.get((member, RecordPlace(group, key, offset)))
                if delivery is None:
                    continue
                is_confirmed = outcome[0] if is_known and outcome else None
                if operation.kind is EventKind.FAIL and not outcome:
                    is_confirmed = False
                delivery.acks.append(ShareAck(operation, kind, is_confirmed))

    def all_deliveries(self) -> Iterator[DeliveryToMember]:
        """Yield every delivery of a record to a member in the history."""
        for deliveries in self.deliveries.values():
            yield from deliveries

    def partitions(self) -> list[tuple[str, str]]:
        """Return (share group, key) of each partition whose records a group received, or whose
        start offset was described."""
        delivered = {(place.group, place.key) for place in self.deliveries}
        return sorted(delivered | self.starts.keys())

    def known_offsets(self, group: str, key: str) -> list[int]:
        """Return, in ascending order, the offsets of a partition (`key`) at which a record
        certainly exists."""
        delivered = {
            place.offset for place in self.deliveries if (place.group, place.key) == (group, key)
        }
        return sorted(delivered | self.promised.get(key, set()))
