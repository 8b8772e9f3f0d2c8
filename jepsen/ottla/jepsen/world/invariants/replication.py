"""Invariants of replicated partitions, with the names of KIP-966's model and some of Ottla's own.

Of the controller's state:

- NoFencedBrokerInIsr, IsrAndElrAreDisjointReplicas, EligibleReplicaLeads, RecoveringLeaderIsAlone,
  EpochsOnlyRise, ReassignmentEndsInSync;
- ElrOnlyBelowMinIsr: a partition with a full ISR has no eligible leader replicas;
- ElrKeptBelowMinIsr: a replica that had all records stays eligible.

Of logs:

- LogMatching: within an epoch, an offset is written once, and every replica has the same record
  before it;
- LeaderCompleteness: an elected leader has all committed records;
- LeaderCandidateCompleteness: every replica that could be elected has all committed records;
- NoCommittedRecordLostGlobally;
- CommittedIsFlushed: if flushing is required, committed records are flushed on every replica that
  could lead;
- DeletedIsCommitted: a log starts at a committed record, and its broker knows that it is committed.

Of leaders:

- OneLeaderPerEpoch, WatermarkNeverRecedes, NothingCommittedBelowMinIsr, ConsistentCommittedData;
- ReplicationQuorumSuperset: a leader that may commit waits for the controller's ISR and ELR.

Of the results that clients receive:

- ConsistentRead: all reads of an offset return the same record;
- AcknowledgedIsCommitted, NoDuplicates and SequencesInOrder (idempotent producers, over failovers).

Of brokers: MetadataLogMatching: each broker's metadata is a state that the controller once had.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from ottla.broker.replicas.partition import Partition
from ottla.jepsen.world.violation import Violation
from ottla.metadata.image import MetadataImage, PartitionState, RecoveryState
from ottla.model.ids import NO_NODE, NodeId, Offset


class JudgedRecord(NamedTuple):
    """One record in a replica's log, with the fields that the invariants compare."""

    epoch: int
    number: int
    """Number that identifies the record. It is unique among all records that the clients of a run
    send."""


class JudgedLog(Protocol):
    """View of a replica's log for the invariants. It can also be read while the broker is down."""

    @property
    def records(self) -> list[JudgedRecord]:
        """All records in the replica's log, by offset. Records below the log start offset are left
        out."""
        ...

    @property
    def log_start_offset(self) -> Offset:
        """First offset of the log that the replica serves."""
        ...

    @property
    def cut_count(self) -> int:
        """Number of times that the replica's log was truncated."""
        ...

    @property
    def recovery_point(self) -> Offset:
        """Offset up to which the replica's log survives a power cut."""
        ...

    @property
    def high_watermark(self) -> Offset:
        """High watermark of the partition as the replica's broker knows it."""
        ...


def require(is_sound: bool, invariant: str, *details: object) -> None:
    """Raise a Violation of the named invariant if the condition `is_sound` is false. The details
    are formatted only in that case."""
    if not is_sound:
        raise Violation(invariant, " ".join(map(str, details)))


class _Progress:
    """Offset up to which the invariants of one replica's log have been checked."""

    __slots__ = ("cut_count", "end")

    def __init__(self) -> None:
        self.end = 0
        self.cut_count = 0


