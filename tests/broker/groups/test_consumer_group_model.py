"""Members of a consumer group that do anything at any time, answers lost, coordinators replaced.

Every member is a small client that does what it is told, as a real one does: it gives up what it
is not assigned any more before it says so, and begins anew when it is fenced.  In some of the
stories there are members of the classic protocol, too, and the group goes over and back.
"""

import random
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.groups.consumer_group import ConsumerGroup
from ottla.broker.groups.consumer_member import MemberState
from ottla.broker.groups.embedded_protocol import assignment_bytes, read_assignment
from ottla.model.errors import ErrorCode
from ottla.wire.codec import encode
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

STEPS = 400
REBALANCE_MS = 20_000
FENCED = (
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
)
"""The last one is told to who comes back to a group that is a classic one by now."""
RETRIED = (ErrorCode.NOT_COORDINATOR, ErrorCode.UNRELEASED_INSTANCE_ID)
SUBSCRIPTIONS: tuple[dict[str, Any], ...] = (
    {"topics": ["orders"], "regex": ""},
    {"topics": ["orders", "bills"], "regex": ""},
    {"topics": [], "regex": "bil.*|orders"},
)
ACTS = {
    "beat": 60,
    "revoke": 40,
    "commit": 10,
    "time": 8,
    "lose": 6,
    "release": 8,
    "hold": 3,
    "come": 4,
    "leave": 2,
    "crash": 2,
    "bounce": 2,
    "subscribe": 3,
    "grow": 1,
    "topic": 2,
    "restart": 2,
}
"""What may happen, and how often beside the others."""

SAYS_ORDERS = bytes(2) + encode(ConsumerProtocolSubscription(topics=["orders"]), 0)

Partitions = frozenset[tuple[UUID, int]]


class Member:
    """One consumer: `owned` is what it works on, `assigned` what it was told to."""

    def __init__(self, groups: Any, member_id: str, instance_id: str | None) -> None:
        self.groups = groups
        self.id = member_id
        self.instance_id = instance_id
        self.epoch = 0
        self.subscription = SUBSCRIPTIONS[0]
        self.owned: Partitions = frozenset()
        self.assigned: Partitions = frozenset()
        self.asking: Any = None
        self.is_to_tell_all = True
        self.is_answered = False
        self.committing: list[tuple[tuple[UUID, int], int, Any]] = []

    def look(self) -> None:
        """Act on the answer that has come."""
        if self.asking is None or not self.asking.is_answered:
            return
        answer, self.asking = self.asking.answer, None
        code = answer if isinstance(answer, ErrorCode) else ErrorCode(answer.error_code)
        if code in FENCED:
            self.epoch, self.owned, self.assigned = 0, frozenset(), frozenset()
        elif code is not ErrorCode.NONE:
            assert code in RETRIED, code
            self.is_to_tell_all = True
        else:
            self.epoch, self.is_answered = answer.member_epoch, True
            if answer.assignment is not None:
                self.assigned = frozenset(
                    (one.topic_id, index)
                    for one in answer.assignment.topic_partitions
                    for index in one.partitions
                )

    def revoke(self) -> None:
        """Stop working on what it is not to; begin with what is new.

        A coordinator that was told that it does not own something may give that to another one:
        after that it waits for the answer before it begins with it.
        """
        self.owned = self.assigned if self.is_answered else self.owned & self.assigned

    def beat(self) -> None:
        self.look()
        if self.asking is not None:
            return
        says: dict[str, Any] = {"instance_id": self.instance_id}
        if self.epoch == 0:
            self.owned = frozenset()
        if self.epoch == 0 or self.is_to_tell_all:
            says |= {**self.subscription, "rebalance_ms": REBALANCE_MS}
        owned: dict[UUID, list[int]] = {}
        for topic_id, index in self.owned:
            owned.setdefault(topic_id, []).append(index)
        self.is_to_tell_all = self.is_answered = False
        self.asking = self.groups.beat(self.id, self.epoch, owned=owned, **says)
        self.look()

    def lose_answer(self) -> None:
        """The connection breaks: it asks again from where it was."""
        self.asking = None
        self.is_to_tell_all = True

    def leave(self) -> None:
        self.groups.beat(self.id, -1, instance_id=self.instance_id)

    def commit(self, offset: int, orders: UUID) -> None:
        for topic_id, index in self.owned:
            if topic_id == orders and self.epoch > 0:
                asked = self.groups.commit(
                    offset, member_id=self.id, generation_id=self.epoch, index=index
                )
                self.committing.append(((topic_id, index), offset, asked))


