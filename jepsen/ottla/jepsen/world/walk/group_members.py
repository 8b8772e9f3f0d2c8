"""Members of a group, implemented as small clients that react to responses like real consumers.

A member of the consumer protocol stops work on revoked partitions before it reports their release,
and joins again when it is fenced. A member of the classic protocol stops all work before it joins
again.
"""

from typing import Any
from uuid import UUID

from ottla.broker.groups.consumer.embedded_protocol import assignment_bytes, read_assignment
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.walk.group_host import GroupHost
from ottla.jepsen.world.walk.group_requests import GroupRequest
from ottla.model.errors import ErrorCode
from ottla.wire.codec import encode
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

FENCED = (
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
)
"""Error codes that fence a group member. GROUP_ID_NOT_FOUND is sent to a member that returns to a
group which has become a classic group."""

REBALANCE_MS = 20_000

RETRIED = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.UNRELEASED_INSTANCE_ID,
)
"""Error codes after which a group member sends its full state again. COORDINATOR_NOT_AVAILABLE is
sent if the outcome is unknown because a write was not committed in time."""

SUBSCRIPTIONS: tuple[dict[str, Any], ...] = (
    {"topics": ["orders"], "regex": ""},
    {"topics": ["orders", "bills"], "regex": ""},
    {"topics": [], "regex": "bil.*|orders"},
)

SAYS_ORDERS = bytes(2) + encode(ConsumerProtocolSubscription(topics=["orders"]), 0)

Place = tuple[UUID, int]
Places = frozenset[Place]


class WalkedMember:
    """Base class of simulated group members of either protocol. `owned` are the partitions that the
    member works on."""

    is_classic = False

    def __init__(self, host: GroupHost, member_id: str, instance_id: str | None) -> None:
        self.host = host
        self.id = member_id
        self.instance_id = instance_id
        self.epoch = 0
        """Member epoch or generation of the member. 0 if the member is not in the group."""
        self.owned: Places = frozenset()
        self.committing: list[tuple[Place, int, GroupRequest]] = []

    @property
    def is_waiting(self) -> bool:
        """True if the group member waits for a response that changes its partitions."""
        return False

    def look(self) -> None:
        """Handle the responses to this group member that have arrived."""

    def step(self) -> None:
        """Do the next action of a consumer in the group: send the request that is due."""

    def revoke(self) -> None:
        """Remove partitions that the coordinator has revoked from `owned`, and add newly assigned
        ones.

        Does nothing for a classic member, whose `owned` changes in `look`.
        """

    def lose_answer(self) -> None:
        """Close the group member's connection, so that the response in flight is lost."""

    def leave(self) -> None:
        """Leave the group by a request to the coordinator."""

    def commit(self, orders: UUID, offset: int) -> None:
        """Commit `offset` for each partition that the group member owns in the topic with the id
        `orders`. Does nothing if the member is not in the group."""
        for topic_id, index in sorted(self.owned):
            if topic_id == orders and self.epoch > 0:
                asked = self.host.commit(
                    offset,
                    topic_id=topic_id,
                    index=index,
                    version=9,
                    member_id=self.id,
                    generation_id=self.epoch,
                    instance_id=self.instance_id,
                )
                self.committing.append(((topic_id, index), offset, asked))


class WalkedConsumerMember(WalkedMember):
    """Simulated group member that uses the consumer protocol. `assigned` are the partitions that
    the coordinator assigned to it."""

    def __init__(
        self,
        host: GroupHost,
        member_id: str,
        instance_id: str | None,
        subscription: dict[str, Any],
    ) -> None:
        super().__init__(host, member_id, instance_id)
        self.subscription = subscription
        self.assigned: Places = frozenset()
        self.is_to_tell_all = True
        self._asking: GroupRequest | None = None
        self._is_answered = False

    def look(self) -> None:
        """Handle the coordinator's response to the member's heartbeat, if it has arrived."""
        if self._asking is None or not self._asking.is_answered:
            return
        asked, self._asking = self._asking, None
        code = asked.code
        if code in FENCED:
            self.epoch, self.owned, self.assigned = 0, frozenset(), frozenset()
            return
        if code is not ErrorCode.NONE:
            if code not in RETRIED:
                raise Violation("NoRefusalWithoutReason", f"{self.id} received {code.name}")
            self.is_to_tell_all = True
            return
        answer = asked.answer
        self.epoch, self._is_answered = answer.member_epoch, True
        if answer.assignment is not None:
            self.assigned = frozenset(
                (one.topic_id, index)
                for one in answer.assignment.topic_partitions
                for index in one.partitions
            )

    def revoke(self) -> None:
        """Remove partitions that the coordinator has revoked from `owned`. Add newly assigned ones
        only if the coordinator has answered the member's last report.

        A coordinator may assign a partition to another member once this member has reported that it
        does not own the partition.
        """
        self.owned = self.assigned if self._is_answered else self.owned & self.assigned

    def step(self) -> None:
        """Send a ConsumerGroupHeartbeat to the coordinator, unless one is in flight."""
        self.look()
        if self._asking is not None:
            return
        says: dict[str, Any] = {"instance_id": self.instance_id}
        if self.epoch == 0:
            self.owned = frozenset()
        if self.epoch == 0 or self.is_to_tell_all:
            says |= {**self.subscription, "rebalance_ms": REBALANCE_MS}
        owned: dict[UUID, list[int]] = {}
        for topic_id, index in sorted(self.owned):
            owned.setdefault(topic_id, []).append(index)
        self.is_to_tell_all = self._is_answered = False
        self._asking = self.host.consumer_heartbeat(self.id, self.epoch, owned=owned, **says)
        self.look()

    def lose_answer(self) -> None:
        """Drop the pending response to the member's heartbeat. The next heartbeat contains the
        member's full state."""
        self._asking = None
        self.is_to_tell_all = True

    def leave(self) -> None:
        """Leave the group with a last heartbeat to the coordinator."""
        self.host.consumer_heartbeat(self.id, -1, instance_id=self.instance_id)
        self._asking = None
        self.epoch, self.owned, self.assigned = 0, frozenset(), frozenset()


