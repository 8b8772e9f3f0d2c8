"""A partition with three replicas, an object store and the metadata topic, driven step by step.

All decisions are those of `ottla.storage.tier`. Every replica, deposed leaders included, folds the
metadata topic at its own pace. A record is one byte, so that sizes are exact.

Invariants, checked after each step:

- ReadableInOneLineage: every committed record from the leader's log start on is in its local log,
  or in the finished segment that a look-up by leader epoch and offset returns, with equal contents;
  reading on from there never returns a record of another lineage.
- OnlyExpiredIsGone: the leader's log start is not above the highest offset to which retention or a
  user moved the log start.
- RetentionIsKept: a leader expires no record that is younger than retention, or within its bytes.
- CopiedIsCommitted: every record of a finished segment was committed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from ottla.model.ids import Epoch, NodeId, Offset
from ottla.storage.segments.epoch_cache import EpochEntry
from ottla.storage.tier import copy_plan, expiry_plan, local_plan
from ottla.storage.tier.copy_plan import CopyLag, LocalSegment
from ottla.storage.tier.expiry_plan import ExpiryInput, MoveLogStart
from ottla.storage.tier.lineage import Lineage
from ottla.storage.tier.remote_metadata import RemoteMetadata
from ottla.storage.tier.remote_segment import (
    RemoteRecord,
    RemoteSegment,
    RemoteSegmentId,
    RemoteSegmentRemoval,
    RemoteSegmentState,
    RemoteSegmentUpdate,
)

TOPIC_ID = UUID(int=5)
REPLICAS = 3


class InvariantError(AssertionError):
    """A broken invariant, with its name."""


class StoredRecord(NamedTuple):
    epoch: int
    value: int
    time_ms: int


@dataclass
class Decisions:
    """The decisions under test. A planted bug replaces one of them."""

    copied_offset: Callable[..., Offset] = copy_plan.copied_offset
    plan_expiry: Callable[[ExpiryInput], list[expiry_plan.ExpiryStep]] = expiry_plan.plan_expiry
    epochs_of: Callable[..., tuple[EpochEntry, ...]] = copy_plan.epochs_of
    segments_to_copy: Callable[..., list[LocalSegment]] = copy_plan.segments_to_copy
    shared_end_offset: Callable[[Lineage, RemoteSegment, Offset], Offset] = (
        Lineage.shared_end_offset
    )
    local_deletion: Callable[..., local_plan.LocalDeletion] = local_plan.plan_local_deletion
    make_metadata: Callable[[], RemoteMetadata] = RemoteMetadata
    deletes_objects_first: bool = False


@dataclass
class Upload:
    segment: RemoteSegment
    records: tuple[StoredRecord, ...]
    is_stored: bool = False


@dataclass
class Replica:
    number: int
    metadata: RemoteMetadata
    history: list[StoredRecord] = field(default_factory=list)
    """All records of the replica's lineage from offset 0, deleted ones included."""
    log_start: int = 0
    local_start: int = 0
    watermark: int = 0
    bases: list[int] = field(default_factory=lambda: [0])
    position: int = 0
    """Records of the metadata topic that the replica has folded."""
    leads_epoch: int | None = None
    """Leader epoch in which the replica believes to lead, or None if it follows."""
    in_sync: set[int] = field(default_factory=set)
    upload: Upload | None = None

    @property
    def end(self) -> int:
        return len(self.history)

    @property
    def epochs(self) -> tuple[EpochEntry, ...]:
        found: list[EpochEntry] = []
        for offset in range(self.log_start, self.end):
            epoch = Epoch(self.history[offset].epoch)
            if not found or found[-1].epoch != epoch:
                found.append(EpochEntry(epoch, Offset(offset)))
        return tuple(found)

    @property
    def lineage(self) -> Lineage:
        return Lineage(
            self.epochs, start_offset=Offset(self.log_start), end_offset=Offset(self.end)
        )

    @property
    def segments(self) -> list[LocalSegment]:
        ends = [*self.bases[1:], self.end]
        return [
            LocalSegment(
                Offset(base),
                Offset(end),
                end - base,
                max((one.time_ms for one in self.history[base:end]), default=-1),
            )
            for base, end in zip(self.bases, ends, strict=True)
        ]

    def truncate(self, end: int) -> None:
        del self.history[end:]
        self.bases = [base for base in self.bases if base < end] or [end]
        self.local_start = min(self.local_start, end)
        self.watermark = min(self.watermark, end)
        self.log_start = min(self.log_start, end)