class ClassicMember(Member):
    """One consumer of the classic protocol: it stops all its work before it joins again."""

    def __init__(self, groups: Any) -> None:
        super().__init__(groups, "", None)
        self.joining: Any = None
        self.syncing: Any = None

    def look(self) -> None:
        if self.joining is not None and self.joining.is_answered:
            answer, self.joining = self.joining.answer, None
            code = answer if isinstance(answer, ErrorCode) else ErrorCode(answer.error_code)
            if code is ErrorCode.NONE:
                self.id, self.epoch = answer.member_id, answer.generation_id
                names = [one.member_id for one in answer.members]
                self.syncing = self.groups.sync(self.id, self.epoch, self.parts(names))
            elif code is ErrorCode.UNKNOWN_MEMBER_ID:
                self.id = ""
        if self.syncing is not None and self.syncing.is_answered:
            answer, self.syncing = self.syncing.answer, None
            if isinstance(answer, ErrorCode):
                self.begin_anew(answer)
            else:
                found = read_assignment(answer.assignment, self.groups.topics)
                self.owned = frozenset((t, index) for t in found for index in found[t])

    def parts(self, names: list[str]) -> dict[str, bytes]:
        """Share the topic out, as the leader of a classic group."""
        topic = self.groups.topics.image.topic("orders")
        indexes = sorted(topic.partitions)
        return {
            name: assignment_bytes(
                {topic.id: frozenset(indexes[at :: len(names)])}, b"\0\0", self.groups.topics
            )
            for at, name in enumerate(names)
        }

    def begin_anew(self, code: ErrorCode) -> None:
        self.epoch = 0
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.id = ""

    def beat(self) -> None:
        self.look()
        if self.joining is not None or self.syncing is not None:
            return
        if self.epoch == 0:
            self.owned = frozenset()
            self.joining = self.groups.join(self.id, protocols=[("range", SAYS_ORDERS)])
            self.look()
            return
        code = self.groups.heartbeat(self.id, self.epoch)
        if code is not ErrorCode.NONE:
            self.begin_anew(code)

    def revoke(self) -> None:
        """It has done that."""

    def lose_answer(self) -> None:
        """Its connection is a better one."""

    def leave(self) -> None:
        self.groups.is_committing = True
        self.groups.leave((self.id, None))


