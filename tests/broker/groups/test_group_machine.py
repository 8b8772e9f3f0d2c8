"""A consumer group and its offsets, against members that obey their assignments."""

import os
from typing import Any
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.jepsen.world.walk.group_requests import REBALANCE_MS, GroupRequest
from ottla.model.errors import ErrorCode
from ottla.model.settings.group_overrides import GroupSettings
from tests.broker.groups.conftest import Groups, given

MEMBERS = ("ann", "ben", "cid")
TOPICS = ("orders", "bills")
SESSION_MS = GroupSettings().session_timeout_ms
PARTITION_COUNT_MAX = 6
ROUNDS = 8
"""Heartbeats of each member within which a group at rest has settled."""

Place = tuple[UUID, int]


class Member:
    """A member as a client that revokes first, and owns only partitions assigned to it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.epoch = 0
        """0: it has not joined, or was fenced."""
        self.owned: set[Place] = set()
        self.topics: tuple[str, ...] = ()
        self.heard_ms = 0
        self.joining: GroupRequest | None = None

    def stop(self) -> None:
        """Give everything up: it is out."""
        self.epoch, self.owned, self.joining = 0, set(), None


class Membership(RuleBasedStateMachine):
    """Members that come, move, commit, fall silent and go, while topics grow and leaders change."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: Any = Groups()
        self.members = {name: Member(name) for name in MEMBERS}
        self.committed: dict[tuple[str, int], int] = {}
        self.ids: dict[str, UUID] = {}
        self.counts: dict[str, int] = {}

    @initialize()
    def makes_topics(self) -> None:
        for name in TOPICS:
            self.ids[name] = self.groups.make_topic(name, 2)
            self.counts[name] = 2

    names = st.sampled_from(MEMBERS)
    subscriptions = st.sampled_from((("orders",), ("bills",), ("bills", "orders")))

    # ---- members

    @rule(name=names, topics=subscriptions)
    def joins(self, name: str, topics: tuple[str, ...]) -> None:
        member = self.members[name]
        if member.epoch == 0:
            member.topics = topics
            asked = self.groups.consumer_heartbeat(
                name, 0, owned={}, topics=topics, rebalance_ms=REBALANCE_MS
            )
            self.hears(member, asked)

    @rule(name=names)
    def lives(self, name: str) -> None:
        self.beats(self.members[name])

    @rule(name=names, topics=subscriptions)
    def subscribes(self, name: str, topics: tuple[str, ...]) -> None:
        member = self.members[name]
        if member.epoch > 0:
            member.topics = topics
            self.beats(member, topics=topics)

    @rule(name=names)
    def leaves(self, name: str) -> None:
        member = self.members[name]
        if member.epoch > 0:
            self.groups.consumer_heartbeat(name, -1)
            member.stop()

    def beats(self, member: Member, **more: Any) -> None:
        if member.epoch > 0:
            owned: dict[UUID, list[int]] = {}
            for topic_id, index in sorted(member.owned):
                owned.setdefault(topic_id, []).append(index)
            self.hears(
                member,
                self.groups.consumer_heartbeat(member.name, member.epoch, owned=owned, **more),
            )

    def hears(self, member: Member, asked: GroupRequest) -> None:
        """Apply a response: revoke first, then own the assigned partitions."""
        assert asked.is_answered
        member.heard_ms = self.groups.mono_ms
        if asked.code is not ErrorCode.NONE:
            assert asked.code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
            member.stop()
            return
        assert asked.answer.member_epoch >= member.epoch, "the epoch of a member recedes"
        member.epoch = asked.answer.member_epoch
        assigned = given(asked.answer)
        if assigned is not None:
            member.owned = {(topic, index) for topic in assigned for index in assigned[topic]}

    # ---- offsets

    @rule(name=names, topic=st.sampled_from(TOPICS), offset=st.integers(0, 50), back=st.booleans())
    def commits(self, name: str, topic: str, offset: int, back: bool) -> None:
        """Commit with the member's epoch, or with an old one."""
        member = self.members[name]
        epoch = member.epoch + 7 if back else member.epoch
        asked = self.groups.commit(
            offset, member_id=name, generation_id=epoch, topic=topic, topic_id=self.ids[topic]
        )
        if asked.answer == [[ErrorCode.NONE]]:
            assert epoch > 0
            assert not back, "an epoch that was never given commits"
            self.committed[topic, 0] = offset
        else:
            assert back or not self.is_known(member), asked.answer

    def is_known(self, member: Member) -> bool:
        """Return whether the coordinator has the member in the epoch that it knows."""
        found = self.groups.consumers.members.get(member.name) if self.has_group else None
        return found is not None and found.member_epoch == member.epoch > 0

    @property
    def has_group(self) -> bool:
        return bool(self.groups.shard.groups)

    # ---- the world

    @rule(topic=st.sampled_from(TOPICS))
    def grows(self, topic: str) -> None:
        if self.counts[topic] < PARTITION_COUNT_MAX:
            self.counts[topic] += 1
            self.groups.grow_topic(topic, self.counts[topic])

    @rule(elapsed_ms=st.sampled_from((1_000, SESSION_MS // 2, SESSION_MS + 1)))
    def waits(self, elapsed_ms: int) -> None:
        """Let time pass; a member that heard nothing for its session stops, and may join again."""
        for member in self.members.values():
            if self.groups.mono_ms + elapsed_ms - member.heard_ms >= SESSION_MS:
                member.stop()
        self.groups.pass_time(elapsed_ms)

    @rule()
    def changes_the_leader(self) -> None:
        self.groups.restart()

    @rule()
    def comes_to_rest(self) -> None:
        """Let all members live on: all partitions are owned, and shared evenly."""
        for _ in range(ROUNDS):
            for member in self.members.values():
                self.beats(member)
            # The coordinator may still wait for members that have stopped.
            self.groups.pass_time(SESSION_MS // 4)
        living = [member for member in self.members.values() if member.epoch > 0]
        for topic in TOPICS:
            mine = [member for member in living if topic in member.topics]
            places = {(self.ids[topic], index) for index in range(self.counts[topic])}
            owned = set().union(*(member.owned for member in mine)) & places
            assert owned == (places if mine else set()), topic
        if len({member.topics for member in living}) == 1:
            shares = [len(member.owned) for member in living]
            assert max(shares) - min(shares) <= 1

    # ---- always

    @invariant()
    def one_owner(self) -> None:
        owned = [place for member in self.members.values() for place in member.owned]
        assert len(owned) == len(set(owned)), "OneOwner"

    @invariant()
    def what_was_committed_is_found(self) -> None:
        for (topic, index), offset in self.committed.items():
            found = self.groups.fetched(topic, index)
            assert found is not None
            assert found.offset == offset

    @invariant()
    def the_log_says_what_the_coordinator_knows(self) -> None:
        if self.has_group:
            self.groups.check_replay()


TestMembership = Membership.TestCase
TestMembership.settings = settings(
    max_examples=300 if os.environ.get("OTTLA_FAULTS") == "full" else 40,
    stateful_step_count=40,
    deadline=None,
)
