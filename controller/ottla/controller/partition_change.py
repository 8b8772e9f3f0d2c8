"""One partition's change: who holds it, who is in sync, who is eligible, who leads.

Every change of a partition is built here, so that a smaller ISR, a new leader and the eligible
leader replicas (ELR, KIP-966) always go together.  Invariants: NoAcknowledgedRecordLost (a leader
comes from the ISR, else from the ELR, else it is the last known leader alone; any other only where
unclean elections are allowed), ElrOnlyBelowMinIsr, and: a reassignment (KIP-455) ends with the very
change that makes its last condition true, whatever that change was about.
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
    """How much an election wants."""

    IF_NEEDED = "keep the leader while it can lead"
    PREFERRED = "give leadership back to the first replica if it is in sync"
    UNCLEAN = "take any live replica when no other can lead"


@frozen(kw_only=True)
class Rules:
    """What holds for one partition besides its state."""

    can_lead: Callable[[NodeId], bool]
    """Whether a broker is alive, stays, and has the partition's directory online."""
    min_insync_replicas: int
    is_elr_enabled: bool
    allows_unclean: bool = False


@frozen(kw_only=True)
class Assignment:
    """Who holds a partition, and, while that is being changed, who comes and who goes.

    Until the change is complete `replicas` has them all.  Whoever is `adding` was not there before,
    whoever is `removing` will not be: somebody on the way in whom nobody wants any more is both.
    """

    replicas: tuple[NodeId, ...]
    directories: tuple[UUID, ...]
    adding: tuple[NodeId, ...] = ()
    removing: tuple[NodeId, ...] = ()

    @classmethod
    def of(cls, state: PartitionState) -> "Assignment":
        """Return the assignment of a partition as it is."""
        return cls(
            replicas=state.replicas,
            directories=state.directories,
            adding=state.adding,
            removing=state.removing,
        )

    @property
    def is_changing(self) -> bool:
        """Whether a reassignment is under way."""
        return bool(self.adding or self.removing)

    def without(self, leaving: Collection[NodeId]) -> "Assignment":
        """Return the assignment of the others, with nothing under way."""
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
        """Return what a reassignment ends in, None while it must go on.

        It ends once all that come are in sync, and somebody who stays can lead; where fewer
        replicas stay than there were, all of them must be in sync.
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


class Elected(NamedTuple):
    """Who leads, and whether it may lack acknowledged records."""

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
    """Return the record that takes the partition to a new ISR and elects if needed.

    None where nothing changes.  `uncleanly_stopped` are brokers that may have lost what they had,
    `lost` are replicas that are known to have lost records; `assignment` is who shall hold the
    partition, where that changes too.
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
        # Without ELR the last members stay in the ISR: they alone are known to hold everything.
        # A replica that lost records is not: then the partition waits with an empty ISR.
        kept = tuple(one for one in state.isr if one in state.replicas) or state.replicas[:1]
        target_isr = tuple(one for one in kept if one not in lost) if state.isr else ()
    elif state.leader == NO_NODE and leader in target_isr:
        # And when one of them comes back and leads, it waits for none that is still away.
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
) -> Elected:
    """Choose a leader: ISR, then ELR, then the last known leader, then whoever lives if allowed."""
    order = (state.leader, *state.replicas)
    if election is Election.PREFERRED:
        order = (state.preferred_leader, *order)
    for group in (isr, elr):
        for replica in order:
            if replica in group and rules.can_lead(replica):
                return Elected(replica)
    last_known = state.last_known_elr if rules.is_elr_enabled and not isr and not elr else ()
    if len(last_known) == 1 and rules.can_lead(last_known[0]):
        return Elected(last_known[0], is_unclean=True)
    if rules.allows_unclean or election is Election.UNCLEAN:
        for replica in sorted(state.replicas, key=lambda one: one in state.lost):
            if rules.can_lead(replica):
                return Elected(replica, is_unclean=True)
    return Elected(NO_NODE)


def _eligible(
    state: PartitionState,
    rules: Rules,
    isr: tuple[NodeId, ...],
    uncleanly_stopped: Collection[NodeId],
) -> tuple[NodeId, ...]:
    """Return who else holds all that was committed: below min ISR, whoever left the ISR."""
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
    """Return the leader that was lost last, kept only while nobody leads.

    It is elected alone, and whatever it lacks is cut from the others: not if it `lost` records.
    """
    if not rules.is_elr_enabled or leader != NO_NODE:
        return ()
    kept = [one for one in state.replicas if one not in lost]
    known = tuple(one for one in state.last_known_elr if one in kept)
    if isr or known:
        return known
    if state.leader in state.replicas:
        return (state.leader,) if state.leader in kept else ()
    # Nobody led while ELRs were not kept yet; the ISR that is lost now held all there was.
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
        # A new leader epoch: whoever was taken out can be told apart from whoever is still in.
        changes["leader"] = new.leader
    return partition_change_record(partition.topic_id, partition.partition, **changes)
