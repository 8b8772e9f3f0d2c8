"""State machine of one group member by the consumer protocol (KIP-848).

Pure. The coordinator assigns the partitions. The member sends heartbeats, which contain only the
fields that have changed since the previous heartbeat. A heartbeat response contains the member
epoch and, after a change, the target assignment. The member gives up partitions outside the target
assignment and starts reading the new ones. It then reports the partitions that it owns, which
acknowledges the target.

Invariants:
- OneEpoch: the owned partitions belong to the member epoch. A member that loses its epoch loses
    its partitions.
- AcknowledgedIsOwned: a heartbeat reports only partitions that the member is already reading.
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
"""Member epoch that a static member sends when it leaves temporarily. The coordinator reserves the
member's partitions until it returns."""

Assignment: TypeAlias = Mapping[UUID, frozenset[int]]
NOTHING: Assignment = {}


class MembershipState(Enum):
    """States of a group member's membership, with Kafka's names."""

    UNSUBSCRIBED = auto()
    JOINING = auto()
    RECONCILING = auto()
    """State in which the target assignment differs from the owned partitions."""
    ACKNOWLEDGING = auto()
    """State in which the owned partitions have changed, and no heartbeat has reported the change
    yet."""
    STABLE = auto()
    FENCED = auto()
    """State after the coordinator has fenced the member epoch. The member joins again after it has
    notified the application that all partitions are lost."""
    STALE = auto()
    """State after the member has left because the application does not poll. The member joins again
    with the next poll."""


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
"""Allowed transitions between the states of a member. In addition, every state may change to
UNSUBSCRIBED."""

AFTER = {
    ErrorCode.NONE: Step.GO_ON,
    ErrorCode.FENCED_MEMBER_EPOCH: Step.JOIN_AGAIN,
    ErrorCode.UNKNOWN_MEMBER_ID: Step.JOIN_AGAIN,
    ErrorCode.NOT_COORDINATOR: Step.FIND_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Step.FIND_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT: Step.FIND_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Step.WAIT,
}
"""Next step of a group member for each error code in a heartbeat response. Other codes end the
membership with an error."""


class ConsumerProtocolMember:
    """One group member of the consumer protocol: its id, epoch, owned partitions and target
    assignment."""

    def __init__(self, group_id: str, member_id: str, config: ConsumerConfig) -> None:
        self.group_id = group_id
        self.member_id = member_id
        """Member id, which the member generates itself and keeps until its process ends
        (KIP-1082)."""
        self.member_epoch = JOIN_EPOCH
        self.state = MembershipState.UNSUBSCRIBED
        self.owned: Assignment = NOTHING
        self.target: Assignment = NOTHING
        self.heartbeat_interval_ms = config.heartbeat_interval_ms
        """Heartbeat interval in ms that the coordinator requested. Before the coordinator's first
        response, it is the configured interval."""
        self._config = config
        self._topics: frozenset[str] | None = None
        self._regex: str | None = None
        self._said: dict[str, object] = {}
        """Fields that the coordinator knows from earlier heartbeats. Empty if the last heartbeat
        may not have arrived."""

    @property
    def is_in_group(self) -> bool:
        """True if the member has a member epoch."""
        return self.state in IN_GROUP

    @property
    def is_heartbeat_due(self) -> bool:
        """True if the member should send the next heartbeat at once, because it reports a
        change."""
        if self.state in (MembershipState.JOINING, MembershipState.ACKNOWLEDGING):
            return True
        return self.is_in_group and any(
            self._said.get(name, value) != value for name, value in self._subscription().items()
        )

    def subscribe(self, topics: Collection[str] | None, regex: str | None) -> None:
        """Replace the subscription by topic names, or by an RE2 expression that the coordinator
        matches against topic names."""
        self._topics = None if topics is None else frozenset(topics)
        self._regex = regex

    def join(self) -> None:
        """Start to join the group, or to join it again. The member then owns no partitions."""
        self._become(MembershipState.JOINING)
        self._lose()

    def heartbeat_request(self) -> ConsumerGroupHeartbeatRequest:
        """Return the next heartbeat request.  Only one heartbeat may be in flight at a time."""
        assert self.is_in_group or self.state is MembershipState.JOINING, (
            f"{self.state} sends no heartbeat"
        )
        fields: dict[str, object] = {
            "rebalance_timeout_ms": self._config.poll_interval_ms_max,
            **self._subscription(),
            "server_assignor": self._config.group_remote_assignor,
            "rack_id": self._config.client_rack or None,
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
        """Process the response to a heartbeat, and return the member's next step.  Raises
        RefusedError for a permanent error."""
        if not self.is_in_group and self.state is not MembershipState.JOINING:
            return Step.GO_ON  # the response to a heartbeat sent before the loss of the epoch
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
        """Record that a heartbeat got no response. The next heartbeat contains all fields, because
        the coordinator may not have received the previous heartbeat."""
        self._said = {}

    def next_owned(self, known: Collection[UUID]) -> Assignment:
        """Return the partitions of the target assignment that the member should own next.

        Heartbeat responses identify topics by id. If the name of a topic is not known yet, only
        partitions that the member already owns are included.
        """
        return {
            topic_id: indexes
            for topic_id, indexes in self.target.items()
            if topic_id in known or self.owned.get(topic_id) == indexes
        }

    def on_reconciled(self, owned: Assignment) -> None:
        """Record that the member now reads exactly the partitions `owned`."""
        assert self.is_in_group, f"{self.state} owns nothing"
        self.owned = dict(owned)
        if self.state is MembershipState.STABLE and self.owned == self.target:
            return
        if self.state is not MembershipState.ACKNOWLEDGING:
            self._become(MembershipState.ACKNOWLEDGING)

    def on_fenced(self) -> None:
        """Discard the member epoch and all partitions, because the coordinator has, or may have,
        removed the member from the group."""
        self._become(MembershipState.FENCED)
        self._lose()

    def leave_request(self, *, is_final: bool = False) -> ConsumerGroupHeartbeatRequest:
        """Return the heartbeat request by which the member leaves the group.

        A static member leaves only temporarily if `is_final` is False.
        """
        returns = self._config.group_instance_id is not None and not is_final
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=STATIC_LEAVE_EPOCH if returns else LEAVE_EPOCH,
            instance_id=self._config.group_instance_id,
        )

    def on_left(self, *, is_stale: bool = False) -> None:
        """Record that the member has left: permanently or, if `is_stale`, until the application
        polls again."""
        self._become(MembershipState.STALE if is_stale else MembershipState.UNSUBSCRIBED)
        self._lose()

    def _on_error(self, code: int, message: str | None) -> Step:
        self._said = {}
        step = AFTER.get(code_of(code))
        if code == ErrorCode.GROUP_ID_NOT_FOUND and self.is_in_group:
            # The group was deleted with its members; the next join creates it again.
            step = Step.JOIN_AGAIN
        if step is None:
            raise RefusedError(code_of(code), message or row_of(code).meaning)
        if step is Step.JOIN_AGAIN:
            self.on_fenced()
        return step

    def _subscription(self) -> dict[str, object]:
        # An empty expression removes the subscription by expression; null means that it is
        # unchanged.
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
