"""One member of a consumer group (KIP-848): what it wants, and what it works on.  Pure.

A value: every change makes another member, so that what a decision started from is never touched
by it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Protocol, TypeAlias
from uuid import UUID

from ottla.broker.groups.effects import MemberClient

Assignment: TypeAlias = Mapping[UUID, frozenset[int]]
"""Partitions by the id of their topic; no topic stands in it with none."""

NOTHING: Assignment = MappingProxyType({})

JOINING_EPOCH = 0
"""The epoch of who wants to become a member; members' own begin with 1."""

LEAVING_EPOCH = -1
LEAVING_FOR_A_WHILE_EPOCH = -2
"""A static member stops and will come back: its partitions are kept for it meanwhile."""

NO_REBALANCE_TIMEOUT_MS = -1

NO_CLIENT = MemberClient("", "")


class MemberState(IntEnum):
    """How far a member is on its way to its target assignment, by Kafka's numbers."""

    STABLE = 0
    """It works on what it was assigned in its epoch."""
    UNREVOKED_PARTITIONS = 1
    """It stays in its epoch until it has given partitions up."""
    UNRELEASED_PARTITIONS = 2
    """It is in the target's epoch, and others still have partitions of it."""
    UNKNOWN = 127
    """Written by a later coordinator: the member has to begin again."""


@dataclass(frozen=True, slots=True)
class ClassicSide:
    """What is known besides of a member that speaks the classic protocol (online migration)."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """What the group knows of one consumer; its timers are kept by the group's shard."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client: MemberClient = NO_CLIENT
    rebalance_timeout_ms: int = NO_REBALANCE_TIMEOUT_MS
    """How long it may take to give partitions up."""
    server_assignor: str | None = None
    """The assignor it would like; None when it does not mind."""
    subscribed_names: frozenset[str] = frozenset()
    subscribed_regex: str = ""
    """Empty when it has none."""
    classic: ClassicSide | None = None
    member_epoch: int = 0
    previous_member_epoch: int = -1
    """An answer that raised its epoch may be lost: it comes with this one then."""
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=lambda: NOTHING)
    pending_revocation: Assignment = field(default_factory=lambda: NOTHING)
    """Still with it, and to be given up."""

    @property
    def is_away(self) -> bool:
        """Whether it is a static member that left for a while."""
        return self.member_epoch == LEAVING_FOR_A_WHILE_EPOCH

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Return whether it works on exactly what the target of this epoch gives it."""
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch


class TopicPartitions(Protocol):
    """Partitions of one topic, as requests and records have them."""

    topic_id: UUID
    partitions: list[int]


def assignment_of(topics: Iterable[TopicPartitions]) -> Assignment:
    """Return what a message lists, by topic."""
    found: dict[UUID, frozenset[int]] = {}
    for topic in topics:
        if topic.partitions:
            found[topic.topic_id] = found.get(topic.topic_id, frozenset()) | set(topic.partitions)
    return found
