"""Member of a consumer group (KIP-848): its subscription and its assignment. Pure.

Members are immutable. Each change creates a new object, so a member cannot change while an
assignment is being computed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Protocol, TypeAlias
from uuid import UUID

from ottla.broker.coordinators.effects import MemberClient

Assignment: TypeAlias = Mapping[UUID, frozenset[int]]
"""Assigned partitions by topic id. A topic without partitions has no entry."""

NOTHING: Assignment = MappingProxyType({})

JOINING_EPOCH = 0
"""Member epoch of the heartbeat with which a member joins a group. After joining, the epoch is at
least 1."""

LEAVING_EPOCH = -1
LEAVING_FOR_A_WHILE_EPOCH = -2
"""Member epoch in the last heartbeat of a static member that stops temporarily. The member keeps
its partitions."""

NO_REBALANCE_TIMEOUT_MS = -1

NO_CLIENT = MemberClient("", "")


class MemberState(IntEnum):
    """Progress of a consumer group member towards its target assignment, with Kafka's numbers."""

    STABLE = 0
    """State of a group member that owns exactly the assignment of its epoch."""
    UNREVOKED_PARTITIONS = 1
    """State of a group member that must revoke partitions. The member keeps its epoch until it has
    revoked them."""
    UNRELEASED_PARTITIONS = 2
    """State of a group member that has entered the epoch of the target assignment, while other
    members still own some of its target partitions."""
    UNKNOWN = 127
    """State of a group member that a later version of the coordinator has written. The member must
    join again."""


@dataclass(frozen=True, slots=True)
class ClassicMemberState:
    """Additional state of a member that uses the classic protocol in a consumer group (online
    migration)."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """Member of a consumer group. Its deadlines are stored in the timers of the coordinator
    shard."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client: MemberClient = NO_CLIENT
    rebalance_timeout_ms: int = NO_REBALANCE_TIMEOUT_MS
    """Maximum milliseconds that the group member may take to revoke partitions."""
    server_assignor: str | None = None
    """Name of the coordinator's assignor that the member prefers, or None if it has no
    preference."""
    subscribed_names: frozenset[str] = frozenset()
    subscribed_regex: str = ""
    """Regular expression over topic names to which the member subscribes, or an empty text."""
    classic: ClassicMemberState | None = None
    member_epoch: int = 0
    previous_member_epoch: int = -1
    """Previous epoch of the group member. The coordinator accepts it in addition to the current
    epoch, since the response with the current epoch may be lost."""
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=lambda: NOTHING)
    pending_revocation: Assignment = field(default_factory=lambda: NOTHING)
    """Partitions that the group member still owns and has to revoke."""

    @property
    def subscription(self) -> tuple[frozenset[str], str]:
        """Topic names and regular expression to which the group member subscribes."""
        return self.subscribed_names, self.subscribed_regex

    @property
    def is_away(self) -> bool:
        """True for a static group member that has stopped temporarily."""
        return self.member_epoch == LEAVING_FOR_A_WHILE_EPOCH

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Return True if the group member owns exactly its target assignment of this epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch


class TopicPartitions(Protocol):
    """Partitions of one topic, as requests and records list them."""

    topic_id: UUID
    partitions: list[int]


def assignment_of(topics: Iterable[TopicPartitions]) -> Assignment:
    """Return the partitions that a request or record lists, by topic id."""
    found: dict[UUID, frozenset[int]] = {}
    for topic in topics:
        if topic.partitions:
            found[topic.topic_id] = found.get(topic.topic_id, frozenset()) | set(topic.partitions)
    return found
