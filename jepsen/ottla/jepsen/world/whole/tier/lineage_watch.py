"""Checks of tiered logs during a run, with retention, unclean elections and deleted topics.

Invariants, for each partition and its present leader:

- ReadableInOneLineage: each record from the log start on is in the local log, or in the copied
  segment that a look-up by leader epoch and offset returns;
- StartMovesFirst: a leader does not delete a copied segment above its log start;
- RetentionIsKept: the log start passes no record that is younger than the retention time, and
  leaves at least the retention bytes; without retention it does not move;
- CopiesAreLabelled: a copied segment has the leader epochs of its records;
- CopiesAreWritten: the records of a copied segment are those that leaders have written;
- OnlyStableIsCopied: a leader copies no record above its last stable offset.

A deposed leader that does not know of its successor may delete segments. The successor then raises
its log start. It gets `PATIENCE_S` seconds for that.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

import trio

from ottla.broker.broker_driver import Broker
from ottla.broker.replicas.partition import Partition
from ottla.broker.tier.partition_tier_driver import snapshot_of
from ottla.jepsen.world.disk_waits import bytes_of, waited_for
from ottla.jepsen.world.object_store import SimulatedObjectStore
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.whole.cluster import SimulatedCluster
from ottla.jepsen.world.whole.tier.written_records import WrittenRecords
from ottla.model.errors import RefusedError
from ottla.model.ids import Epoch, NodeId, Offset, TopicIdPartition
from ottla.storage.log.log import Log
from ottla.storage.log.log_reader import LogRead
from ottla.storage.segments.epoch_cache import EpochEntry
from ottla.storage.tier.lineage import Lineage
from ottla.storage.tier.object_names import SegmentObject
from ottla.storage.tier.remote_metadata import RemoteMetadata
from ottla.storage.tier.remote_segment import RemoteSegment, RemoteSegmentState

LOOK_S = 0.1
PATIENCE_S = 10.0
"""Time limit in seconds within which a leader must raise its log start offset above records that a
former leader has deleted from the object store."""

READ_BYTES = 1 << 20
CLOCK_MS = 50
"""Largest difference in ms between the clocks of two nodes of a run."""

SIZE_SLACK_BYTES = 1_000
"""Maximum size in bytes of the uncommitted records that a leader may count in the size of its
log."""


@dataclass(slots=True)
class _Leadership:
    """State of a leader at the observer's last check."""

    node: NodeId
    epoch: int
    life: int
    start_offset: int
    ranges: list[tuple[int, int, int]]
    seen_end: int = 0
    hole_since: float | None = None
    """Time in seconds at which a check first found a record of the log unreadable. None if all
    records are readable."""


