"""The operations of clients and their results, checked against Kafka's guarantees as they happen.

The module does no I/O. Values are unique, so that every record read identifies its sender. A record
of a compacted log may be missing if a later record with the same key supersedes it. Invariants:

- NoAcknowledgedRecordLost, NoRecordTwice, NothingFromNowhere, AcknowledgedIsVisible, ProducerOrder;
- ConsistentRead: a record read at an offset never changes;
- RealTimeOrder: a record sent after an acknowledgement has a higher offset;
- CommittedOffsetsNeverGoBack, NothingCommittedUnread.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ottla.jepsen.checkers.compacted import record_key_of
from ottla.jepsen.history import NO_EXTRA, Event, Json
from ottla.jepsen.world.trace import Trace
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.whole.client_events import CHECKERS, ClientEvents, key_of
from ottla.model.ids import TopicPartition


@dataclass(slots=True)
class PartitionHistory:
    """Observations about one partition, collected from the results of the clients."""

    values: dict[int, bytes] = field(default_factory=dict)
    """Value of the record at each offset, as acknowledged to a producer or read by a consumer."""
    offsets: dict[bytes, int] = field(default_factory=dict)
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    sent: dict[bytes, int] = field(default_factory=dict)
    """Highest offset in the partition that was already acknowledged when each record value was
    sent."""
    acknowledged_offset_max: int = -1
    latest: dict[int, int] = field(default_factory=dict)
    """Highest offset of each record key that was acknowledged or read, in a compacted log."""


class ClientHistory:
    """All operations of clients in one simulated run, and their results."""

    def __init__(
        self,
        trace: Trace,
        clock_ns: Callable[[], int] = lambda: 0,
        *,
        record_key_count: int = 0,
        checkers: Sequence[str] = CHECKERS,
        facts: Mapping[str, Json] = NO_EXTRA,
    ) -> None:
        self.events = ClientEvents(
            clock_ns, record_key_count=record_key_count, checkers=checkers, facts=facts
        )
        """The clients' operations as events, for the checkers that need the whole history."""
        self.partitions: dict[TopicPartition, PartitionHistory] = {}
        self.read_count = 0
        self.acknowledged_count = 0
        self.sent_count = 0
        self.commit_count = 0
        self.broken: Violation | None = None
        """Violation of the first guarantee that was broken in the run, or None if no guarantee was
        broken."""
        self._trace = trace
        self._record_key_count = record_key_count
        """Number of record keys in each log. If it is above 0, the logs are compacted. 0 means that
        records have no key and no record may be removed."""
        self._begun: dict[tuple[TopicPartition, bytes], Event] = {}
        self._committed: dict[tuple[str, TopicPartition], int] = {}
        self._processed: dict[tuple[str, TopicPartition], set[int]] = {}

    def of(self, at: TopicPartition) -> PartitionHistory:
        """Return the `PartitionHistory` of a partition, which contains the observations of all
        clients."""
        found = self.partitions.get(at)
        if found is None:
            found = self.partitions[at] = PartitionHistory()
        return found

    # ---- records

    def on_send(self, at: TopicPartition, value: bytes) -> None:
        """Record that a client passed a record with `value` to a producer."""
        known = self.of(at)
        assert value not in known.sent, "values are unique"
        known.sent[value] = known.acknowledged_offset_max
        asked = [["send", key_of(at), value.decode()]]
        self._begun[at, value] = self.events.begins("send", asked)
        self.sent_count += 1

    def on_acknowledged(self, at: TopicPartition, value: bytes, offset: int) -> None:
        """Record that a producer received the acknowledgement of a record by all in-sync
        replicas."""
        known = self.of(at)
        self._trace.add("acknowledged", at.topic, at.partition, offset, value)
        self.acknowledged_count += 1
        if offset <= known.sent[value]:
            self.break_(
                "RealTimeOrder",
                f"{at}: {value!r} was sent after offset {known.sent[value]} was acknowledged, "
                f"and lies at {offset}",
            )
        steps = [["send", key_of(at), [offset, value.decode()]]]
        self.events.ends(self._begun.pop((at, value)), steps)
        self._learn(at, known, value, offset)
        known.acknowledged[value] = offset
        known.acknowledged_offset_max = max(known.acknowledged_offset_max, offset)

    def on_read(self, at: TopicPartition, value: bytes, offset: int) -> None:
        """Record that a consumer received the record at `offset` with `value`."""
        self.read_count += 1
        self._learn(at, self.of(at), value, offset)

    def on_end_offset(self, at: TopicPartition, end: int, *, floor: int) -> None:
        """Check a partition's end offset, which must be above `floor`: the highest offset
        acknowledged before the end offset was requested."""
        if end <= floor:
            self.break_(
                "AcknowledgedIsVisible", f"{at}: {floor} was acknowledged, it ends at {end}"
            )

    def on_final_read(self, at: TopicPartition, found: Mapping[int, bytes], *, end: int) -> None:
        """Check the records `found` (value by offset) in a partition at the end of the run. They
        should be all records below the offset `end`."""
        known = self.of(at)
        for offset, value in sorted(found.items()):
            self._learn(at, known, value, offset)
        for value, offset in known.acknowledged.items():
            if offset < end and offset not in found and not self._is_superseded(known, offset):
                self.break_(
                    "NoAcknowledgedRecordLost", f"{at}: {value!r} was acknowledged at {offset}"
                )
        for offset, value in known.values.items():
            if offset < end and offset not in found and not self._is_superseded(known, offset):
                self.break_("ConsistentRead", f"{at}: {value!r} was read at {offset} and is gone")
        last: dict[bytes, int] = {}
        for _, value in sorted(found.items()):
            producer, _, number = value.rpartition(b"/")
            if last.get(producer, -1) >= int(number):
                self.break_(
                    "ProducerOrder",
                    f"{at}: {value!r} lies behind number {last[producer]} of its producer",
                )
            last[producer] = int(number)

    def _learn(
        self, at: TopicPartition, known: PartitionHistory, value: bytes, offset: int
    ) -> None:
        before = known.values.get(offset)
        if before == value:
            return
        if before is not None:
            self.break_("ConsistentRead", f"{at}: offset {offset} held {before!r}, now {value!r}")
        elsewhere = known.offsets.get(value)
        if elsewhere is not None:
            self.break_("NoRecordTwice", f"{at}: {value!r} lies at {elsewhere} and at {offset}")
        if value not in known.sent:
            self.break_("NothingFromNowhere", f"{at}: {value!r} at {offset} was never sent there")
        known.values[offset] = value
        known.offsets[value] = offset
        if self._record_key_count:
            record_key = record_key_of(value.decode(), self._record_key_count)
            known.latest[record_key] = max(offset, known.latest.get(record_key, -1))

    def _is_superseded(self, known: PartitionHistory, offset: int) -> bool:
        """Return whether compaction may have removed the record at an offset because a later record
        has the same key. The later record must exist, or a third record must supersede it."""
        if not self._record_key_count:
            return False
        record_key = record_key_of(known.values[offset].decode(), self._record_key_count)
        return offset < known.latest[record_key]

    # ---- groups

    def on_processed(self, group: str, at: TopicPartition, offset: int) -> None:
        """Record that a member of `group` has processed the record at `offset`."""
        self._processed.setdefault((group, at), set()).add(offset)

    def committed_floor(self, group: str, at: TopicPartition) -> int:
        """Return the last committed offset of a group that was acknowledged. Clients call this
        before they request a committed offset."""
        return self._committed.get((group, at), 0)

    def on_committed(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Record that a commit of the group's offsets succeeded."""
        self.commit_count += 1
        for at, offset in offsets.items():
            self._trace.add("committed", group, at.topic, at.partition, offset)
            self._committed[group, at] = max(offset, self.committed_floor(group, at))

    def on_committed_read(self, group: str, at: TopicPartition, offset: int, *, floor: int) -> None:
        """Check a group's committed offset, which must be at least `floor`: the highest commit
        acknowledged before the offset was requested."""
        if offset < floor:
            self.break_(
                "CommittedOffsetsNeverGoBack",
                f"{group} at {at}: {floor} was committed, the response has {offset}",
            )

    def check_group(self, group: str, at: TopicPartition) -> None:
        """Check that a group's members have processed all records of a partition below the group's
        committed offset."""
        processed = self._processed.get((group, at), set())
        end = self.committed_floor(group, at)
        known = self.of(at)
        for offset in known.values:
            is_due = offset < end and not self._is_superseded(known, offset)
            if is_due and offset not in processed:
                self.break_(
                    "NothingCommittedUnread",
                    f"{group} at {at}: {end} is committed, {offset} unread",
                )

    def break_(self, invariant: str, detail: str) -> None:
        """Record that one of Kafka's guarantees is broken, unless an earlier violation is already
        recorded."""
        if self.broken is None:
            self.broken = Violation(invariant, detail)