class WalkedClassicMember(WalkedMember):
    """Simulated group member that uses the classic protocol. If it leads the group, it assigns the
    partitions of the topic `orders`."""

    is_classic = True

    def __init__(self, host: GroupHost, instance_id: str | None) -> None:
        super().__init__(host, "", instance_id)
        self._joining: GroupRequest | None = None
        self._syncing: GroupRequest | None = None
        self._topic_size = 0
        """Number of partitions of the topic `orders` when the member joined. It joins again when
        the topic has grown."""
        self._is_first_join = True

    @property
    def is_waiting(self) -> bool:
        """True if the group member is between two generations of the group."""
        return self._joining is not None or self._syncing is not None

    def look(self) -> None:
        """Handle the coordinator's responses to the member's requests. After a response to
        JoinGroup, send a SyncGroup at once."""
        if self._joining is not None and self._joining.is_answered:
            asked, self._joining = self._joining, None
            code = asked.code
            if code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                self.id = asked.answer.member_id
            if code is ErrorCode.NONE:
                self._sync(asked.answer)
            elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                self._forget_id()
        if self._syncing is not None and self._syncing.is_answered:
            asked, self._syncing = self._syncing, None
            if isinstance(asked.answer, ErrorCode):
                self._rejoin(asked.answer)
            else:
                found = read_assignment(asked.answer.assignment, self.host.topics)
                self.owned = frozenset((t, index) for t in found for index in found[t])

    def _sync(self, answer: Any) -> None:
        self.epoch = answer.generation_id
        parts: dict[str, bytes] = {}
        topic = self.host.topics.image.topic("orders")
        self._topic_size = 0 if topic is None else len(topic.partitions)
        if self.instance_id is not None and self._is_first_join and not answer.members:
            # It has rejoined a generation that it perhaps led. That generation may not know that
            # the topic has grown since (KIP-814 leaves that open), so it joins once more.
            self._topic_size = -1
        self._is_first_join = False
        if answer.leader == self.id and topic is not None:
            indexes = sorted(topic.partitions)
            names = [one.member_id for one in answer.members]
            parts = {
                name: assignment_bytes(
                    {topic.id: frozenset(indexes[at :: len(names)])}, b"\0\0", self.host.topics
                )
                for at, name in enumerate(names)
            }
        self._syncing = self.host.sync(
            self.id, self.epoch, parts, group_instance_id=self.instance_id
        )

    def _rejoin(self, code: ErrorCode) -> None:
        self.epoch = 0
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self._forget_id()

    def _forget_id(self) -> None:
        self.id, self._is_first_join = "", True

    def step(self) -> None:
        """Send a JoinGroup to the coordinator if the member must join, or else a heartbeat."""
        self.look()
        if self.is_waiting:
            return
        topic = self.host.topics.image.topic("orders")
        if topic is not None and len(topic.partitions) != self._topic_size:
            self.epoch = 0
        if self.epoch == 0:
            self.owned = frozenset()
            self._joining = self.host.join(
                self.id,
                instance_id=self.instance_id,
                protocols=(("range", SAYS_ORDERS),),
                version=5,
                rebalance_ms=REBALANCE_MS,
            )
            self.look()
            return
        code = self.host.heartbeat(self.id, self.epoch, self.instance_id)
        if code is not ErrorCode.NONE:
            self._rejoin(code)

    def leave(self) -> None:
        """Send a LeaveGroup with the member's current id to the coordinator."""
        if self.id:
            self.host.leave((self.id, self.instance_id))
        self._joining = self._syncing = None
        self.epoch, self.owned = 0, frozenset()
        self._forget_id()