class Story:
    """A group, its members, and what was acknowledged to them."""

    def __init__(self, groups: Any, seed: int, *, has_classic: bool) -> None:
        self.groups = groups
        self.has_classic = has_classic
        self.rng = random.Random(seed)
        self.orders = groups.make_topic("orders", 6)
        self.acknowledged: dict[tuple[UUID, int], int] = {}
        self.members: list[Member] = []
        self.made = 0
        for instance_id in ("i", None, None):
            self.come(instance_id)

    def come(self, instance_id: str | None = None) -> Member:
        if self.has_classic and instance_id is None and self.rng.random() < 0.5:
            self.members.append(ClassicMember(self.groups))
            return self.members[-1]
        self.made += 1
        member = Member(self.groups, f"m{self.made}", instance_id)
        member.subscription = self.rng.choice(SUBSCRIPTIONS)
        self.members.append(member)
        return member

    def step(self, at: int) -> None:
        rng, groups = self.rng, self.groups
        act = rng.choices(list(ACTS), list(ACTS.values()))[0]
        member = rng.choice(self.members)
        match act:
            case "beat":
                member.beat()
            case "revoke":
                member.revoke()
            case "commit":
                member.commit(at, self.orders)
            case "time":
                groups.pass_time(rng.choice((10, 3_000, 12_000)))
            case "leave" if len(self.members) > 1:
                self.members.remove(member)
                member.leave()
            case "crash" if len(self.members) > 1 and member.instance_id is None:
                self.members.remove(member)
            case "come" if len(self.members) < 6:
                self.come()
            case "restart":
                groups.restart()
                groups.is_committing = True
            case "hold":
                groups.is_committing = False
            case "release":
                groups.is_committing = True
                groups.commit_log()
            case "lose":
                member.lose_answer()
            case "subscribe":
                member.subscription = rng.choice(SUBSCRIPTIONS)
                member.is_to_tell_all = True
            case "bounce" if member.instance_id is not None and member.epoch > 0:
                self.members.remove(member)
                groups.beat(member.id, -2, instance_id=member.instance_id)
                self.come(member.instance_id)
            case "grow":
                self.grow()
            case "topic":
                self.make_or_drop()
        for one in self.members:
            one.look()
        self.check()

    def grow(self) -> None:
        count = len(self.groups.topics.image.topic("orders").partitions)
        if count < 12:
            self.groups.grow_topic("orders", count + 1)

    def make_or_drop(self) -> None:
        if self.groups.topics.image.topic("bills") is None:
            self.groups.make_topic("bills", 3)
        else:
            self.groups.drop_topic("bills")

    def check(self) -> None:
        """Nobody has a partition that another one has; no acknowledged commit goes back."""
        group = self.groups.shard.groups.get("group")
        owners: dict[tuple[UUID, int], str] = {}
        for member in self.members:
            if not isinstance(group, ConsumerGroup):
                break
            if member.id not in group.members or member.id in group.told_to_rejoin:
                continue  # it is out, and will hear of that
            if member.epoch == 0:
                continue
            for partition in member.owned:
                other = owners.setdefault(partition, member.id)
                assert other == member.id, f"{partition} is with {other} and {member.id}"
                topic_id, index = partition
                assert group.owner_of(topic_id, index) == member.id
        for member in self.members:
            for partition, offset, asked in member.committing:
                if asked.is_answered and asked.answer == [[ErrorCode.NONE]]:
                    before = self.acknowledged.get(partition, -1)
                    self.acknowledged[partition] = max(offset, before)
            member.committing = [one for one in member.committing if not one[2].is_answered]
        for (_, index), offset in self.acknowledged.items():
            found = self.groups.shard.offsets.find("group", "orders", index)
            assert found is not None
            assert found.offset >= offset

    def settle(self) -> None:
        """In the end those who are left share all they want evenly, each partition once."""
        self.groups.is_committing = True
        self.groups.commit_log()
        self.made += 1
        last = Member(self.groups, f"m{self.made}", None)
        last.subscription = self.rng.choice(SUBSCRIPTIONS)
        self.members.append(last)
        for _ in range(60):
            for member in self.members:
                member.beat()
                member.revoke()
            self.check()
            self.groups.pass_time(2_000)
        self.groups.check_replay()
        group = self.groups.consumers
        assert group.state == "Stable"
        assert set(group.members) == {member.id for member in self.members}
        owned = sorted(one for member in self.members for one in member.owned)
        image = self.groups.topics.image
        wanted = [image.topic(name) for name in group.subscribed_topics()]
        assert owned == sorted(
            (topic.id, index) for topic in wanted if topic is not None for index in topic.partitions
        )
        assert all(one.state is MemberState.STABLE for one in group.members.values())
        counts: dict[frozenset[str], list[int]] = {}
        for member in self.members:
            topics = group.topics_of(group.members[member.id])
            counts.setdefault(topics, []).append(len(member.owned))
        assert all(max(found) - min(found) <= 1 for found in counts.values()), counts


@pytest.mark.parametrize("has_classic", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_whatever_members_do(make_groups: Any, seed: int, has_classic: bool) -> None:
    story = Story(make_groups(), seed, has_classic=has_classic)
    for at in range(STEPS):
        story.step(at)
    story.settle()