class TierWorld:
    """The partition, its store and its metadata topic."""

    def __init__(
        self,
        decisions: Decisions | None = None,
        *,
        retention_bytes: int = 12,
        retention_ms: int = 40,
    ) -> None:
        self.decisions = decisions or Decisions()
        self.retention_bytes = retention_bytes
        self.retention_ms = retention_ms
        self.now_ms = 0
        self.epoch = 0
        self.value = 0
        self.topic: list[RemoteRecord] = []
        self.objects: dict[RemoteSegmentId, tuple[StoredRecord, ...]] = {}
        self.replicas = [
            Replica(number, self.decisions.make_metadata()) for number in range(REPLICAS)
        ]
        self.leader = self.replicas[0]
        self.leader.leads_epoch = 0
        self.leader.in_sync = {0, 1, 2}
        self.moved_to = 0
        """Highest offset to which the log start was moved on purpose."""
        self.committed: set[tuple[int, StoredRecord]] = set()
        self.next_id = 0
        self.copies = 0
        self.seen: set[str] = set()
        """Situations that occurred, by name: a search that never meets them proves nothing."""

    def produce(self, at: Replica, count: int) -> None:
        """A leader, or a deposed one, appends records."""
        if at.leads_epoch is None:
            return
        for _ in range(count):
            self.value += 1
            self.now_ms += 1
            at.history.append(StoredRecord(at.leads_epoch, self.value, self.now_ms))
        self._commit(at)

    def roll(self, at: Replica) -> None:
        if at.end > at.bases[-1]:
            at.bases.append(at.end)

    def replicate(self, at: Replica, count: int) -> None:
        """A replica fetches from the leader; a deposed leader hears of its successor first."""
        leader = self.leader
        if at is leader:
            return
        at.leads_epoch, at.upload = None, None
        common = 0
        while (
            common < min(at.end, leader.end)
            and at.history[common].epoch == leader.history[common].epoch
        ):
            common += 1
        if common < at.end:
            self.seen.add("truncation")
            at.truncate(common)
        if at.end < leader.local_start:
            self.seen.add("bootstrap from the tier")
            at.history = leader.history[: leader.local_start]
            at.local_start = leader.local_start
            at.bases = [leader.local_start]
        at.history += leader.history[at.end : at.end + count]
        at.log_start = max(at.log_start, min(leader.log_start, at.end))
        if at.local_start < at.log_start and not at.segments[0].size_bytes:
            at.local_start, at.bases = at.log_start, [at.log_start]
        self._commit(leader)
        at.watermark = max(at.watermark, min(leader.watermark, at.end))
        if at.end >= leader.watermark:
            leader.in_sync.add(at.number)

    def shrink(self, at: Replica) -> None:
        if at is not self.leader:
            self.leader.in_sync.discard(at.number)
            self._commit(self.leader)

    def elect(self, at: Replica, *, is_unclean: bool) -> None:
        if at is self.leader or (at.number not in self.leader.in_sync and not is_unclean):
            return
        if at.number not in self.leader.in_sync:
            self.seen.add("unclean election")
        self.epoch += 1
        in_sync = self.leader.in_sync - {self.leader.number} | {at.number}
        at.in_sync = {at.number} if is_unclean else in_sync
        at.leads_epoch, at.upload = self.epoch, None
        self.leader = at
        self.fold(at, len(self.topic))
        self._commit(at)
        start = copy_plan.log_start_after_election(
            at.metadata,
            at.epochs,
            log_start_offset=Offset(at.log_start),
            local_log_start_offset=Offset(at.local_start),
            end_offset=Offset(at.end),
        )
        at.log_start = max(at.log_start, min(start, at.watermark))

    def fold(self, at: Replica, count: int) -> None:
        """A replica reads records of the metadata topic."""
        for record in self.topic[at.position : at.position + count]:
            if at.metadata.apply(record) is not None:
                self.seen.add("refused record")
        at.position = min(len(self.topic), at.position + count)

    def start_copy(self, at: Replica) -> None:
        if at.leads_epoch is None or at.upload is not None:
            return
        due = self._due(at)
        if not due:
            return
        local = due[0]
        self.next_id += 1
        segment = RemoteSegment(
            id=RemoteSegmentId(TOPIC_ID, 0, UUID(int=self.next_id)),
            start_offset=local.base_offset,
            end_offset=Offset(local.end_offset - 1),
            broker_id=NodeId(at.number),
            max_timestamp_ms=local.max_timestamp_ms,
            event_timestamp_ms=self.now_ms,
            size_bytes=local.size_bytes,
            leader_epochs=self.decisions.epochs_of(local, at.epochs),
        )
        if at is not self.leader:
            self.seen.add("copy of a deposed leader")
        at.upload = Upload(segment, tuple(at.history[local.base_offset : local.end_offset]))
        self._write(at, segment)

    def store(self, at: Replica, *, is_failure: bool) -> None:
        """The objects of a copy are written, or the write fails and is cleaned up at once."""
        upload = at.upload
        if upload is None or upload.is_stored:
            return
        if is_failure:
            at.upload = None
            self._delete(at, upload.segment, steps=3)
            return
        self.objects[upload.segment.id] = upload.records
        upload.is_stored = True

    def finish_copy(self, at: Replica, *, is_lost: bool) -> None:
        """The record that finishes a copy is written, or the broker restarts before that."""
        upload = at.upload
        if upload is None or (not upload.is_stored and not is_lost):
            return
        at.upload = None
        if is_lost:
            self.seen.add("lost finish")
            return
        self.copies += 1
        self._write(at, self._update(at, upload.segment, RemoteSegmentState.COPY_FINISHED))

    def expire(self, at: Replica, *, by_size: bool, steps_max: int) -> None:
        """A leader, or a deposed one, expires segments. It ends after some steps of the plan, in
        the middle of a deletion if the last one is a deletion."""
        if at.leads_epoch is None:
            return
        self._follow_deletions(at)
        log = self._expiry_input(at, by_size=by_size)
        steps = self.decisions.plan_expiry(log)
        if self.decisions.deletes_objects_first:
            steps.sort(key=lambda step: isinstance(step, MoveLogStart))
        for index, step in enumerate(steps[:steps_max]):
            if isinstance(step, MoveLogStart):
                self._check_retention(at, step.offset, by_size=by_size)
                at.log_start = step.offset
                self.moved_to = max(self.moved_to, step.offset)
                self.seen.add("expiry")
                continue
            oldest = at.epochs[0].epoch if at.epochs else -1
            if all(entry.epoch < oldest for entry in step.segment.leader_epochs):
                # Only an unclean election forgets epochs above the log start. A replica of the
                # former lineage that is elected unclean, too, loses these records.
                self.seen.add("forgotten epochs")
                self.moved_to = max(self.moved_to, step.segment.end_offset + 1)
            self._delete(at, step.segment, steps=3 if index + 1 < steps_max else 2)

    def delete_records(self, offset: int) -> None:
        leader = self.leader
        leader.log_start = max(leader.log_start, min(offset, leader.watermark))
        self.moved_to = max(self.moved_to, leader.log_start)

    def delete_local(self, at: Replica) -> None:
        copied = self._copied(at)
        plan = self.decisions.local_deletion(
            at.segments,
            copied_offset=copied,
            log_start_offset=Offset(at.log_start),
            high_watermark=Offset(at.watermark),
            retention_ms=0,
            retention_bytes=-1,
            is_copied=True,
            now_ms=self.now_ms + 1,
        )
        if plan.segment_count:
            self.seen.add("local deletion")
            del at.bases[: plan.segment_count]
            at.local_start = at.bases[0]

    def check(self) -> None:
        """Assert the invariants for the leader, once it has read the metadata topic."""
        leader = self.leader
        self.fold(leader, len(self.topic))
        self._follow_deletions(leader)
        if leader.log_start > self.moved_to:
            raise InvariantError(f"OnlyExpiredIsGone: {leader.log_start} is above {self.moved_to}")
        lineage = leader.lineage
        offset = leader.log_start
        while offset < leader.local_start:
            segment = leader.metadata.find(lineage.epoch_of(Offset(offset)), Offset(offset))
            if segment is None:
                raise InvariantError(f"ReadableInOneLineage: {offset} is in no segment")
            records = self.objects.get(segment.id)
            if records is None:
                raise InvariantError(f"ReadableInOneLineage: {offset} is in deleted objects")
            end = self.decisions.shared_end_offset(lineage, segment, Offset(offset))
            if end <= offset:
                raise InvariantError(f"ReadableInOneLineage: {offset} is of another lineage")
            for each in range(offset, end):
                if (
                    each >= leader.end
                    or records[each - segment.start_offset] != leader.history[each]
                ):
                    raise InvariantError(f"ReadableInOneLineage: {each} has another record")
            self.seen.add("remote read")
            offset = end
        for segment in leader.metadata.all_segments():
            if segment.state is not RemoteSegmentState.COPY_FINISHED:
                continue
            records = self.objects.get(segment.id)
            if records is None:
                raise InvariantError(f"ReadableInOneLineage: {segment.start_offset} has no objects")
            for each, record in enumerate(records, segment.start_offset):
                if (each, record) not in self.committed:
                    raise InvariantError(f"CopiedIsCommitted: {each} was never committed")

    def settle(self) -> None:
        """Without faults the leader copies everything that is due, and then nothing."""
        leader = self.leader
        for at in self.replicas:
            self.replicate(at, 1_000)
        self.check()
        leader.upload = None
        for _ in range(len(leader.bases)):
            self.fold(leader, len(self.topic))
            self.start_copy(leader)
            self.store(leader, is_failure=False)
            self.finish_copy(leader, is_lost=False)
        self.fold(leader, len(self.topic))
        if self._due(leader):
            raise InvariantError("CopyingSettles: a copied segment is due again")
        self.check()
        self.delete_local(leader)
        self.check()

    def _commit(self, at: Replica) -> None:
        """Advance the high watermark of a replica that believes to lead. A deposed leader cannot
        know of more than its followers that still follow it: none."""
        if at is self.leader:
            ends = [self.replicas[one].end for one in at.in_sync]
        else:
            ends = [at.end] if at.in_sync == {at.number} else [at.watermark]
        if at is self.leader:
            ends = [end for end in ends if end >= at.watermark] or [at.watermark]
        at.watermark = max(at.watermark, min(ends))
        self.committed |= {
            (offset, at.history[offset]) for offset in range(at.log_start, at.watermark)
        }

    def _copied(self, at: Replica) -> Offset:
        return self.decisions.copied_offset(
            at.metadata, at.lineage, local_log_start_offset=Offset(at.local_start)
        )

    def _due(self, at: Replica) -> list[LocalSegment]:
        return self.decisions.segments_to_copy(
            at.segments,
            at.epochs,
            copied_offset=self._copied(at),
            log_start_offset=Offset(at.log_start),
            last_stable_offset=Offset(at.watermark),
            lag=CopyLag(),
            now_ms=self.now_ms,
        )

    def _follow_deletions(self, at: Replica) -> None:
        start = copy_plan.first_readable_offset(
            at.metadata, at.lineage, local_log_start_offset=Offset(at.local_start)
        )
        if start > at.log_start:
            self.seen.add("deletion by another leader")
            at.log_start = start

    def _expiry_input(self, at: Replica, *, by_size: bool) -> ExpiryInput:
        return ExpiryInput(
            metadata=at.metadata,
            epochs=at.epochs,
            local_segments=at.segments,
            log_start_offset=Offset(at.log_start),
            high_watermark=Offset(at.watermark),
            end_offset=Offset(at.end),
            retention_ms=-1 if by_size else self.retention_ms,
            retention_bytes=self.retention_bytes if by_size else -1,
            now_ms=self.now_ms,
            being_copied=() if at.upload is None else (at.upload.segment.id,),
            abandoned_copy_ms=20,
        )

    def _check_retention(self, at: Replica, start: int, *, by_size: bool) -> None:
        if by_size:
            is_kept = at.end - start >= self.retention_bytes
        else:
            gone = at.history[at.log_start : start]
            is_kept = all(one.time_ms < self.now_ms - self.retention_ms for one in gone)
        if not is_kept:
            raise InvariantError(f"RetentionIsKept: the log start moved to {start}")

    def _update(
        self, at: Replica, segment: RemoteSegment, state: RemoteSegmentState
    ) -> RemoteSegmentUpdate:
        return RemoteSegmentUpdate(segment.id, self.now_ms, None, state, NodeId(at.number))

    def _write(self, at: Replica, record: RemoteRecord) -> None:
        """Write a record, and wait until the writer itself has read it, as Kafka does."""
        self.topic.append(record)
        self.fold(at, len(self.topic))

    def _delete(self, at: Replica, segment: RemoteSegment, *, steps: int) -> None:
        known = at.metadata.get(segment.id)
        if known is None:
            return
        if known.state is not RemoteSegmentState.DELETE_STARTED:
            self._write(at, self._update(at, segment, RemoteSegmentState.DELETE_STARTED))
        self.objects.pop(segment.id, None)
        if steps > 2:
            self._write(at, RemoteSegmentRemoval(segment.id))


