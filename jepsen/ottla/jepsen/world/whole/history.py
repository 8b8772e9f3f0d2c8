"""What clients did and saw, held to what Kafka promises while it happens.

Pure.  Values are unique, so that every record seen names who sent it.  Of a compacted log a record
may be gone that a later one of its key supersedes.  Invariants:
NoAcknowledgedRecordLost, NoRecordTwice, NothingFromNowhere, ConsistentRead (what was once seen at
an offset never changes), AcknowledgedIsVisible, RealTimeOrder (what was sent after an
acknowledgement lies behind it), ProducerOrder, CommittedOffsetsNeverGoBack, NothingCommittedUnread.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ottla.jepsen.checkers.compacted import record_key_of
from ottla.jepsen.history import Event
from ottla.jepsen.world.trace import Trace
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.whole.client_events import CHECKERS, ClientEvents, key_of
from ottla.model.ids import TopicPartition


@dataclass(slots=True)
class PartitionHistory:
    """What is known of one partition."""

    values: dict[int, bytes] = field(default_factory=dict)
    """By offset: what was acknowledged or read there."""
    offsets: dict[bytes, int] = field(default_factory=dict)
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    sent: dict[bytes, int] = field(default_factory=dict)
    """With the highest offset that was acknowledged before it was sent."""
    acknowledged_offset_max: int = -1
    latest: dict[int, int] = field(default_factory=dict)
    """By record key: the highest offset that was acknowledged or read; of a compacted log."""


class ClientHistory:
    """All that clients did and saw in one run."""

    def __init__(
        self,
        trace: Trace,
        clock_ns: Callable[[], int] = lambda: 0,
        *,
        record_key_count: int = 0,
        checkers: Sequence[str] = CHECKERS,
    ) -> None:
        self.events = ClientEvents(clock_ns, record_key_count=record_key_count, checkers=checkers)
        """The same, for the judges that want all of it at once."""
        self.partitions: dict[TopicPartition, PartitionHistory] = {}
        self.read_count = 0
        self.acknowledged_count = 0
        self.sent_count = 0
        self.commit_count = 0
        self.broken: Violation | None = None
        """The first promise that was not kept."""
        self._trace = trace
        self._record_key_count = record_key_count
        """Of each log, which is compacted then; 0: records have no key, and none may go."""
        self._begun: dict[tuple[TopicPartition, bytes], Event] = {}
        self._committed: dict[tuple[str, TopicPartition], int] = {}
        self._processed: dict[tuple[str, TopicPartition], set[int]] = {}

    def of(self, at: TopicPartition) -> PartitionHistory:
        """Return what is known of a partition."""
        found = self.partitions.get(at)
        if found is None:
            found = self.partitions[at] = PartitionHistory()
        return found

    # ---- records

    def on_send(self, at: TopicPartition, value: bytes) -> None:
        """Note that a record is handed to a producer."""
        known = self.of(at)
        assert value not in known.sent, "values are unique"
        known.sent[value] = known.acknowledged_offset_max
        asked = [["send", key_of(at), value.decode()]]
        self._begun[at, value] = self.events.begins("send", asked)
        self.sent_count += 1

    def on_acknowledged(self, at: TopicPartition, value: bytes, offset: int) -> None:
        """Note that a record was acknowledged by all in-sync replicas."""
        known = self.of(at)
        self._trace.add("acknowledged", at.topic, at.partition, offset, value)
        self.acknowledged_count += 1
        if offset <= known.sent[value]:
            self.break_(
                "RealTimeOrder",
                f"{at}: {value!r} was sent after offset {known.sent[value]} was acknowledged, "
                f"and lies at {offset}",
            )
        told = [["send", key_of(at), [offset, value.decode()]]]
        self.events.ends(self._begun.pop((at, value)), told)
        self._learn(at, known, value, offset)
        known.acknowledged[value] = offset
        known.acknowledged_offset_max = max(known.acknowledged_offset_max, offset)

    def on_read(self, at: TopicPartition, value: bytes, offset: int) -> None:
        """Note that a consumer was given a record."""
        self.read_count += 1
        self._learn(at, self.of(at), value, offset)

    def on_end_offset(self, at: TopicPartition, end: int, *, floor: int) -> None:
        """Take in where a partition ends, asked when `floor` was acknowledged already."""
        if end <= floor:
            self.break_(
                "AcknowledgedIsVisible", f"{at}: {floor} was acknowledged, it ends at {end}"
            )

    def on_final_read(self, at: TopicPartition, found: Mapping[int, bytes], *, end: int) -> None:
        """Take in all that a partition holds below an offset at the end."""
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
        """Return whether compaction may have taken what lay at an offset.

        A record that supersedes another is held to be there itself, unless one supersedes it.
        """
        if not self._record_key_count:
            return False
        record_key = record_key_of(known.values[offset].decode(), self._record_key_count)
        return offset < known.latest[record_key]

    # ---- groups

    def on_processed(self, group: str, at: TopicPartition, offset: int) -> None:
        """Note that a member of a group is done with a record."""
        self._processed.setdefault((group, at), set()).add(offset)

    def committed_floor(self, group: str, at: TopicPartition) -> int:
        """Return the offset whose commit was answered last; ask before a request begins."""
        return self._committed.get((group, at), 0)

    def on_committed(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Note that a commit was answered without an error."""
        self.commit_count += 1
        for at, offset in offsets.items():
            self._trace.add("committed", group, at.topic, at.partition, offset)
            self._committed[group, at] = max(offset, self.committed_floor(group, at))

    def on_committed_read(self, group: str, at: TopicPartition, offset: int, *, floor: int) -> None:
        """Take in what a group has committed, asked when `floor` was answered already."""
        if offset < floor:
            self.break_(
                "CommittedOffsetsNeverGoBack",
                f"{group} at {at}: {floor} was committed, {offset} is told",
            )

    def check_group(self, group: str, at: TopicPartition) -> None:
        """Hold a group to it that what lies below its committed offset was processed."""
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
        """Note a promise that was not kept."""
        if self.broken is None:
            self.broken = Violation(invariant, detail)
