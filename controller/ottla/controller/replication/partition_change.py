"""Next state of one partition: replicas, ISR, eligible replicas and leader.

Every change of a partition is computed here, so that its ISR, leader and eligible leader replicas
(ELR, KIP-966) are always consistent. Invariants:
- NoAcknowledgedRecordLost: a leader is chosen from the ISR. If that is impossible, it is chosen
  from the ELR, and otherwise only the last known leader is possible. Any other replica is elected
  only if unclean elections are allowed.
- ElrOnlyBelowMinIsr: there are eligible leader replicas only while the ISR is smaller than
  min.insync.replicas.
- A reassignment (KIP-455) is completed by the same change that fulfils its last condition.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

from ottla.metadata.image import PartitionState, RecoveryState
from ottla.metadata.records import Record, partition_change_record
from ottla.model.ids import NO_NODE, NodeId, TopicIdPartition
from ottla.model.values import frozen


class Election(Enum):
    """Kind of leader election, which determines when the leader changes and which replicas may
    become leader."""

    IF_NEEDED = "keep the leader while it can lead"
    PREFERRED = "give leadership back to the first replica if it is in sync"
    UNCLEAN = "take any live replica when no other can lead"


@frozen(kw_only=True)
class Rules:
    """Settings, and brokers that can lead, on which the change of a partition depends."""

    can_lead: Callable[[NodeId], bool]
    """Function that returns True if a broker may lead: it is alive and not shutting down, and its
    log directory for the partition is online."""
    min_insync_replicas: int
    is_elr_enabled: bool
    allows_unclean: bool = False


@frozen(kw_only=True)
class Assignment:
    """Replicas of a partition, and the replicas that a reassignment adds and removes.

    Until the reassignment is complete, `replicas` contains all of these brokers. A broker in
    `adding` had no replica before; a broker in `removing` will have none afterwards. A broker whose
    addition is cancelled is in both.
    """

    replicas: tuple[NodeId, ...]
    directories: tuple[UUID, ...]
    adding: tuple[NodeId, ...] = ()
    removing: tuple[NodeId, ...] = ()

    @classmethod
    def of(cls, state: PartitionState) -> "Assignment":
        """Return the present assignment of a partition: its replicas, and the replicas that a
        reassignment adds and removes."""
        return cls(
            replicas=state.replicas,
            directories=state.directories,
            adding=state.adding,
            removing=state.removing,
        )

    @property
    def is_changing(self) -> bool:
        """True if a reassignment of the partition is in progress."""
        return bool(self.adding or self.removing)

    def without(self, leaving: Collection[NodeId]) -> "Assignment":
        """Return the assignment without the replicas in `leaving`, and with no reassignment in
        progress."""
        kept = [
            (replica, directory)
            for replica, directory in zip(self.replicas, self.directories, strict=True)
            if replica not in leaving
        ]
        return Assignment(
            replicas=tuple(replica for replica, _ in kept),
            directories=tuple(directory for _, directory in kept),
        )

    def completed(
        self, isr: tuple[NodeId, ...], can_lead: Callable[[NodeId], bool]
    ) -> "Assignment | None":
        """Return the assignment at the end of the partition's reassignment, or None if the
        reassignment is not complete.

        It is complete once all added replicas are in sync and a remaining replica can lead. If
        fewer replicas remain than before, all of them must be in sync.
        """
        if not self.is_changing:
            return None
        staying = self.without(self.removing)
        in_sync = set(isr).intersection(staying.replicas)
        if not any(can_lead(replica) for replica in in_sync):
            return None
        if not in_sync.issuperset(set(self.adding).difference(self.removing)):
            return None
        was_count = len(set(self.replicas).difference(self.adding))
        if len(staying.replicas) < was_count and not in_sync.issuperset(staying.replicas):
            return None
        return staying


class ElectionResult(NamedTuple):
    """Result of a leader election: the leader, and whether it may lack acknowledged records."""

    leader: NodeId
    is_unclean: bool = False


def change_partition(
    partition: TopicIdPartition,
    state: PartitionState,
    rules: Rules,
    *,
    isr: tuple[NodeId, ...] | None = None,
    uncleanly_stopped: Collection[NodeId] = (),
    lost: Collection[NodeId] = (),
    recovery_state: RecoveryState | None = None,
    election: Election = Election.IF_NEEDED,
    assignment: Assignment | None = None,
) -> Record | None:
    """Return the metadata record that changes a partition to a new ISR and elects a leader if
    necessary.

    Returns None if nothing changes. `uncleanly_stopped` are brokers that may have lost records.
    `lost` are replicas that are known to have lost records. `assignment` is the new assignment, or
    None if the assignment does not change.
    """
    old, target_isr = state, state.isr if isr is None else isr
    target = Assignment.of(state) if assignment is None else assignment
    target = target.completed(target_isr, rules.can_lead) or target
    state = replace(state, replicas=target.replicas, directories=target.directories)
    target_isr = tuple(one for one in target_isr if one in state.replicas)
    elr = _eligible(state, rules, target_isr, {*uncleanly_stopped, *lost})
    leader, is_unclean = elect(state, rules, election, isr=target_isr, elr=elr)
    target_recovery = state.recovery_state if recovery_state is None else recovery_state
    if leader not in (state.leader, NO_NODE):
        if is_unclean:
            target_isr, elr, target_recovery = (leader,), (), RecoveryState.RECOVERING
        elif leader not in target_isr:
            target_isr, elr = (leader,), tuple(one for one in elr if one != leader)
            if _is_enough(state, rules, target_isr):
                elr = ()
    if not target_isr and not rules.is_elr_enabled:
        # Without ELR, the last members stay in the ISR, because only they are known to have all
        # records. A replica that lost records is removed nevertheless; the partition then waits
        # with an empty ISR.
        kept = tuple(one for one in state.isr if one in state.replicas) or state.replicas[:1]
        target_isr = tuple(one for one in kept if one not in lost) if state.isr else ()
    elif state.leader == NO_NODE and leader in target_isr:
        # When one of these replicas returns and leads, it need not wait for members that are still
        # absent.
        target_isr = tuple(one for one in target_isr if rules.can_lead(one))
    last_known = _last_known(state, rules, target_isr, leader, lost)
    known_lost = {*state.lost, *lost}.difference(target_isr)
    return _record(
        partition,
        old,
        PartitionState(
            replicas=target.replicas,
            directories=target.directories,
            adding=target.adding,
            removing=target.removing,
            isr=target_isr,
            elr=elr,
            last_known_elr=last_known,
            leader=leader,
            recovery_state=target_recovery,
            lost=tuple(one for one in state.replicas if one in known_lost),
        ),
    )


def elect(
    state: PartitionState,
    rules: Rules,
    election: Election,
    *,
    isr: tuple[NodeId, ...],
    elr: tuple[NodeId, ...],
) -> ElectionResult:
    """Return the leader of a partition, chosen from the ISR, the ELR or the last known leader. If
    unclean elections are allowed, any live replica may be chosen. The leader is NO_NODE if no
    replica can lead."""
    order = (state.leader, *state.replicas)
    if election is Election.PREFERRED:
        order = (state.preferred_leader, *order)
    for group in (isr, elr):
        for replica in order:
            if replica in group and rules.can_lead(replica):
                return ElectionResult(replica)
    last_known = state.last_known_elr if rules.is_elr_enabled and not isr and not elr else ()
    if len(last_known) == 1 and rules.can_lead(last_known[0]):
        return ElectionResult(last_known[0], is_unclean=True)
    if rules.allows_unclean or election is Election.UNCLEAN:
        for replica in sorted(state.replicas, key=lambda one: one in state.lost):
            if rules.can_lead(replica):
                return ElectionResult(replica, is_unclean=True)
    return ElectionResult(NO_NODE)


def _eligible(
    state: PartitionState,
    rules: Rules,
    isr: tuple[NodeId, ...],
    uncleanly_stopped: Collection[NodeId],
) -> tuple[NodeId, ...]:
    """Return the eligible leader replicas of a partition: replicas outside the ISR that have all
    committed records.

    While the ISR is smaller than min.insync.replicas, these are the replicas that have left the
    ISR.
    """
    if not rules.is_elr_enabled or _is_enough(state, rules, isr):
        return ()
    held = {*state.elr, *state.isr}.difference(isr, uncleanly_stopped)
    return tuple(replica for replica in state.replicas if replica in held)


def _is_enough(state: PartitionState, rules: Rules, isr: tuple[NodeId, ...]) -> bool:
    return len(isr) >= min(rules.min_insync_replicas, len(state.replicas))


def _last_known(
    state: PartitionState,
    rules: Rules,
    isr: tuple[NodeId, ...],
    leader: NodeId,
    lost: Collection[NodeId],
) -> tuple[NodeId, ...]:
    """Return the last known leader of a partition, as a tuple of at most one replica. It is stored
    only while the partition has no leader.

    This replica may be elected even if the ISR is empty. The other replicas then truncate all
    records that it lacks. A replica in `lost` is never returned.
    """
    if not rules.is_elr_enabled or leader != NO_NODE:
        return ()
    kept = [one for one in state.replicas if one not in lost]
    known = tuple(one for one in state.last_known_elr if one in kept)
    if isr or known:
        return known
    if state.leader in state.replicas:
        return (state.leader,) if state.leader in kept else ()
    # The partition lost its leader before ELRs were enabled.  The ISR that is lost now had all
    # committed records.
    return tuple(one for one in state.isr if one in kept)[:1]


CHANGEABLE = (
    "replicas",
    "directories",
    "adding",
    "removing",
    "isr",
    "leader",
    "elr",
    "last_known_elr",
    "recovery_state",
    "lost",
)


def _record(partition: TopicIdPartition, old: PartitionState, new: PartitionState) -> Record | None:
    changes: dict[str, Any] = {
        name: getattr(new, name) for name in CHANGEABLE if getattr(new, name) != getattr(old, name)
    }
    if not changes:
        return None
    if not set(old.replicas).issubset(new.replicas):
        # A new leader epoch distinguishes removed replicas from those that remain.
        changes["leader"] = new.leader
    return partition_change_record(partition.topic_id, partition.partition, **changes)
