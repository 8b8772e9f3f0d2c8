"""A member's heartbeats, and its reactions to responses."""

from uuid import UUID

import pytest

from ottla.client.groups.group_member import Step
from ottla.client.share.share_member import HASTY_COUNT, HASTY_INTERVAL_MS, ShareGroupMember
from ottla.model.errors import ErrorCode, RefusedError
from ottla.wire.messages.share_group_heartbeat_response import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

TOPIC = UUID(int=3)


def joined() -> ShareGroupMember:
    member = ShareGroupMember("g", "m", "rack-1")
    member.subscribe(["b", "a"])
    member.heartbeat_request()
    assert member.on_answer(answer(epoch=1, partitions=[0, 2])) is Step.GO_ON
    return member


def answer(
    code: int = 0, *, epoch: int = 0, partitions: list[int] | None = None
) -> ShareGroupHeartbeatResponse:
    assignment = None
    if partitions is not None:
        row = TopicPartitions(topic_id=TOPIC, partitions=partitions)
        assignment = Assignment(topic_partitions=[row])
    return ShareGroupHeartbeatResponse(
        error_code=code, member_epoch=epoch, heartbeat_interval_ms=3_000, assignment=assignment
    )


def test_the_first_heartbeat_has_everything_and_the_next_ones_only_changes() -> None:
    member = ShareGroupMember("g", "m", "rack-1")
    member.subscribe(["b", "a"])
    first = member.heartbeat_request()
    assert (first.member_epoch, first.rack_id) == (0, "rack-1")
    assert first.subscribed_topic_names == ["a", "b"]
    member.on_answer(answer(epoch=1, partitions=[0, 2]))
    second = member.heartbeat_request()
    assert (second.member_epoch, second.rack_id, second.subscribed_topic_names) == (1, None, None)
    assert member.assignment == {TOPIC: {0, 2}}
    assert member.heartbeat_interval_ms == 3_000
    member.subscribe(["a"])
    assert member.is_heartbeat_due
    assert member.heartbeat_request().subscribed_topic_names == ["a"]


def test_an_answer_without_an_assignment_changes_none() -> None:
    member = joined()
    member.on_answer(answer(epoch=2))
    assert member.assignment == {TOPIC: {0, 2}}
    member.on_answer(answer(epoch=3, partitions=[]))
    assert member.assignment == {}


def test_a_member_without_partitions_asks_again_soon_but_not_always() -> None:
    member = ShareGroupMember("g", "m", None)
    member.subscribe(["a"])
    waits = []
    for _ in range(HASTY_COUNT + 1):
        member.heartbeat_request()
        member.on_answer(answer(epoch=1))
        waits.append(member.heartbeat_interval_ms)
    assert waits[0] == HASTY_INTERVAL_MS
    assert waits[-1] == 3_000


def test_after_a_lost_answer_the_subscription_is_repeated() -> None:
    member = joined()
    member.heartbeat_request()
    member.on_no_answer()
    assert member.heartbeat_request().subscribed_topic_names == ["a", "b"]


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_removed_member_joins_again_without_partitions(code: ErrorCode) -> None:
    member = joined()
    assert member.on_answer(answer(code)) is Step.JOIN_AGAIN
    assert member.assignment == {}
    again = member.heartbeat_request()
    assert (again.member_id, again.member_epoch) == ("m", 0)
    assert again.subscribed_topic_names == ["a", "b"]


def test_a_moved_coordinator_keeps_the_assignment() -> None:
    member = joined()
    assert member.on_answer(answer(ErrorCode.NOT_COORDINATOR)) is Step.FIND_COORDINATOR
    assert member.on_answer(answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)) is Step.WAIT
    assert member.assignment == {TOPIC: {0, 2}}


@pytest.mark.parametrize(
    "code", [ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.GROUP_AUTHORIZATION_FAILED]
)
def test_other_errors_are_final(code: ErrorCode) -> None:
    with pytest.raises(RefusedError) as refused:
        joined().on_answer(answer(code))
    assert refused.value.code is code


def test_a_member_leaves_with_epoch_minus_one() -> None:
    leave = joined().leave_request()
    assert (leave.member_id, leave.member_epoch) == ("m", -1)