class ReplicationJudge:
    """Model of some partitions of one topic. It contains all observations that the checks of the
    replication invariants need."""

    def __init__(
        self,
        partition_count: int,
        *,
        min_isr: Callable[[MetadataImage], int],
        is_flush_demanded: bool,
        sent: Mapping[int, tuple[int, int]],
    ) -> None:
        """Create the model of a topic's partitions. `min_isr` returns the min.insync.replicas of a
        metadata image. If `is_flush_demanded` is True, committed records must be flushed.

        `sent` maps each record number to its producer id and sequence number, or to (-1, -1).
        """
        self.committed: list[list[JudgedRecord]] = [[] for _ in range(partition_count)]
        self.leaders: dict[tuple[int, int], NodeId] = {}
        """Node id of the leader that the controller elected, by (partition index, leader epoch)."""
        self._min_isr = min_isr
        self._is_flush_demanded = is_flush_demanded
        self._sent = sent
        self._written: dict[tuple[int, int, int], tuple[JudgedRecord, JudgedRecord | None]] = {}
        self._seen: dict[tuple[NodeId, int], _Progress] = {}
        self._watermarks: dict[tuple[NodeId, int], tuple[int, int]] = {}
        """Last checked leader epoch and high watermark of each leader, by (leader, partition
        index)."""
        self._sequences: dict[tuple[int, int], int] = {}
        self._numbers: set[int] = set()

    # --- the controller -----------------------------------------------------------------------

    def check_state(
        self,
        index: int,
        before: PartitionState,
        state: PartitionState,
        images: tuple[MetadataImage, MetadataImage],
        unclean: NodeId | None,
    ) -> None:
        """Check a partition's state after a decision of the controller, which changed the first
        metadata image in `images` into the second.

        `unclean` is the broker that has just restarted after a crash, or None.
        """
        isr, elr = set(state.isr), set(state.elr)
        require(
            isr.isdisjoint(elr) and (isr | elr) <= set(state.replicas),
            "IsrAndElrAreDisjointReplicas",
            state,
        )
        enough = min(self._min_isr(images[1]), len(state.replicas))
        require(not elr or len(isr) < enough, "ElrOnlyBelowMinIsr", state)
        # A change of min.insync.replicas clears the ELR, even if the value stays the same.
        is_forgetting = images[0].configs is not images[1].configs and bool(isr)
        is_recovered = state.recovery_state is RecoveryState.RECOVERED
        if len(isr) < enough and is_recovered and not is_forgetting:
            kept = {*before.isr, *before.elr}.intersection(state.replicas) - {unclean}
            require(kept <= isr | elr, "ElrKeptBelowMinIsr", before, "->", state)
        if not (state.adding or state.removing):
            came = set(before.adding).difference(before.removing).intersection(state.replicas)
            require(came <= isr, "ReassignmentEndsInSync", before, "->", state)
        require(
            state.recovery_state is RecoveryState.RECOVERED or len(isr) <= 1,
            "RecoveringLeaderIsAlone",
            state,
        )
        require(
            state.leader_epoch >= before.leader_epoch
            and state.partition_epoch >= before.partition_epoch,
            "EpochsOnlyRise",
            before,
            "->",
            state,
        )
        if state.leader != NO_NODE:
            leader = self.leaders.setdefault((index, state.leader_epoch), state.leader)
            require(
                leader == state.leader,
                "OneLeaderPerEpoch",
                f"{leader} and {state.leader} lead {index} in {state.leader_epoch}",
            )

    def check_led(self, state: PartitionState, image: MetadataImage) -> None:
        """Check the leader in a partition's state after all records of a controller decision have
        been applied."""
        fenced = [one for one in state.isr if not image.is_active(one)]
        require(not fenced, "NoFencedBrokerInIsr", fenced, "in", state)
        if state.leader == NO_NODE:
            able = [one for one in (*state.isr, *state.elr) if image.is_active(one)]
            require(not able, "EligibleReplicaLeads", able, "could lead", state)

    def check_candidates(
        self, index: int, state: PartitionState, holders: Mapping[NodeId, JudgedLog | None]
    ) -> None:
        """Check that a partition's leader and its eligible leader replicas have all committed
        records. `holders` are the logs on machines that have lost no data, by broker."""
        committed = self.committed[index]
        if not committed:
            return
        last = committed[-1]
        at = len(committed) - 1
        members = {*state.isr, *state.elr}
        for member in members:
            if member not in holders:
                continue
            held = holders[member]
            if held is not None and held.log_start_offset > at:
                continue
            found = None if held is None or len(held.records) <= at else held.records[at]
            if found != last:
                name = (
                    "LeaderCompleteness"
                    if member == state.leader
                    else "LeaderCandidateCompleteness"
                )
                raise Violation(name, f"{member} has {found} at {at} of {index}, not {last}")

    def check_kept(self, index: int, machine_logs: Iterable[JudgedLog | None]) -> None:
        """Check that at least one replica of a partition still has all committed records."""
        committed = self.committed[index]
        if committed:
            at = len(committed) - 1
            is_kept = any(
                held is not None
                and len(held.records) >= held.log_start_offset
                and (held.log_start_offset > at or held.records[at : at + 1] == [committed[at]])
                for held in machine_logs
            )
            require(is_kept, "NoCommittedRecordLostGlobally", f"{committed[at]} at {at} of {index}")

    # --- logs ---------------------------------------------------------------------------------

    def check_log(self, node: NodeId, index: int, held: JudgedLog) -> None:
        """Check LogMatching for the records appended to a replica since the last call. Earlier
        records were checked before."""
        seen = self._seen.get((node, index))
        if seen is None:
            seen = self._seen[node, index] = _Progress()
        records, start = held.records, held.log_start_offset
        if start > min(held.high_watermark, len(self.committed[index])):
            raise Violation(
                "DeletedIsCommitted",
                f"{index} of {node} begins at {start}, high watermark {held.high_watermark}, "
                f"{len(self.committed[index])} are committed",
            )
        if seen.cut_count != held.cut_count:
            seen.cut_count = held.cut_count
            seen.end = 0
        end = len(records)
        if seen.end >= end:
            seen.end = end
            return
        written = self._written
        for offset in range(max(seen.end, start), end):
            record = records[offset]
            place = (index, offset, record.epoch)
            found = (record, records[offset - 1] if offset else None)
            before = found[1]
            if before is not None and before.epoch < 0:
                # The record before it is deleted.
                found = record, written.get(place, found)[1]
                if place not in written:
                    continue
            known = written.setdefault(place, found)
            if known != found:
                raise Violation(
                    "LogMatching", f"{node} has {found} at {offset} of {index}, not {known}"
                )
        seen.end = end

    # --- leaders ------------------------------------------------------------------------------

    def check_leader(
        self,
        node: NodeId,
        partition: Partition,
        held: JudgedLog,
        state: PartitionState,
        flushed: Mapping[NodeId, JudgedLog | None],
        image: MetadataImage,
    ) -> int:
        """Check a broker that is the leader of the partition according to its own `image`. Returns
        the number of records that were committed since the last check."""
        index, epoch = partition.index, partition.leader_epoch
        high_watermark = held.high_watermark
        before_epoch, before = self._watermarks.get((node, index), (-1, 0))
        if before_epoch != epoch:
            # A checkpoint may be old. Within a leadership it only rises.
            before = 0
            leader = self.leaders.get((index, epoch))
            require(leader == node, "OneLeaderPerEpoch", f"{node} leads {index} in {epoch}")
        if high_watermark < before:
            raise Violation(
                "WatermarkNeverRecedes", f"{node} of {index}: {before} -> {high_watermark}"
            )
        if epoch == state.leader_epoch:
            self._check_superset(partition, state)
        if high_watermark == before and before_epoch == epoch:
            return 0
        self._watermarks[node, index] = (epoch, high_watermark)
        committed = self.committed[index]
        records = held.records
        start = max(before, held.log_start_offset)
        for offset in range(start, min(high_watermark, len(committed))):
            if records[offset] != committed[offset]:
                raise Violation(
                    "ConsistentCommittedData",
                    f"{node} commits {records[offset]} at {offset} of {index}, "
                    f"{committed[offset]} was committed",
                )
        new_count = high_watermark - len(committed)
        if new_count <= 0:
            return 0
        require(
            len(partition.isr) >= min(self._min_isr(image), len(partition.replicas)),
            "NothingCommittedBelowMinIsr",
            f"{node} commits {high_watermark} of {index} with ISR {sorted(partition.isr)}",
        )
        if self._is_flush_demanded:
            for member in (*state.isr, *state.elr):
                one = flushed.get(member)
                require(
                    one is None or one.recovery_point >= high_watermark,
                    "CommittedIsFlushed",
                    f"{node} commits {high_watermark} of {index}, {member} has not flushed that",
                )
        for record in records[len(committed) : high_watermark]:
            self._commit(index, record)
        return new_count

    def _check_superset(self, partition: Partition, state: PartitionState) -> None:
        maximal = partition.maximal_isr
        waited = set(state.isr)
        if len(partition.isr) >= partition.min_isr_count:
            waited.update(state.elr)
        if not waited.issubset(maximal):
            raise Violation(
                "ReplicationQuorumSuperset",
                f"{partition} waits for {sorted(maximal)}, the controller has ISR {state.isr}, "
                f"ELR {state.elr}",
            )

    def _commit(self, index: int, record: JudgedRecord) -> None:
        self.committed[index].append(record)
        require(record.number not in self._numbers, "NoDuplicates", f"{record} in {index}")
        self._numbers.add(record.number)
        producer, sequence = self._sent[record.number]
        if producer >= 0:
            expected = self._sequences.get((producer, index), 0)
            require(
                sequence == expected,
                "SequencesInOrder",
                f"producer {producer} in {index}: {sequence} is committed after {expected - 1}",
            )
            self._sequences[producer, index] = sequence + 1

    # --- clients ------------------------------------------------------------------------------

    def check_acknowledged(self, index: int, offset: int, number: int) -> None:
        """Check that a record which a leader acknowledged with acks=all is committed."""
        committed = self.committed[index]
        found = committed[offset] if offset < len(committed) else None
        require(
            found is not None and found.number == number,
            "AcknowledgedIsCommitted",
            f"{number} at {offset} of {index}: there is {found}",
        )

    def check_read(self, index: int, records: Iterable[tuple[int, JudgedRecord]]) -> None:
        """Check ConsistentRead for (offset, record) pairs that a consumer received."""
        committed = self.committed[index]
        for offset, record in records:
            found = committed[offset] if offset < len(committed) else None
            require(
                found == record,
                "ConsistentRead",
                f"{record} was read at {offset} of {index}, where {found} is",
            )