ACTIONS: tuple[Callable[[TierWorld, Replica, int], None], ...] = (
    lambda world, at, size: world.produce(world.leader, size),
    lambda world, at, size: world.produce(at, size),
    lambda world, at, size: world.roll(at),
    lambda world, at, size: world.roll(world.leader),
    lambda world, at, size: world.replicate(at, size),
    lambda world, at, size: world.replicate(at, 100),
    lambda world, at, size: world.shrink(at),
    lambda world, at, size: world.elect(at, is_unclean=False),
    lambda world, at, size: world.elect(at, is_unclean=size > 3),
    lambda world, at, size: world.fold(at, size),
    lambda world, at, size: world.start_copy(world.leader),
    lambda world, at, size: world.start_copy(at),
    lambda world, at, size: world.store(at, is_failure=size > 4),
    lambda world, at, size: world.store(world.leader, is_failure=False),
    lambda world, at, size: world.finish_copy(at, is_lost=size > 4),
    lambda world, at, size: world.finish_copy(world.leader, is_lost=False),
    lambda world, at, size: world.expire(at, by_size=size % 2 == 0, steps_max=size),
    lambda world, at, size: world.expire(world.leader, by_size=size % 2 == 0, steps_max=9),
    lambda world, at, size: world.delete_records(world.leader.log_start + size),
    lambda world, at, size: world.delete_local(at),
    lambda world, at, size: world.delete_local(world.leader),
)
"""Steps of a walk: each acts on a replica or on the leader, with a size from 1 to 6."""

Step = tuple[int, int, int]


def run_walk(steps: list[Step], decisions: Decisions | None = None) -> TierWorld:
    """Run steps (action, replica, size) and check the invariants after each, and at the end."""
    world = TierWorld(decisions)
    for action, number, size in steps:
        ACTIONS[action](world, world.replicas[number], size)
        world.check()
    world.settle()
    return world
