"""Computes the next step of a group member from its current assignment to its target assignment
(KIP-848). Pure.

    STABLE ──a newer target removes partitions──► UNREVOKED_PARTITIONS: keeps its epoch and the
      ▲                                                │ remaining partitions, until it reports
      │                                                ▼ that it owns nothing else
      ├──it owns its whole target ◄── (decided again, as from STABLE)
      │                                                │
      └──others released it ◄── UNRELEASED_PARTITIONS ◄┘ others still own a part of the target

A member enters the target's epoch as soon as it owns nothing outside its target. The rest of its
target waits for the current owners. These are the rules of Kafka's KIP-848.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from uuid import UUID

from ottla.broker.groups.consumer.consumer_group import NO_OWNER
from ottla.broker.groups.consumer.consumer_member import (
    NOTHING,
    Assignment,
    ConsumerMember,
    MemberState,
)
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
    """Return the state of a group member after its next step towards its target assignment. If no
    step is possible, the same object is returned.

    `owned` contains the partitions that the member reported as its own, or is None if the member
    did not report its partitions.
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
        # A partition that the member itself gave up is free, since no other member has had it
        # since.
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
    """Return True if the group member may still own any of these partitions, or if `owned` is None
    because the member has not reported its partitions."""
    if owned is None:
        return True
    return any(not partitions.get(topic, NO_INDEXES).isdisjoint(owned[topic]) for topic in owned)


def _without_empty(assignment: Mapping[UUID, frozenset[int]]) -> dict[UUID, frozenset[int]]:
    return {topic_id: indexes for topic_id, indexes in assignment.items() if indexes}
