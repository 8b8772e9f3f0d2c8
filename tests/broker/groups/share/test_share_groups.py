"""Membership of share groups, and the partitions that they consume (KIP-932)."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.coordinators.effects import CoordinatorRecord
from ottla.broker.coordinators.share_persister import SharePartitionKey
from ottla.broker.groups.group_records import lasting_offset_value, offset_key
from ottla.broker.groups.share.partition_states import ROUND_MAX
from ottla.broker.groups.share.share_group import ShareGroup
from ottla.jepsen.world.walk.group_requests import GROUP, GroupRequest
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID
from ottla.model.settings.group_overrides import GroupSettings
from ottla.model.settings.groups import GroupConfig
from ottla.model.settings.share_groups import ShareGroupConfig
from tests.broker.groups.conftest import Groups, given

CONFIG = GroupConfig(share=ShareGroupConfig(assignment_interval_ms=0, size_max=3))
RETRY_MS = CONFIG.share.initialize_retry_interval_ms
SESSION_MS = CONFIG.share.session_timeout_ms


class ShareBench(Groups):
    """Bench with one share group."""

    def __init__(self) -> None:
        super().__init__(CONFIG)

    @property
    def share(self) -> ShareGroup:
        group = self.shard.groups[GROUP]
        assert isinstance(group, ShareGroup)
        return group

    def come(self, member_id: str, topics: Sequence[str] = ("orders",)) -> GroupRequest:
        """Join the group."""
        return self.share_heartbeat(member_id, 0, topics=topics)

    def beat(self, member_id: str, epoch: int | None = None, **more: Any) -> GroupRequest:
        """Send a heartbeat, with the current epoch unless another is given."""
        known = self.share.members[member_id].member_epoch if epoch is None else epoch
        return self.share_heartbeat(member_id, known, **more)

    def settled(self, *member_ids: str, topics: Sequence[str] = ("orders",)) -> dict[str, Any]:
        """Join with these members, and return the assignment of each once it has settled."""
        for member_id in member_ids:
            assert self.come(member_id, topics).code is ErrorCode.NONE
        for member_id in member_ids:
            self.beat(member_id)
        return {one: self.share.members[one].assigned for one in member_ids}


@pytest.fixture
def shares() -> ShareBench:
    return ShareBench()


def key(topic_id: UUID, index: int) -> SharePartitionKey:
    return SharePartitionKey(GROUP, topic_id, index)


# ---- members


def test_a_member_gets_its_partitions_once_their_states_exist(shares: ShareBench) -> None:
    topic_id = shares.make_topic("orders", 2)
    shares.states.is_answering = False
    joined = shares.come("a").answer
    assert (joined.member_id, joined.member_epoch, given(joined)) == ("a", 1, {})
    assert joined.heartbeat_interval_ms == CONFIG.share.heartbeat_interval_ms
    assert given(shares.beat("a").answer) is None, "nothing is new"
    shares.states.answer_all()
    answer = shares.beat("a").answer
    assert (answer.member_epoch, given(answer)) == (2, {topic_id: {0, 1}})
    assert shares.states.states == {key(topic_id, 0): (1, -1), key(topic_id, 1): (1, -1)}
    shares.check_replay()


def test_members_share_a_partition_and_nothing_is_revoked(shares: ShareBench) -> None:
    topic_id = shares.make_topic("orders", 1)
    found = shares.settled("a", "b", "c")
    assert list(found.values()) == [{topic_id: {0}}] * 3


def test_an_answer_has_the_assignment_if_it_changed_or_the_request_is_full(
    shares: ShareBench,
) -> None:
    topic_id = shares.make_topic("orders", 1)
    shares.settled("a")
    assert given(shares.beat("a").answer) is None
    assert given(shares.beat("a", topics=["orders"]).answer) == {topic_id: {0}}
    assert given(shares.beat("a", 0, topics=["orders"]).answer) == {topic_id: {0}}


def test_the_previous_epoch_is_accepted_and_others_are_fenced(shares: ShareBench) -> None:
    shares.make_topic("orders", 1)
    shares.settled("a")
    epoch = shares.share.members["a"].member_epoch
    assert shares.beat("a", epoch - 1).code is ErrorCode.NONE
    assert shares.beat("a", epoch + 1).code is ErrorCode.FENCED_MEMBER_EPOCH
    shares.come("b")
    shares.beat("a")
    assert shares.beat("a", epoch - 1).code is ErrorCode.FENCED_MEMBER_EPOCH
    assert shares.beat("a", 0, topics=["orders"]).code is ErrorCode.NONE


def test_a_group_is_full_at_its_maximum(shares: ShareBench) -> None:
    shares.make_topic("orders", 1)
    shares.settled("a", "b", "c")
    assert shares.come("d").code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert shares.come("a").code is ErrorCode.NONE, "it is a member already"


def test_unknown_groups_and_members_and_groups_of_other_kinds(shares: ShareBench) -> None:
    assert shares.share_heartbeat("a", 1).code is ErrorCode.GROUP_ID_NOT_FOUND
    assert shares.share_heartbeat("a", -1).code is ErrorCode.GROUP_ID_NOT_FOUND
    shares.come("a")
    assert shares.share_heartbeat("b", 1).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert shares.share_heartbeat("b", -1).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert shares.enter("c").code is ErrorCode.GROUP_ID_NOT_FOUND
    assert shares.join().code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert shares.commit().code is ErrorCode.GROUP_ID_NOT_FOUND
    assert shares.fetch().code is ErrorCode.GROUP_ID_NOT_FOUND
    shares.consumer_heartbeat("m", 0, owned={}, topics=["t"], rebalance_ms=1, group_id="other")
    other = shares.share_heartbeat("a", 0, topics=["t"], group_id="other")
    assert other.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_member_that_leaves_or_is_silent_gives_its_partitions_to_the_others(
    shares: ShareBench,
) -> None:
    topic_id = shares.make_topic("orders", 2)
    found = shares.settled("a", "b")
    assert sorted(map(set, (found["a"][topic_id], found["b"][topic_id]))) == [{0}, {1}]
    left = shares.share_heartbeat("b", -1).answer
    assert (left.error_code, left.member_id, left.member_epoch) == (0, "b", -1)
    assert given(shares.beat("a").answer) == {topic_id: {0, 1}}
    shares.pass_time(SESSION_MS)
    assert shares.share.state_name == "Empty"
    assert not shares.share.is_unused, "its offsets do not expire"
    shares.check_replay()


def test_joins_within_the_assignment_interval_are_assigned_together() -> None:
    shares = ShareBench()
    shares.settings = GroupSettings()
    shares.make_topic("orders", 2)
    shares.settled("a")
    asked = shares.come("b")
    assert not asked.is_answered
    shares.pass_time(1_000)
    assert asked.answer.member_epoch == shares.share.target_epoch


# ---- partitions


def test_initialisation_is_repeated_until_it_is_confirmed(shares: ShareBench) -> None:
    topic_id = shares.make_topic("orders", 1)
    shares.states.code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    shares.come("a")
    assert shares.share.partitions.initializing
    shares.states.code = ErrorCode.NONE
    for _ in range(RETRY_MS // 10_000):
        shares.pass_time(10_000)
        shares.beat("a")
    assert shares.states.states == {key(topic_id, 0): (1, -1)}, "the retry is the same request"
    assert given(shares.beat("a", topics=["orders"]).answer) == {topic_id: {0}}
    count = len(shares.states.calls)
    shares.pass_time(RETRY_MS)
    assert len(shares.states.calls) == count


def test_partitions_added_to_a_known_topic_are_read_from_their_start(shares: ShareBench) -> None:
    topic_id = shares.make_topic("orders", 1)
    shares.settled("a")
    shares.grow_topic("orders", 3)
    assert shares.states.states[key(topic_id, 0)][1] == -1
    assert [shares.states.states[key(topic_id, one)][1] for one in (1, 2)] == [0, 0]
    assert given(shares.beat("a").answer) == {topic_id: {0, 1, 2}}
    shares.check_replay()


def test_a_topic_that_is_created_later_is_consumed(shares: ShareBench) -> None:
    shares.come("a")
    topic_id = shares.make_topic("orders", 1)
    assert given(shares.beat("a").answer) == {topic_id: {0}}


def test_partitions_of_deleted_topics_are_forgotten(shares: ShareBench) -> None:
    shares.make_topic("orders", 1)
    shares.settled("a")
    shares.drop_topic("orders")
    assert given(shares.beat("a").answer) == {}
    assert shares.share.partitions.topic_ids() == set()
    shares.check_replay()


def test_very_many_partitions_are_initialised_in_rounds(shares: ShareBench) -> None:
    topic_id = shares.make_topic("orders", 2 * ROUND_MAX + 1)
    shares.states.is_answering = False
    shares.come("a")
    assert len(shares.states.calls) == ROUND_MAX
    shares.beat("a")
    assert len(shares.states.calls) == ROUND_MAX, "one round at a time"
    shares.states.answer_all()
    assert {start for _, start in shares.states.states.values()} == {-1}, "none was added later"
    shares.beat("a")  # A large target is computed in steps.
    assert given(shares.beat("a").answer) == {topic_id: set(range(2 * ROUND_MAX + 1))}
    shares.check_replay()


def test_another_coordinator_continues_an_initialisation(shares: ShareBench) -> None:
    topic_id = shares.make_topic("orders", 1)
    shares.states.is_answering = False
    shares.come("a")
    shares.states._held.clear()
    shares.states.is_answering = True
    shares.restart()
    assert set(shares.states.states) == {key(topic_id, 0)}
    assert given(shares.beat("a").answer) == {topic_id: {0}}
    shares.check_replay()


def test_nothing_is_requested_before_its_record_is_committed(shares: ShareBench) -> None:
    shares.make_topic("orders", 1)
    shares.is_committing = False
    shares.come("a")
    assert shares.states.calls == []
    shares.commit_log()
    assert [name for name, _ in shares.states.calls] == ["initialize"]


# ---- deletion


def test_states_are_deleted_before_their_group(shares: ShareBench) -> None:
    shares.make_topic("orders", 2)
    shares.settled("a")
    assert shares.delete().code is ErrorCode.NON_EMPTY_GROUP
    shares.share_heartbeat("a", -1)
    shares.states.is_answering = False
    asked = shares.delete()
    assert not asked.is_answered
    assert shares.share.partitions.deleting
    shares.check_replay()
    shares.states.answer_all()
    assert asked.code is ErrorCode.NONE
    assert shares.states.states == {}
    assert GROUP not in shares.shard.groups
    shares.check_replay()


def test_very_many_states_are_deleted_in_rounds(shares: ShareBench) -> None:
    topic_id = shares.make_topic("orders", ROUND_MAX + 1)
    shares.come("a")
    shares.share_heartbeat("a", -1)
    shares.states.calls.clear()
    shares.states.is_answering = False
    asked = shares.delete()
    assert len(shares.states.calls) == ROUND_MAX
    shares.states.answer_all()
    assert shares.states.calls[-1] == ("delete", key(topic_id, ROUND_MAX))
    assert asked.code is ErrorCode.NONE
    assert shares.states.states == {}


def test_a_group_whose_states_cannot_be_deleted_stays(shares: ShareBench) -> None:
    shares.make_topic("orders", 1)
    shares.settled("a")
    shares.share_heartbeat("a", -1)
    shares.states.code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert shares.delete().code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert GROUP in shares.shard.groups
    shares.come("a")
    assert shares.states.states, "the topic is consumed once the deletion has succeeded"
    shares.states.code = ErrorCode.NONE
    shares.pass_time(RETRY_MS)
    shares.beat("a")
    assert set(map(min, shares.states.states.values())) == {-1}
    assert given(shares.beat("a", topics=["orders"]).answer)
    shares.share_heartbeat("a", -1)
    assert shares.delete().code is ErrorCode.NONE
    assert shares.states.states == {}


def test_offsets_that_an_older_release_stored_under_the_id_of_a_share_group_stay_readable(
    shares: ShareBench,
) -> None:
    shares.make_topic("orders", 1)
    shares.settled("a")
    value = lasting_offset_value(7, -1, "", 0, ZERO_UUID)
    shares.append([[CoordinatorRecord(offset_key(GROUP, "orders", 0), value)]], ())
    shares.commit_log()
    shares.restart()
    committed = shares.fetched()
    assert committed is not None
    assert committed.offset == 7
    assert shares.come("a").code is ErrorCode.GROUP_ID_NOT_FOUND
