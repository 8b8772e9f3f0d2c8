"""Whatever a member of the consumer protocol may do wrong has Kafka's exact code."""

from typing import Any
from uuid import UUID

import pytest

from ottla.broker.groups.consumer.consumer_group_apis import check_heartbeat
from ottla.model.errors import ErrorCode, RefusedError
from ottla.wire.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)

PARTS = [TopicPartitions(topic_id=UUID(int=1), partitions=[0])]
JOIN: dict[str, Any] = {
    "group_id": "g",
    "member_id": "a",
    "member_epoch": 0,
    "rebalance_timeout_ms": 1_000,
    "subscribed_topic_names": ["orders"],
    "topic_partitions": [],
}
BEAT: dict[str, Any] = {"group_id": "g", "member_id": "a", "member_epoch": 3}

WRONG: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (JOIN, {"member_id": ""}, "MemberId can't be empty."),
    (BEAT, {"member_id": " "}, "MemberId can't be empty."),
    (BEAT, {"member_epoch": -1, "member_id": ""}, "MemberId can't be empty."),
    (JOIN, {"group_id": ""}, "GroupId can't be empty."),
    (JOIN, {"group_id": "  "}, "GroupId can't be empty."),
    (JOIN, {"instance_id": ""}, "InstanceId can't be empty."),
    (JOIN, {"rack_id": ""}, "RackId can't be empty."),
    (
        JOIN,
        {"rebalance_timeout_ms": -1},
        "RebalanceTimeoutMs must be provided in first request.",
    ),
    (JOIN, {"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
    (JOIN, {"topic_partitions": PARTS}, "TopicPartitions must be empty when (re-)joining."),
    (
        JOIN,
        {"subscribed_topic_names": None},
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    ),
    (BEAT, {"member_epoch": -2}, "InstanceId can't be null."),
    (BEAT, {"member_epoch": -3}, "MemberEpoch is invalid."),
    (JOIN, {"instance_id": "i" * 250}, "InstanceId has more than 249 characters."),
    (
        JOIN,
        {"subscribed_topic_names": ["t"] * 10_001},
        "SubscribedTopicNames has more than 10000 names.",
    ),
    (
        BEAT,
        {"topic_partitions": [TopicPartitions(partitions=list(range(100_000)))]},
        "TopicPartitions has more than 100000 partitions.",
    ),
    (BEAT, {"member_id": "a" * 8_192}, "No text may have more than 8191 characters."),
]


@pytest.mark.parametrize(("whole", "changes", "reason"), WRONG)
def test_what_cannot_be_right_is_invalid(
    whole: dict[str, Any], changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(RefusedError) as refusal:
        check_heartbeat(ConsumerGroupHeartbeatRequest(**{**whole, **changes}), 1, ("uniform",))
    assert refusal.value.code is ErrorCode.INVALID_REQUEST
    assert refusal.value.message == reason


def test_an_assignor_that_is_not_served_is_named_with_those_that_are() -> None:
    request = ConsumerGroupHeartbeatRequest(**JOIN, server_assignor="sticky")
    with pytest.raises(RefusedError) as refusal:
        check_heartbeat(request, 1, ("uniform", "range"))
    assert refusal.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert refusal.value.message == (
        "ServerAssignor sticky is not supported. Supported assignors: uniform, range."
    )


@pytest.mark.parametrize(
    ("whole", "changes", "version"),
    [
        (JOIN, {}, 1),
        (JOIN, {"member_id": ""}, 0),
        (JOIN, {"subscribed_topic_names": None, "subscribed_topic_regex": ""}, 1),
        (JOIN, {"server_assignor": "uniform", "rack_id": "r", "instance_id": "i"}, 1),
        (BEAT, {}, 1),
        (BEAT, {"member_epoch": -1}, 1),
        (BEAT, {"member_epoch": -2, "instance_id": "i"}, 1),
    ],
)
def test_what_may_be_right_is_passed_on(
    whole: dict[str, Any], changes: dict[str, Any], version: int
) -> None:
    check_heartbeat(ConsumerGroupHeartbeatRequest(**{**whole, **changes}), version, ("uniform",))


# ---- commits and fetches of members


@pytest.mark.parametrize(
    ("member_id", "epoch", "version", "code"),
    [
        ("a", 1, 9, ErrorCode.NONE),
        ("a", 1, 10, ErrorCode.NONE),
        ("a", 1, 8, ErrorCode.UNSUPPORTED_VERSION),
        ("a", 0, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 2, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", -1, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("b", 1, 9, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, 9, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_only_a_member_in_its_epoch_commits(
    groups: Any, member_id: str, epoch: int, version: int, code: ErrorCode
) -> None:
    groups.make_topic("orders")
    groups.enter("a")
    asked = groups.commit(member_id=member_id, generation_id=epoch, version=version)
    assert asked.answer == ([[code]] if code is ErrorCode.NONE else code)


def test_anybody_commits_for_a_group_that_is_empty(groups: Any) -> None:
    groups.make_topic("orders")
    groups.enter("a")
    groups.consumer_heartbeat("a", -1)
    assert groups.commit(7).answer == [[ErrorCode.NONE]]
    assert groups.commit(8, member_id="a", generation_id=1).code is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [
        ("a", 1, ErrorCode.NONE),
        (None, -1, ErrorCode.NONE),
        ("a", 0, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("b", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("b", -1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_says_that_it_is_a_member_must_be_in_its_epoch_to_fetch(
    groups: Any, member_id: str | None, epoch: int, code: ErrorCode
) -> None:
    groups.make_topic("orders")
    groups.enter("a")
    groups.commit(7, member_id="a", generation_id=1)
    asked = groups.fetch(member_id=member_id, member_epoch=epoch)
    if code is ErrorCode.NONE:
        ((_, _, offset),) = asked.answer
        assert offset.offset == 7
    else:
        assert asked.answer is code


# ---- the two protocols in one group


def test_the_classic_protocol_is_refused_by_members_of_the_other(groups: Any) -> None:
    groups.make_topic("orders")
    groups.enter("a", instance_id="i")
    assert groups.join().code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert groups.sync("a", 1).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.heartbeat("a", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    # An admin may remove any member (Kafka 4.4), by an id that is its own.
    assert groups.leave(("b", None), ("b", "i")).answer == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    ]
    assert list(groups.consumers.members) == ["a"]


def test_the_consumer_protocol_is_refused_by_a_group_of_another_kind(groups: Any) -> None:
    groups.stable(protocol_type="connect")
    assert groups.enter("a").code is ErrorCode.GROUP_ID_NOT_FOUND
    assert groups.consumer_heartbeat("a", 1).code is ErrorCode.GROUP_ID_NOT_FOUND
    assert groups.consumer_heartbeat("a", -1).code is ErrorCode.GROUP_ID_NOT_FOUND
    assert groups.group.state == "Stable"


def test_an_empty_group_goes_over_to_either_protocol_with_its_offsets(groups: Any) -> None:
    groups.make_topic("orders")
    groups.commit(7)
    (member,) = groups.stable(size=1)
    groups.leave((member, None))
    assert groups.enter("a").answer.member_epoch == 1
    groups.check_replay()
    assert groups.fetched().offset == 7
    groups.consumer_heartbeat("a", -1)
    assert groups.join().code is ErrorCode.NONE
    assert groups.fetched().offset == 7
    groups.restart()
    assert groups.group.is_empty


def test_a_group_of_offsets_alone_is_taken_over(groups: Any) -> None:
    groups.commit(7)
    groups.enter("a")
    groups.restart()
    assert list(groups.consumers.members) == ["a"]
    assert groups.fetched().offset == 7


# ---- the group as a whole


def test_only_an_empty_group_is_deleted_and_nothing_of_it_is_left(groups: Any) -> None:
    groups.make_topic("orders")
    groups.enter("a", regex="or.*")
    groups.commit(7, member_id="a", generation_id=1)
    assert groups.delete().code is ErrorCode.NON_EMPTY_GROUP
    groups.consumer_heartbeat("a", -1)
    assert groups.delete().code is ErrorCode.NONE
    groups.restart()
    assert not groups.shard.groups
    assert not groups.shard.offsets.has_group("group")
    latest = dict(groups.log)
    assert not any(latest.values()), "every key has its tombstone"


def test_offsets_of_topics_in_use_are_kept_and_others_expire(groups: Any) -> None:
    groups.make_topic("orders")
    groups.enter("a")
    groups.commit(7, member_id="a", generation_id=1)
    groups.commit(8, member_id="a", generation_id=1, topic="old")
    retention_ms = groups.config.offsets_retention_ms
    groups.shard.expire_offsets(groups.now._replace(wall_ms=groups.now.wall_ms + retention_ms))
    assert groups.shard.offsets.find("group", "orders", 0) is not None
    assert groups.shard.offsets.find("group", "old", 0) is None
    groups.consumer_heartbeat("a", -1)
    groups.shard.expire_offsets(groups.now._replace(wall_ms=groups.now.wall_ms + retention_ms))
    assert not groups.shard.groups


def test_groups_are_listed_by_type_and_state(groups: Any) -> None:
    groups.make_topic("orders")
    groups.enter("a", group_id="new")
    groups.join(group_id="old")

    def listed(states: set[str], types: set[str]) -> list[str]:
        found = groups.shard.list_groups(frozenset(states), frozenset(types))
        return [group.group_id for group in found]

    assert listed(set(), set()) == ["new", "old"]
    assert listed(set(), {"consumer"}) == ["new"]
    assert listed(set(), {"classic"}) == ["old"]
    assert listed({"stable"}, set()) == ["new"]
    assert listed(set(), {"share"}) == []
