"""A classic group member without a coordinator: its next request, and its reaction to responses."""

import pytest

from ottla.client.groups.group_member import GroupMember, Step
from ottla.model.errors import ErrorCode, ProtocolError, RefusedError
from ottla.model.settings.client import ConsumerConfig
from ottla.wire.messages.join_group_response import JoinGroupResponse, JoinGroupResponseMember
from ottla.wire.messages.sync_group_response import SyncGroupResponse

CONFIG = ConsumerConfig(group_id="g", partition_assignment_strategy=("sticky", "range"))
COUNTS = {"t": 4}


def joined(*members: GroupMember, generation: int = 1, protocol: str = "range") -> None:
    """Let members enter a generation as the coordinator would: the first one leads."""
    names = [member.member_id or f"m{number}" for number, member in enumerate(members)]
    requests = [member.join_request(["t"]) for member in members]
    for number, member in enumerate(members):
        answer = JoinGroupResponse(
            generation_id=generation,
            protocol_name=protocol,
            leader=names[0],
            member_id=names[number],
            members=[
                JoinGroupResponseMember(
                    member_id=name,
                    metadata=next(
                        one.metadata for one in request.protocols if one.name == protocol
                    ),
                )
                for name, request in zip(names, requests, strict=True)
            ]
            if number == 0
            else [],
        )
        assert member.on_joined(answer) is Step.GO_ON


def synced(*members: GroupMember) -> list[list[int]]:
    """Let members sync; return the partitions of each."""
    shared = {one.member_id: one.assignment for one in members[0].sync_request(COUNTS).assignments}
    for member in members:
        answer = SyncGroupResponse(assignment=shared[member.member_id])
        assert member.on_synced(answer) is Step.GO_ON
    return [[at.partition for at in member.assignment] for member in members]


def test_the_leader_shares_out_and_each_gets_its_own() -> None:
    members = (GroupMember("g", CONFIG), GroupMember("g", CONFIG))
    joined(*members)

    assert [member.is_leader for member in members] == [True, False]
    assert members[1].sync_request(COUNTS).assignments == []
    assert synced(*members) == [[0, 1], [2, 3]]


def test_a_member_offers_its_protocols_in_order_and_its_id_once_it_has_one() -> None:
    member = GroupMember("g", CONFIG)
    answer = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="m7")

    assert member.on_joined(answer) is Step.JOIN_AGAIN
    request = member.join_request(["t"])
    assert request.member_id == "m7"
    assert [one.name for one in request.protocols] == ["sticky", "range"]


def test_a_sticky_group_keeps_what_it_had_when_one_comes() -> None:
    first, second = GroupMember("g", CONFIG), GroupMember("g", CONFIG)
    joined(first, protocol="sticky")
    assert synced(first) == [[0, 1, 2, 3]]
    joined(first, second, generation=2, protocol="sticky")

    assert synced(first, second) == [[0, 1], [2, 3]]
    joined(second, first, generation=3, protocol="sticky")
    assert synced(second, first) == [[2, 3], [0, 1]]


@pytest.mark.parametrize(
    ("code", "step"),
    [
        (ErrorCode.NONE, Step.GO_ON),
        (ErrorCode.REBALANCE_IN_PROGRESS, Step.JOIN_AGAIN),
        (ErrorCode.ILLEGAL_GENERATION, Step.JOIN_AGAIN),
        (ErrorCode.UNKNOWN_MEMBER_ID, Step.JOIN_AGAIN),
        (ErrorCode.NOT_COORDINATOR, Step.FIND_COORDINATOR),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Step.WAIT),
    ],
)
def test_what_a_heartbeats_answer_means(code: ErrorCode, step: Step) -> None:
    member = GroupMember("g", CONFIG)
    joined(member)
    synced(member)

    assert member.on_code(code) is step

    has_id = code is not ErrorCode.UNKNOWN_MEMBER_ID
    is_in = has_id and code is not ErrorCode.ILLEGAL_GENERATION
    assert bool(member.member_id) == has_id
    assert (member.generation_id == 1) == is_in
    assert bool(member.assignment) == is_in


def test_who_keeps_its_id_says_what_it_owned_and_who_was_expelled_does_not() -> None:
    member = GroupMember("g", CONFIG)
    joined(member)
    synced(member)
    with_owned = member.join_request(["t"]).protocols[0].metadata
    member.on_code(ErrorCode.ILLEGAL_GENERATION)
    assert member.join_request(["t"]).protocols[0].metadata == with_owned

    member.on_code(ErrorCode.UNKNOWN_MEMBER_ID)

    assert member.join_request(["t"]).protocols[0].metadata != with_owned


@pytest.mark.parametrize(
    "code", [ErrorCode.FENCED_INSTANCE_ID, ErrorCode.INCONSISTENT_GROUP_PROTOCOL]
)
def test_what_nothing_can_mend_is_raised(code: ErrorCode) -> None:
    with pytest.raises(RefusedError) as refused:
        GroupMember("g", CONFIG).on_joined(JoinGroupResponse(error_code=code))
    assert refused.value.code is code


def test_no_assignment_at_all_is_an_empty_one() -> None:
    member = GroupMember("g", CONFIG)
    joined(member)

    member.on_synced(SyncGroupResponse(assignment=b""))

    assert member.assignment == ()


def test_a_protocol_that_was_not_offered_is_not_joined() -> None:
    member = GroupMember("g", CONFIG)
    answer = JoinGroupResponse(member_id="m", leader="m", protocol_name="unknown")
    with pytest.raises(ProtocolError, match="unknown"):
        member.on_joined(answer)


def test_a_code_of_a_later_release_is_a_refusal() -> None:
    with pytest.raises(RefusedError, match="UNKNOWN_SERVER_ERROR"):
        GroupMember("g", CONFIG).on_code(9999)
