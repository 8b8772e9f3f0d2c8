"""State machine of one member of a share group (KIP-932).

Pure. The coordinator assigns partitions, and the member reads them at once. Partitions are never
revoked, and several members may have the same partition. A heartbeat contains only the fields that
have changed since the previous heartbeat.
"""

from collections.abc import Collection

from ottla.client.groups.consumer_member import (
    AFTER,
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NOTHING,
    Assignment,
)
from ottla.client.groups.group_member import Step
from ottla.model.errors import ErrorCode, RefusedError, code_of, row_of
from ottla.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from ottla.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse

FIRST_INTERVAL_MS = 5_000
"""Interval between heartbeats, in ms, until the coordinator has returned the interval to use."""
HASTY_INTERVAL_MS = 500
"""Interval, in ms, between the first heartbeats of a member without partitions. The coordinator
assigns partitions shortly after the first heartbeat, when it has initialised the share state of the
partitions."""
HASTY_COUNT = 10


class ShareGroupMember:
    """One member of a share group, with its epoch, subscription and assignment."""

    def __init__(self, group_id: str, member_id: str, rack: str | None) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.member_epoch = JOIN_EPOCH
        self.assignment: Assignment = NOTHING
        """Partitions that the member reads, by topic id."""
        self._interval_ms = FIRST_INTERVAL_MS
        self._hasty_left = HASTY_COUNT
        """Number of further heartbeats that are sent at the shorter interval while the member has
        no partitions."""
        self._rack = rack
        self._topics: tuple[str, ...] = ()
        self._sent_topics: tuple[str, ...] | None = None
        """Topics that the coordinator knows from earlier heartbeats. None if the last heartbeat may
        not have arrived."""

    @property
    def topics(self) -> tuple[str, ...]:
        """Names of the subscribed topics, sorted."""
        return self._topics

    @property
    def is_heartbeat_due(self) -> bool:
        """True if the member should send the next heartbeat at once, because it reports a
        change."""
        return self._sent_topics != self._topics

    @property
    def heartbeat_interval_ms(self) -> int:
        """Time until the next heartbeat, in ms."""
        if self._hasty_left > 0 and not self.assignment:
            return min(HASTY_INTERVAL_MS, self._interval_ms)
        return self._interval_ms

    def subscribe(self, topics: Collection[str]) -> None:
        """Replace the subscribed topics."""
        self._topics = tuple(sorted(set(topics)))
        self._hasty_left = HASTY_COUNT

    def heartbeat_request(self) -> ShareGroupHeartbeatRequest:
        """Return the next heartbeat request.  Only one heartbeat may be in flight at a time."""
        assert self._topics, "a member has a subscription"
        is_join = self.member_epoch == JOIN_EPOCH
        request = ShareGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=self.member_epoch
        )
        if is_join:
            request.rack_id = self._rack
        if is_join or self._sent_topics != self._topics:
            request.subscribed_topic_names = list(self._topics)
        self._sent_topics = self._topics
        return request

    def leave_request(self) -> ShareGroupHeartbeatRequest:
        """Return the heartbeat request by which the member leaves the group."""
        return ShareGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=LEAVE_EPOCH
        )

    def on_answer(self, answer: ShareGroupHeartbeatResponse) -> Step:
        """Process the response to a heartbeat, and return the member's next step.

        Raises RefusedError for a permanent error.
        """
        code = code_of(answer.error_code)
        if code != ErrorCode.NONE:
            return self._on_error(code, answer.error_message)
        self.member_epoch = answer.member_epoch
        if answer.heartbeat_interval_ms > 0:
            self._interval_ms = answer.heartbeat_interval_ms
        self._hasty_left -= 1
        if answer.assignment is not None:
            self.assignment = {
                one.topic_id: frozenset(one.partitions)
                for one in answer.assignment.topic_partitions
                if one.partitions
            }
        return Step.GO_ON

    def on_no_answer(self) -> None:
        """Record that a heartbeat got no response. The next heartbeat contains all fields, because
        the coordinator may not have received the previous heartbeat."""
        self._sent_topics = None

    def _on_error(self, code: ErrorCode, message: str | None) -> Step:
        self._sent_topics = None
        step = AFTER.get(code)
        if step is None:
            raise RefusedError(code, message or row_of(code).meaning)
        if step is Step.JOIN_AGAIN:
            self.member_epoch, self.assignment = JOIN_EPOCH, NOTHING
            self._hasty_left = HASTY_COUNT
        return step
