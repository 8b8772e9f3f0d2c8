"""A share group against members, topics, failing states and changes of leaders."""

import os
from typing import Any
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.jepsen.world.walk.group_requests import GROUP
from ottla.model.errors import ErrorCode
from tests.broker.groups.conftest import given
from tests.broker.groups.share.test_share_groups import CONFIG, RETRY_MS, ShareBench

MEMBERS = ("ann", "ben", "cid", "dan")
TOPICS = ("orders", "bills")
PARTITION_COUNT_MAX = 4
ROUNDS = 4
"""Heartbeats of each member within which a group at rest has settled."""


class ShareMembership(RuleBasedStateMachine):
    """Members that come, fall silent and go, while topics change and states cannot be created."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: Any = ShareBench()
        self.epochs: dict[str, int] = {}
        self.topics: dict[str, tuple[str, ...]] = {}
        self.counts: dict[str, int] = {}
        self.ids: dict[str, UUID] = {}
        self.assigned: dict[str, dict[UUID, set[int]]] = {}

    names = st.sampled_from(MEMBERS)
    topic_names = st.sampled_from(TOPICS)
    subscriptions = st.sampled_from((("orders",), ("bills",), ("bills", "orders")))

    @rule(name=names, topics=subscriptions)
    def joins(self, name: str, topics: tuple[str, ...]) -> None:
        self.topics[name] = topics
        self.hears(name, self.groups.share_heartbeat(name, 0, topics=topics))

    @rule(name=names)
    def lives(self, name: str) -> None:
        if name in self.epochs:
            self.hears(name, self.groups.share_heartbeat(name, self.epochs[name]))

    @rule(name=names)
    def leaves(self, name: str) -> None:
        if name in self.epochs:
            self.groups.share_heartbeat(name, -1)
            self.stop(name)

    @rule(elapsed_ms=st.sampled_from((1_000, RETRY_MS, CONFIG.share.session_timeout_ms)))
    def time_passes(self, elapsed_ms: int) -> None:
        self.groups.pass_time(elapsed_ms)

    @rule(name=topic_names)
    def topic_grows(self, name: str) -> None:
        count = self.counts.get(name, 0)
        if count == 0:
            self.ids[name] = self.groups.make_topic(name, 1)
        elif count < PARTITION_COUNT_MAX:
            self.groups.grow_topic(name, count + 1)
        self.counts[name] = min(count + 1, PARTITION_COUNT_MAX)

    @rule(name=topic_names)
    def topic_is_deleted(self, name: str) -> None:
        if self.counts.pop(name, 0):
            self.groups.drop_topic(name)

    @rule(code=st.sampled_from((ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE)))
    def states_fail_or_not(self, code: ErrorCode) -> None:
        self.groups.states.code = code

    @rule(is_answering=st.booleans())
    def states_answer_late(self, is_answering: bool) -> None:
        if is_answering:
            self.groups.states.answer_all()
        self.groups.states.is_answering = is_answering

    @rule()
    def leader_changes(self) -> None:
        self.groups.restart()

    @rule()
    def group_is_deleted(self) -> None:
        self.groups.delete()

    def hears(self, name: str, asked: Any) -> None:
        answer = asked.answer
        if asked.code is not ErrorCode.NONE:
            self.stop(name)
            return
        self.epochs[name] = answer.member_epoch
        if answer.assignment is not None:
            self.assigned[name] = given(answer) or {}

    def stop(self, name: str) -> None:
        self.epochs.pop(name, None)
        self.assigned.pop(name, None)

    @invariant()
    def replayed_state_is_the_live_state(self) -> None:
        self.groups.check_replay()

    @invariant()
    def only_initialised_partitions_are_assigned(self) -> None:
        group = self.groups.shard.shares.find(GROUP)
        if group is None:
            return
        known = group.partitions.initialized
        for member_id, target in group.targets.items():
            assert member_id in group.members
            for topic_id, indexes in target.items():
                is_deleted = topic_id not in self.groups.topics.image.topics
                assert is_deleted or indexes <= known[topic_id].partitions

    def teardown(self) -> None:
        """Let everything work: each partition of a subscribed topic then has a member."""
        groups = self.groups
        groups.states.code = ErrorCode.NONE
        groups.states.answer_all()
        groups.pass_time(RETRY_MS)
        for _ in range(ROUNDS):
            for name in list(self.epochs):
                self.lives(name)
        group = groups.shard.shares.find(GROUP)
        if group is None or not group.members:
            return
        # Members whose client does not know of them sends no heartbeats.
        if set(group.members) != set(self.epochs):
            return
        wanted = {
            (self.ids[topic], index)
            for name in self.epochs
            for topic in self.topics[name]
            for index in range(self.counts.get(topic, 0))
        }
        found = {
            (topic_id, index)
            for name in self.epochs
            for topic_id, indexes in self.assigned.get(name, {}).items()
            for index in indexes
        }
        assert found == wanted


TestShareMembership = ShareMembership.TestCase
TestShareMembership.settings = settings(
    max_examples=200 if os.environ.get("OTTLA_FAULTS") == "full" else 40,
    stateful_step_count=40,
    deadline=None,
)
