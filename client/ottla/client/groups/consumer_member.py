"""One member of a group by the consumer protocol (KIP-848): what it says next, what it is told.

Pure.  The coordinator decides who reads what; a member sends heartbeats, and each says only what
has changed since the last one.  An answer brings the member's epoch and, when it changed, its
target: the partitions it shall have.  The member gives up what is not in it, takes the rest, and
acknowledges by saying what it owns now.

    UNSUBSCRIBED ─► JOINING ─► STABLE ◄─────────────────┐
                     ▲   └────────┴► RECONCILING ─► ACKNOWLEDGING
                     └─ FENCED, STALE ◄── from all of these

Invariants: OneEpoch (what is owned belongs to the epoch; losing the epoch loses it),
AcknowledgedIsOwned (what a heartbeat names is what is read, never what shall be).
"""

from collections.abc import Collection, Mapping
from enum import Enum, auto
from typing import TypeAlias
from uuid import UUID

from ottla.client.groups.group_member import Step
from ottla.model.errors import ErrorCode, RefusedError, code_of, row_of
from ottla.model.settings.client import ConsumerConfig
from ottla.wire.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from ottla.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""A static member goes, and will be back: its partitions are kept for it."""

Assignment: TypeAlias = Mapping[UUID, frozenset[int]]
NOTHING: Assignment = {}


class MembershipState(Enum):
    """Where a member stands (Kafka's names)."""

    UNSUBSCRIBED = auto()
    JOINING = auto()
    RECONCILING = auto()
    """Its target is not what it owns."""
    ACKNOWLEDGING = auto()
    """What it owns is changed, and the coordinator does not know yet."""
    STABLE = auto()
    FENCED = auto()
    """It lost its epoch; it joins again once the application knows that all is lost."""
    STALE = auto()
    """It left because the application does not poll; it joins again when it does."""


IN_GROUP = frozenset(
    {MembershipState.RECONCILING, MembershipState.ACKNOWLEDGING, MembershipState.STABLE}
)
LEGAL = {
    MembershipState.UNSUBSCRIBED: {MembershipState.JOINING},
    MembershipState.JOINING: {
        MembershipState.RECONCILING,
        MembershipState.STABLE,
        MembershipState.FENCED,
        MembershipState.STALE,
    },
    MembershipState.RECONCILING: {
        MembershipState.ACKNOWLEDGING,
        MembershipState.STABLE,
        MembershipState.FENCED,
        MembershipState.STALE,
    },
    MembershipState.ACKNOWLEDGING: {
        MembershipState.RECONCILING,
        MembershipState.STABLE,
        MembershipState.FENCED,
        MembershipState.STALE,
    },
    MembershipState.STABLE: {
        MembershipState.RECONCILING,
        MembershipState.ACKNOWLEDGING,
        MembershipState.FENCED,
        MembershipState.STALE,
    },
    MembershipState.FENCED: {MembershipState.JOINING},
    MembershipState.STALE: {MembershipState.JOINING},
}
"""Besides these, every state leads to UNSUBSCRIBED."""

AFTER = {
    ErrorCode.NONE: Step.GO_ON,
    ErrorCode.FENCED_MEMBER_EPOCH: Step.JOIN_AGAIN,
    ErrorCode.UNKNOWN_MEMBER_ID: Step.JOIN_AGAIN,
    ErrorCode.NOT_COORDINATOR: Step.FIND_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Step.FIND_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT: Step.FIND_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Step.WAIT,
}
"""What each code means to a member; every other one ends its membership with an error."""


class ConsumerProtocolMember:
    """A member: who it is, in which epoch, what it has and what it shall have."""

    def __init__(self, group_id: str, member_id: str, config: ConsumerConfig) -> None:
        self.group_id = group_id
        self.member_id = member_id
        """Chosen by the member itself, for as long as its process lives (KIP-1082)."""
        self.member_epoch = JOIN_EPOCH
        self.state = MembershipState.UNSUBSCRIBED
        self.owned: Assignment = NOTHING
        self.target: Assignment = NOTHING
        self.heartbeat_interval_ms = config.heartbeat_interval_ms
        """As the coordinator says; the setting counts until it has."""
        self._config = config
        self._topics: frozenset[str] | None = None
        self._regex: str | None = None
        self._said: dict[str, object] = {}
        """The fields as they were said last; empty when it is not known what was heard."""

    @property
    def is_in_group(self) -> bool:
        """Whether it has an epoch."""
        return self.state in IN_GROUP

    @property
    def is_heartbeat_due(self) -> bool:
        """Whether there is something to tell that shall not wait for the interval."""
        if self.state in (MembershipState.JOINING, MembershipState.ACKNOWLEDGING):
            return True
        return self.is_in_group and any(
            self._said.get(name, value) != value for name, value in self._subscription().items()
        )

    def subscribe(self, topics: Collection[str] | None, regex: str | None) -> None:
        """Want these topics, or those a regular expression of RE2 matches on the coordinator."""
        self._topics = None if topics is None else frozenset(topics)
        self._regex = regex

    def join(self) -> None:
        """Begin, or begin again, with nothing."""
        self._become(MembershipState.JOINING)
        self._lose()

    def heartbeat_request(self) -> ConsumerGroupHeartbeatRequest:
        """Return what to send now; exactly one is under way at a time."""
        assert self.is_in_group or self.state is MembershipState.JOINING, (
            f"{self.state} sends no heartbeat"
        )
        fields: dict[str, object] = {
            "rebalance_timeout_ms": self._config.poll_interval_ms_max,
            **self._subscription(),
            "server_assignor": self._config.group_remote_assignor,
            "topic_partitions": self.owned,
        }
        news = {name: one for name, one in fields.items() if self._said.get(name) != one}
        self._said = fields
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.member_epoch,
            instance_id=self._config.group_instance_id,
        )
        for name, one in news.items():
            if name == "subscribed_topic_names":
                one = sorted(self._topics or ())
            elif name == "topic_partitions":
                one = _as_list(self.owned)
            setattr(request, name, one)
        if self.state is MembershipState.ACKNOWLEDGING:
            self._become(
                MembershipState.STABLE if self.owned == self.target else MembershipState.RECONCILING
            )
        return request

    def on_answer(self, answer: ConsumerGroupHeartbeatResponse) -> Step:
        """Take in an answer; RefusedError where nothing can mend it."""
        if not self.is_in_group and self.state is not MembershipState.JOINING:
            return Step.GO_ON  # it was asked before all was lost
        if answer.error_code != ErrorCode.NONE:
            return self._on_error(answer.error_code, answer.error_message)
        self.member_epoch = answer.member_epoch
        if answer.heartbeat_interval_ms > 0:
            self.heartbeat_interval_ms = answer.heartbeat_interval_ms
        if answer.assignment is not None:
            self.target = {
                one.topic_id: frozenset(one.partitions)
                for one in answer.assignment.topic_partitions
                if one.partitions
            }
        if self.target != self.owned:
            if self.state is not MembershipState.RECONCILING:
                self._become(MembershipState.RECONCILING)
        elif self.state in (MembershipState.JOINING, MembershipState.RECONCILING):
            self._become(MembershipState.STABLE)
        return Step.GO_ON

    def on_no_answer(self) -> None:
        """The last heartbeat may have been heard or not: the next one says everything."""
        self._said = {}

    def next_owned(self, known: Collection[UUID]) -> Assignment:
        """Return what to own next: of the target what is known by name, and what is held of it."""
        return {
            topic_id: indexes
            for topic_id, indexes in self.target.items()
            if topic_id in known or self.owned.get(topic_id) == indexes
        }

    def on_reconciled(self, owned: Assignment) -> None:
        """It reads these partitions now, and no others."""
        assert self.is_in_group, f"{self.state} owns nothing"
        self.owned = dict(owned)
        if self.state is MembershipState.STABLE and self.owned == self.target:
            return
        if self.state is not MembershipState.ACKNOWLEDGING:
            self._become(MembershipState.ACKNOWLEDGING)

    def on_fenced(self) -> None:
        """It is out of the group, or must take itself to be: everything is lost."""
        self._become(MembershipState.FENCED)
        self._lose()

    def leave_request(self, *, is_final: bool = False) -> ConsumerGroupHeartbeatRequest:
        """Return what says that it goes; a static member is expected back unless that is final."""
        returns = self._config.group_instance_id is not None and not is_final
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=STATIC_LEAVE_EPOCH if returns else LEAVE_EPOCH,
            instance_id=self._config.group_instance_id,
        )

    def on_left(self, *, is_stale: bool = False) -> None:
        """It said that it goes: for good, or because the application does not poll."""
        self._become(MembershipState.STALE if is_stale else MembershipState.UNSUBSCRIBED)
        self._lose()

    def _on_error(self, code: int, message: str | None) -> Step:
        self._said = {}
        step = AFTER.get(code_of(code))
        if code == ErrorCode.GROUP_ID_NOT_FOUND and self.is_in_group:
            # The group has gone with all who were in it; who joins makes it again.
            step = Step.JOIN_AGAIN
        if step is None:
            raise RefusedError(code_of(code), message or row_of(code).meaning)
        if step is Step.JOIN_AGAIN:
            self.on_fenced()
        return step

    def _subscription(self) -> dict[str, object]:
        # No expression any more is said by an empty one: None says that it did not change.
        was_said = self._said.get("subscribed_topic_regex") is not None
        wants_regex = self._regex is not None or was_said
        return {
            "subscribed_topic_names": self._topics or frozenset(),
            "subscribed_topic_regex": (self._regex or "") if wants_regex else None,
        }

    def _lose(self) -> None:
        self.member_epoch = JOIN_EPOCH
        self.owned = self.target = NOTHING
        self._said = {}

    def _become(self, state: MembershipState) -> None:
        legal = state is MembershipState.UNSUBSCRIBED or state in LEGAL[self.state]
        assert legal, f"{self.state} cannot become {state}"
        self.state = state


def _as_list(assignment: Assignment) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
        for topic_id, indexes in assignment.items()
        if indexes
    ]