@dataclass(slots=True)
class LineageWatch:
    """Observer of the tiered logs of all brokers."""

    cluster: SimulatedCluster
    store: SimulatedObjectStore
    rare: RareStates
    report: Callable[[str, str], None]
    """Function that ends the run because of a broken invariant. Its arguments are the name of the
    invariant and the detail. An exception would end the run's nursery while tasks of killed
    machines cannot be cancelled."""
    records: WrittenRecords = field(default_factory=WrittenRecords)
    _leaders: dict[TopicIdPartition, _Leadership] = field(default_factory=dict)
    _checked: set[UUID] = field(default_factory=set)

    async def run(self) -> None:
        """Check the tiered logs repeatedly until cancelled, or until an invariant is broken."""
        try:
            while True:
                self.look()
                await trio.sleep(LOOK_S)
        except Violation as violation:
            self.report(violation.invariant, violation.detail)

    def look(self) -> None:
        """Check the tiered logs once. Raises Violation if an invariant is broken."""
        for node, broker in sorted(self.cluster.brokers.items()):
            for partition in broker.table:
                log = partition.log
                if log is None or not log.is_tiered or not partition.is_leader:
                    continue
                self._look_at(node, broker, partition, log)

    def holes(self) -> list[str]:
        """Return the partitions whose current leader's log has unreadable records."""
        return [
            f"{at}: of leader {known.node}"
            for at, known in self._leaders.items()
            if known.hole_since is not None
        ]

    def leader_of(self, topic: str, index: int) -> tuple[TopicIdPartition, Log] | None:
        """Return the id and the log of a partition on the broker that leads it, or None."""
        image = self.cluster.latest_image
        known = None if image is None else image.topic(topic)
        if known is None:
            return None
        broker = self.cluster.brokers.get(NodeId(known.partitions[index].leader))
        replica = None if broker is None else broker.table.by_id.get(known.id, {}).get(index)
        if replica is None or replica.log is None:
            return None
        return replica.key, replica.log

    def _look_at(self, node: NodeId, broker: Broker, partition: Partition, log: Log) -> None:
        known = self._leaders.get(partition.key)
        if known is not None and known.epoch > partition.leader_epoch:
            return  # a deposed leader
        lineage = snapshot_of(log).lineage
        ranges = [
            (int(entry.epoch), int(entry.start_offset), int(end)) for entry, end in lineage.ranges()
        ]
        life = self.cluster.broker_machines[node].start_count
        is_same = known is not None and (known.node, known.epoch, known.life) == (
            node,
            partition.leader_epoch,
            life,
        )
        if known is None or not is_same:
            known = _Leadership(
                node, int(partition.leader_epoch), life, int(log.log_start_offset), ranges
            )
            self._leaders[partition.key] = known
        self._learn(partition, log, known)
        if log.log_start_offset > known.start_offset:
            self._check_start(partition, log, known)
        known.start_offset = int(log.log_start_offset)
        known.ranges = ranges
        assert broker.tier is not None
        metadata = broker.tier.topic.metadata_of(partition.key)
        if metadata is not None:
            self._check_copies(partition, log, metadata)
            self._check_holes(partition, log, metadata, lineage, known)

    def _learn(self, partition: Partition, log: Log, known: _Leadership) -> None:
        offset = Offset(max(known.seen_end, int(log.local_start_offset)))
        while offset < log.end_offset:
            try:
                read = waited_for(lambda at=offset: _read(log, at))  # type: ignore[misc]
            except RefusedError:
                return
            if read.slice is None or read.end_offset <= offset:
                return
            self.records.learn(
                partition.key, bytes_of(read.slice), place=f"the leader of {partition}"
            )
            offset = Offset(min(read.end_offset, log.end_offset))
        known.seen_end = int(log.end_offset)

    def _check_start(self, partition: Partition, log: Log, known: _Leadership) -> None:
        start = int(log.log_start_offset)
        config = log.config
        passed = [
            (epoch, first, min(end, start)) for epoch, first, end in known.ranges if first < start
        ]
        self.rare.sometimes("the log start moves")
        if config.retention_ms < 0 and config.retention_bytes < 0:
            raise Violation("RetentionIsKept", f"{partition} starts at {start}, and keeps all")
        if config.retention_ms >= 0 and config.retention_bytes < 0:
            now_ms = self.cluster.broker_machines[known.node].clock.wall_ms()
            for offset, written in self.records.between(partition.key, passed):
                if written.timestamp_ms + config.retention_ms > now_ms + CLOCK_MS:
                    raise Violation(
                        "RetentionIsKept",
                        f"{partition} starts at {start}, and the record at {offset} is only"
                        f" {now_ms - written.timestamp_ms} ms old",
                    )
        if config.retention_bytes >= 0 and config.retention_ms < 0:
            kept = [
                (epoch, max(first, start), end) for epoch, first, end in known.ranges if end > start
            ]
            pairs = self.records.between(partition.key, kept)
            size_bytes = sum(written.size_bytes for _, written in pairs)
            if size_bytes + SIZE_SLACK_BYTES < config.retention_bytes:
                raise Violation(
                    "RetentionIsKept", f"{partition} starts at {start}: {size_bytes} bytes are left"
                )

    def _check_holes(
        self,
        partition: Partition,
        log: Log,
        metadata: RemoteMetadata,
        lineage: Lineage,
        known: _Leadership,
    ) -> None:
        hole = first_hole(log, metadata, lineage)
        if hole is None:
            known.hole_since = None
            return
        deletions = [
            segment
            for segment in metadata.all_segments()
            if segment.state is RemoteSegmentState.DELETE_STARTED
            and segment.broker_id == known.node
            and segment.start_offset <= hole <= segment.end_offset
            and lineage.shared_end_offset(segment, hole) > hole
        ]
        if deletions and known.hole_since is None:
            raise Violation(
                "StartMovesFirst",
                f"{partition} starts at {log.log_start_offset}, and {hole} is being deleted",
            )
        now = trio.current_time()
        if known.hole_since is None:
            known.hole_since = now
            self.rare.sometimes("a deposed leader has deleted records")
        if now - known.hole_since > PATIENCE_S:
            raise Violation(
                "ReadableInOneLineage",
                f"{partition} starts at {log.log_start_offset}, locally at"
                f" {log.local_start_offset}, and {hole} is in no segment",
            )

    def _check_copies(self, partition: Partition, log: Log, metadata: RemoteMetadata) -> None:
        for segment in list(metadata.all_segments()):
            is_own = (
                segment.broker_id == partition.local_id
                and segment.leader_epochs[-1].epoch == partition.leader_epoch
            )
            if is_own and segment.end_offset >= log.last_stable_offset:
                raise Violation(
                    "OnlyStableIsCopied",
                    f"{partition} copies up to {segment.end_offset}, and is stable up to"
                    f" {log.last_stable_offset}",
                )
            if segment.state is RemoteSegmentState.COPY_FINISHED:
                self._check_content(partition, segment)

    def _check_content(self, partition: Partition, segment: RemoteSegment) -> None:
        segment_id = segment.id.segment_id
        if segment_id in self._checked:
            return
        key = next(
            (
                each
                for each in self._keys_of(partition, segment)
                if each.endswith(SegmentObject.LOG.value)
            ),
            "",
        )
        data = self.store.peek(key)
        if data is None:
            return  # another broker deletes it; the end of the run shows whether it may
        self._checked.add(segment_id)
        found = self.records.learn(partition.key, data, place=f"a copy of {partition}")
        offsets = [offset for offset, _ in found]
        if offsets != list(range(segment.start_offset, segment.end_offset + 1)):
            raise Violation(
                "CopiesAreWritten",
                f"{partition}: the copy of {segment.start_offset} to {segment.end_offset} has"
                f" {offsets}",
            )
        labels = epochs_among(found)
        if labels != segment.leader_epochs:
            raise Violation(
                "CopiesAreLabelled",
                f"{partition}: the copy of {segment.start_offset} to {segment.end_offset} has the"
                f" epochs {labels}, not {segment.leader_epochs}",
            )

    def _keys_of(self, partition: Partition, segment: RemoteSegment) -> tuple[str, ...]:
        for broker in self.cluster.brokers.values():
            if broker.tier is not None:
                return broker.tier.keys_of(segment, partition.topic)
        return ()


def epochs_among(found: list[tuple[int, int]]) -> tuple[EpochEntry, ...]:
    """Return the leader epochs of records, each with its first offset. `found` has the offset and
    leader epoch of each record, in the order of offsets."""
    labels: list[EpochEntry] = []
    for offset, epoch in found:
        if not labels or labels[-1].epoch != epoch:
            labels.append(EpochEntry(Epoch(epoch), Offset(offset)))
    return tuple(labels)


def first_hole(log: Log, metadata: RemoteMetadata, lineage: Lineage) -> Offset | None:
    """Return the first offset at or above the log start that is in neither the local log nor a
    copied segment. Returns None if there is no such offset."""
    offset = log.log_start_offset
    while offset < log.local_start_offset:
        segment = metadata.find(lineage.epoch_of(offset), offset)
        if segment is None:
            return offset
        end = lineage.shared_end_offset(segment, offset)
        if end <= offset:
            return offset
        offset = end
    return None


def _read(log: Log, offset: Offset) -> LogRead:
    return log.read(offset, bytes_max=READ_BYTES, end_offset=log.end_offset, at_least_one=True)
