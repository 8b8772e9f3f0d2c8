"""What must hold of replicated partitions, by the names of KIP-966's model and a few of our own.

Of the controller's state: NoFencedBrokerInIsr, IsrAndElrAreDisjointReplicas, ElrOnlyBelowMinIsr
(a full ISR has no use for it), ElrKeptBelowMinIsr (whoever held all still counts),
WhoeverCanLeadDoes, RecoveringLeaderIsAlone, EpochsOnlyRise, ReassignmentEndsInSync.
Of logs: LogMatching (an epoch writes an offset once, after one and the same record),
LeaderCompleteness (whoever is elected holds all that was committed), LeaderCandidateCompleteness
(so does everybody who could be), NoCommittedRecordLostGlobally, CommittedIsFlushed (where that is
demanded, by everybody who could lead), DeletedIsCommitted (a log begins where records are
committed, and its broker knows them to be).
Of leaders: OneLeaderPerEpoch, WatermarkNeverRecedes, NothingCommittedBelowMinIsr,
ReplicationQuorumSuperset (a leader that may commit waits for the controller's ISR and ELR),
ConsistentCommittedData.
Of what clients see: ConsistentRead (what was read at an offset once is read there always),
AcknowledgedIsCommitted, NoDuplicates and SequencesInOrder (idempotent producers, over failovers).
Of brokers: MetadataLogMatching (each has a state that the controller once had).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from ottla.broker.replicas.partition import Partition
from ottla.jepsen.world.violation import Violation
from ottla.metadata.image import MetadataImage, PartitionState, RecoveryState
from ottla.model.ids import NO_NODE, NodeId, Offset


class JudgedRecord(NamedTuple):
    """One record as a judge sees it."""

    epoch: int
    number: int
    """Its own: no other record that any client ever sent has it."""


class Held(Protocol):
    """What a judge sees of a replica's log, also while its broker is down."""

    @property
    def records(self) -> list[JudgedRecord]:
        """All that it holds, by offset; below its start they are nothing that counts."""
        ...

    @property
    def log_start_offset(self) -> Offset:
        """The first offset that it serves."""
        ...

    @property
    def cut_count(self) -> int:
        """How often its end went back."""
        ...

    @property
    def recovery_point(self) -> Offset:
        """The end of what survives a power cut."""
        ...

    @property
    def high_watermark(self) -> Offset:
        """The end of what its broker knows to be committed."""
        ...


def require(is_sound: bool, invariant: str, *details: object) -> None:
    """Raise the violation unless all is well; only then are the details made text."""
    if not is_sound:
        raise Violation(invariant, " ".join(map(str, details)))


class _Seen:
    """How far one replica's log was judged."""

    __slots__ = ("cut_count", "end")

    def __init__(self) -> None:
        self.end = 0
        self.cut_count = 0


class ReplicationJudge:
    """The memory of an all-seeing judge of some partitions of one topic."""

    def __init__(
        self,
        partition_count: int,
        *,
        min_isr: Callable[[MetadataImage], int],
        is_flush_demanded: bool,
        sent: Mapping[int, tuple[int, int]],
    ) -> None:
        """`min_isr` says what min.insync.replicas is in an image.

        `sent` says which producer sent a record, as what of its sequence; (-1, -1): neither.
        """
        self.committed: list[list[JudgedRecord]] = [[] for _ in range(partition_count)]
        self.leaders: dict[tuple[int, int], NodeId] = {}
        """By partition and epoch."""
        self._min_isr = min_isr
        self._is_flush_demanded = is_flush_demanded
        self._sent = sent
        self._written: dict[tuple[int, int, int], tuple[JudgedRecord, JudgedRecord | None]] = {}
        self._seen: dict[tuple[NodeId, int], _Seen] = {}
        self._watermarks: dict[tuple[NodeId, int], tuple[int, int]] = {}
        """By leader and partition: its epoch and high watermark."""
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
        """Judge a partition after a decision, which led from one image to another.

        `unclean` has just come back from a crash.
        """
        isr, elr = set(state.isr), set(state.elr)
        require(
            isr.isdisjoint(elr) and (isr | elr) <= set(state.replicas),
            "IsrAndElrAreDisjointReplicas",
            state,
        )
        enough = min(self._min_isr(images[1]), len(state.replicas))
        require(not elr or len(isr) < enough, "ElrOnlyBelowMinIsr", state)
        # Whoever sets min.insync.replicas forgets the ELR, also where that changes nothing.
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
        """Judge a partition once a decision is whole."""
        fenced = [one for one in state.isr if not image.is_active(one)]
        require(not fenced, "NoFencedBrokerInIsr", fenced, "in", state)
        if state.leader == NO_NODE:
            able = [one for one in (*state.isr, *state.elr) if image.is_active(one)]
            require(not able, "WhoeverCanLeadDoes", able, "could lead", state)

    def check_candidates(
        self, index: int, state: PartitionState, holders: Mapping[NodeId, Held | None]
    ) -> None:
        """Judge whoever leads or could; `holders` are all machines that have lost nothing."""
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

    def check_kept(self, index: int, everybody: Iterable[Held | None]) -> None:
        """Judge whether anybody at all still has what was committed."""
        committed = self.committed[index]
        if committed:
            at = len(committed) - 1
            is_kept = any(
                held is not None
                and len(held.records) >= held.log_start_offset
                and (held.log_start_offset > at or held.records[at : at + 1] == [committed[at]])
                for held in everybody
            )
            require(is_kept, "NoCommittedRecordLostGlobally", f"{committed[at]} at {at} of {index}")

    # --- logs ---------------------------------------------------------------------------------

    def check_log(self, node: NodeId, index: int, held: Held) -> None:
        """Judge what was appended since the last look; LogMatching by induction."""
        seen = self._seen.get((node, index))
        if seen is None:
            seen = self._seen[node, index] = _Seen()
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
                # What lay before it is deleted, and gone.
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
        held: Held,
        state: PartitionState,
        flushed: Mapping[NodeId, Held | None],
        image: MetadataImage,
    ) -> int:
        """Judge who believes to lead, by `image`; return how many records it newly commits."""
        index, epoch = partition.index, partition.leader_epoch
        high_watermark = held.high_watermark
        before_epoch, before = self._watermarks.get((node, index), (-1, 0))
        if before_epoch != epoch:
            # A checkpoint may be old; within a leadership it only rises.
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
        """Judge an answer to acks=all."""
        committed = self.committed[index]
        found = committed[offset] if offset < len(committed) else None
        require(
            found is not None and found.number == number,
            "AcknowledgedIsCommitted",
            f"{number} at {offset} of {index}: there is {found}",
        )

    def check_read(self, index: int, records: Iterable[tuple[int, JudgedRecord]]) -> None:
        """Judge what a consumer was given."""
        committed = self.committed[index]
        for offset, record in records:
            found = committed[offset] if offset < len(committed) else None
            require(
                found == record,
                "ConsistentRead",
                f"{record} was read at {offset} of {index}, where {found} is",
            )
