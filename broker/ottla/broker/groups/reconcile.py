"""How one member of a consumer group comes from what it has to what the target gives it.  Pure.

    STABLE ──a newer target takes partitions away──► UNREVOKED_PARTITIONS: keeps its epoch, and is
      ▲                                                │ told what is left; until it says that it
      │                                                ▼ owns no more than that
      ├──it has all that the target gives it ◄── (decided again, as from STABLE)
      │                                                │
      └──others gave it up ◄── UNRELEASED_PARTITIONS ◄─┘ some of the target is with others yet

A member comes into the target's epoch as soon as it owns nothing that the target does not give it;
what it gets beyond that waits for who has it.  These are the rules of Kafka's KIP-848.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from uuid import UUID

from ottla.broker.groups.consumer_group import NO_OWNER
from ottla.broker.groups.consumer_member import NOTHING, Assignment, ConsumerMember, MemberState
from ottla.model.errors import ErrorCode, RefusedError

NO_INDEXES: frozenset[int] = frozenset()


def reconcile(
    member: ConsumerMember,
    *,
    target_epoch: int,
    target: Assignment,
    owner_epoch_of: Callable[[UUID, int], int],
    owned: Assignment | None,
) -> ConsumerMember:
    """Return what the member is now; the same one if it cannot move.

    `owned` is what it said that it works on; None if it said nothing.
    """
    if member.is_reconciled_to(target_epoch):
        return member
    match member.state:
        case MemberState.UNREVOKED_PARTITIONS if _owns_any(owned, member.pending_revocation):
            return member
        case MemberState.UNKNOWN if owned is None or owned:
            raise RefusedError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The consumer group member is in a unknown state. "
                "The member must abandon all its partitions and rejoin.",
            )
    return _next(member, target_epoch, target, owner_epoch_of, owned)


def _next(
    member: ConsumerMember,
    target_epoch: int,
    target: Assignment,
    owner_epoch_of: Callable[[UUID, int], int],
    owned: Assignment | None,
) -> ConsumerMember:
    kept: dict[UUID, frozenset[int]] = {}
    to_revoke: dict[UUID, frozenset[int]] = {}
    assigned: dict[UUID, frozenset[int]] = {}
    has_unreleased = False
    for topic_id in {**member.assigned, **target}:
        current = member.assigned.get(topic_id, NO_INDEXES)
        wanted = target.get(topic_id, NO_INDEXES)
        kept[topic_id] = current & wanted
        to_revoke[topic_id] = current - wanted
        missing = wanted - current
        # What it gave up itself, and gets back, is free: nobody else can have had it meanwhile.
        mine = member.pending_revocation.get(topic_id, NO_INDEXES)
        free = frozenset(
            one for one in missing if one in mine or owner_epoch_of(topic_id, one) == NO_OWNER
        )
        has_unreleased = has_unreleased or len(free) < len(missing)
        assigned[topic_id] = kept[topic_id] | free
    to_revoke = _without_empty(to_revoke)
    if to_revoke and _owns_any(owned, to_revoke):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            previous_member_epoch=member.member_epoch,
            assigned=_without_empty(kept),
            pending_revocation=to_revoke,
        )
    return replace(
        member,
        state=MemberState.UNRELEASED_PARTITIONS if has_unreleased else MemberState.STABLE,
        member_epoch=target_epoch,
        previous_member_epoch=member.member_epoch,
        assigned=_without_empty(assigned),
        pending_revocation=NOTHING,
    )


def _owns_any(owned: Assignment | None, partitions: Assignment) -> bool:
    """Return whether the member may still work on any of these; it may when it says nothing."""
    if owned is None:
        return True
    return any(not partitions.get(topic, NO_INDEXES).isdisjoint(owned[topic]) for topic in owned)


def _without_empty(assignment: Mapping[UUID, frozenset[int]]) -> dict[UUID, frozenset[int]]:
    return {topic_id: indexes for topic_id, indexes in assignment.items() if indexes}
