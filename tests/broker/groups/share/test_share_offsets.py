"""Changes of the start offsets of share groups (KIP-932), in one shard."""

from typing import Any
from uuid import UUID

from ottla.broker.groups.share.share_rebalance import NewOffset
from ottla.jepsen.world.walk.group_requests import GROUP, GroupRequest
from ottla.model.errors import ErrorCode
from tests.broker.groups.conftest import given
from tests.broker.groups.share.test_share_groups import ShareBench, key


def alter(shares: Any, *wanted: NewOffset) -> GroupRequest:
    """Set start offsets."""
    asked = GroupRequest()
    shares._perform(
        GROUP, asked, lambda shard, now: shard.shares.alter_offsets(GROUP, wanted, asked)
    )
    return asked


def delete(shares: Any, *names: str) -> GroupRequest:
    """Delete the offsets of topics."""
    asked = GroupRequest()
    shares._perform(
        GROUP, asked, lambda shard, now: shard.shares.delete_offsets(GROUP, names, asked)
    )
    return asked


def left(shares: ShareBench) -> UUID:
    """Return the topic of a group whose only member has left."""
    topic_id = shares.make_topic("orders", 2)
    shares.settled("a")
    shares.share_heartbeat("a", -1)
    return topic_id


def test_an_alteration_has_an_epoch_above_that_of_every_former_state() -> None:
    shares = ShareBench()
    topic_id = left(shares)
    former, _ = shares.states.states[key(topic_id, 0)]
    for start in (7, 3):
        assert list(alter(shares, NewOffset(topic_id, 0, start)).answer) == [ErrorCode.NONE]
        epoch, stored = shares.states.states[key(topic_id, 0)]
        assert stored == start
        assert epoch > former, "leaders with the former state are fenced"
        former = epoch
    assert shares.states.states[key(topic_id, 1)][1] == -1
    shares.check_replay()


def test_an_alteration_needs_a_group_without_members() -> None:
    shares = ShareBench()
    topic_id = shares.make_topic("orders", 1)
    shares.settled("a")
    assert alter(shares, NewOffset(topic_id, 0, 7)).answer.code is ErrorCode.NON_EMPTY_GROUP
    assert shares.states.states[key(topic_id, 0)] == (1, -1)


def test_an_alteration_creates_the_group_and_is_not_undone_by_the_first_member() -> None:
    shares = ShareBench()
    topic_id = shares.make_topic("orders", 2)
    assert list(alter(shares, NewOffset(topic_id, 0, 7)).answer) == [ErrorCode.NONE]
    assert shares.share.state_name == "Empty"
    shares.check_replay()
    shares.settled("a")
    assert shares.states.states[key(topic_id, 0)][1] == 7
    assert shares.states.states[key(topic_id, 1)][1] == 0, "the group knows the topic"
    assert given(shares.beat("a", topics=["orders"]).answer) == {topic_id: {0, 1}}


def test_an_alteration_that_fails_is_answered_and_changes_nothing() -> None:
    shares = ShareBench()
    topic_id = left(shares)
    former = dict(shares.states.states)
    shares.states.code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    codes = list(alter(shares, NewOffset(topic_id, 0, 7)).answer)
    assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert shares.states.states == former
    shares.check_replay()


def test_offsets_of_a_topic_are_deleted_and_the_topic_is_consumed_as_a_new_one() -> None:
    shares = ShareBench()
    topic_id = left(shares)
    alter(shares, NewOffset(topic_id, 0, 7))
    orders, bills = delete(shares, "orders", "bills").answer
    assert (orders.name, orders.topic_id, orders.code) == ("orders", topic_id, ErrorCode.NONE)
    assert bills.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert shares.states.states == {}
    (again,) = delete(shares, "orders").answer
    assert again.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert again.reason == "There is no offset information to delete."
    shares.check_replay()
    shares.settled("a")
    assert shares.states.states[key(topic_id, 0)][1] == -1


def test_a_deletion_that_failed_can_be_repeated() -> None:
    shares = ShareBench()
    left(shares)
    shares.states.code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    (orders,) = delete(shares, "orders").answer
    assert orders.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    shares.check_replay()
    shares.states.code = ErrorCode.NONE
    (orders,) = delete(shares, "orders").answer
    assert orders.code is ErrorCode.NONE
    assert shares.states.states == {}
    assert shares.share.partitions.topic_ids() == set()


def test_offsets_of_groups_with_members_and_of_unknown_groups_are_not_deleted() -> None:
    shares = ShareBench()
    assert delete(shares, "orders").answer.code is ErrorCode.GROUP_ID_NOT_FOUND
    shares.make_topic("orders", 1)
    shares.settled("a")
    assert delete(shares, "orders").answer.code is ErrorCode.NON_EMPTY_GROUP
