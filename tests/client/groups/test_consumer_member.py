"""A consumer-protocol member without a coordinator: its heartbeats and its reactions to
responses."""

from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.groups.consumer_member import (
    IN_GROUP,
    Assignment,
    ConsumerProtocolMember,
    MembershipState,
)
from ottla.client.groups.group_member import Step
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.settings.client import ConsumerConfig
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_group_heartbeat_response import (
    Assignment as AnsweredAssignment,
)
from ottla.wire.messages.consumer_group_heartbeat_response import (
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

T, U = UUID(int=1), UUID(int=2)
CONFIG = ConsumerConfig(
    group_id="g", group_protocol="consumer", group_remote_assignor="range", heartbeat_interval_ms=70
)


def new(config: ConsumerConfig = CONFIG) -> ConsumerProtocolMember:
    member = ConsumerProtocolMember("g", "m", config)
    member.subscribe(["t", "u"], None)
    member.join()
    return member


def answer(
    epoch: int = 1, assignment: Assignment | None = None, code: ErrorCode = ErrorCode.NONE
) -> ConsumerGroupHeartbeatResponse:
    reported = None
    if assignment is not None:
        reported = AnsweredAssignment(
            topic_partitions=[
                TopicPartitions(topic_id=one, partitions=sorted(indexes))
                for one, indexes in assignment.items()
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        error_code=code,
        member_epoch=epoch,
        heartbeat_interval_ms=5_000,
        assignment=reported,
    )


def in_group(owned: Assignment, config: ConsumerConfig = CONFIG) -> ConsumerProtocolMember:
    """Return a member that has, and has acknowledged, these partitions."""
    member = new(config)
    member.heartbeat_request()
    member.on_answer(answer(1, owned))
    if owned:
        member.on_reconciled(member.next_owned(set(owned)))
        member.heartbeat_request()
    assert state_of(member) is MembershipState.STABLE
    return member


def state_of(member: ConsumerProtocolMember) -> MembershipState:
    """Return the present state of a member."""
    return member.state


def said(request: ConsumerGroupHeartbeatRequest) -> dict[str, object]:
    """Return the fields of a heartbeat beyond its sender's identity."""
    fields = {
        "timeout": None if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms,
        "names": request.subscribed_topic_names,
        "regex": request.subscribed_topic_regex,
        "assignor": request.server_assignor,
        "owned": request.topic_partitions
        and {one.topic_id: frozenset(one.partitions) for one in request.topic_partitions},
    }
    return {name: one for name, one in fields.items() if one is not None}


def test_the_first_heartbeat_says_everything_and_the_next_nothing() -> None:
    member = new()
    first = member.heartbeat_request()

    assert (first.group_id, first.member_id, first.member_epoch) == ("g", "m", 0)
    assert said(first) == {
        "timeout": 300_000, "names": ["t", "u"], "assignor": "range", "owned": [],
    }  # fmt: skip
    assert member.on_answer(answer(3, {})) is Step.GO_ON
    assert state_of(member) is MembershipState.STABLE
    assert not member.is_heartbeat_due
    assert member.heartbeat_interval_ms == 5_000
    second = member.heartbeat_request()
    assert second.member_epoch == 3
    assert said(second) == {}


def test_it_takes_what_it_is_given_and_acknowledges_at_once() -> None:
    member = new()
    member.heartbeat_request()
    member.on_answer(answer(1, {T: frozenset({0, 1})}))
    assert state_of(member) is MembershipState.RECONCILING
    assert said(member.heartbeat_request()) == {}, "nothing is owned before it is read"

    member.on_reconciled(member.next_owned({T}))

    assert state_of(member) is MembershipState.ACKNOWLEDGING
    assert member.is_heartbeat_due
    assert said(member.heartbeat_request()) == {"owned": {T: {0, 1}}}
    assert state_of(member) is MembershipState.STABLE
    assert not member.is_heartbeat_due


def test_what_goes_is_owned_until_it_is_given_up() -> None:
    member = in_group({T: frozenset({0, 1})})
    member.on_answer(answer(1, {T: frozenset({0})}))

    assert said(member.heartbeat_request()) == {}
    member.on_reconciled(member.next_owned({T}))

    assert said(member.heartbeat_request()) == {"owned": {T: {0}}}
    member.on_answer(answer(2))
    assert member.member_epoch == 2


def test_an_answer_without_an_assignment_changes_none() -> None:
    member = in_group({T: frozenset({0})})

    member.on_answer(answer(4))

    assert member.target == {T: {0}}
    assert state_of(member) is MembershipState.STABLE


def test_a_topic_without_a_name_waits_and_the_rest_is_taken() -> None:
    member = new()
    member.heartbeat_request()
    member.on_answer(answer(1, {T: frozenset({0}), U: frozenset({0})}))

    assert member.next_owned({T}) == {T: {0}}
    member.on_reconciled(member.next_owned({T}))
    assert said(member.heartbeat_request()) == {"owned": {T: {0}}}
    assert state_of(member) is MembershipState.RECONCILING

    member.on_reconciled(member.next_owned({T, U}))
    assert said(member.heartbeat_request()) == {"owned": {T: {0}, U: {0}}}
    assert state_of(member) is MembershipState.STABLE


def test_a_new_target_during_the_acknowledgement_is_reconciled_first() -> None:
    member = in_group({T: frozenset({0, 1, 2})})
    member.on_answer(answer(1, {T: frozenset({0, 1})}))
    member.on_reconciled(member.next_owned({T}))
    member.on_answer(answer(1, {T: frozenset({0})}))

    assert state_of(member) is MembershipState.RECONCILING
    assert said(member.heartbeat_request()) == {"owned": {T: {0, 1}}}


def test_a_change_of_mind_is_reported_at_once_and_once() -> None:
    member = in_group({})

    member.subscribe(["t"], None)
    assert member.is_heartbeat_due
    assert said(member.heartbeat_request()) == {"names": ["t"]}
    member.subscribe(None, "t.*")
    assert said(member.heartbeat_request()) == {"names": [], "regex": "t.*"}
    member.subscribe(["t"], None)
    assert said(member.heartbeat_request()) == {"names": ["t"], "regex": ""}
    assert not member.is_heartbeat_due
    assert said(member.heartbeat_request()) == {}


@pytest.mark.parametrize(
    "happens",
    [
        lambda member: member.on_no_answer(),
        lambda member: member.on_answer(answer(code=ErrorCode.NOT_COORDINATOR)),
    ],
)
def test_who_may_not_have_been_heard_says_everything_again(
    happens: Callable[[ConsumerProtocolMember], None],
) -> None:
    member = in_group({T: frozenset({0})})
    member.heartbeat_request()

    happens(member)

    request = member.heartbeat_request()
    assert request.member_epoch == 1
    assert set(said(request)) == {"timeout", "names", "assignor", "owned"}


@pytest.mark.parametrize(
    ("code", "step"),
    [
        (ErrorCode.NOT_COORDINATOR, Step.FIND_COORDINATOR),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, Step.FIND_COORDINATOR),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Step.WAIT),
        (ErrorCode.FENCED_MEMBER_EPOCH, Step.JOIN_AGAIN),
        (ErrorCode.UNKNOWN_MEMBER_ID, Step.JOIN_AGAIN),
        (ErrorCode.GROUP_ID_NOT_FOUND, Step.JOIN_AGAIN),
    ],
)
def test_what_an_error_means_to_a_member(code: ErrorCode, step: Step) -> None:
    member = in_group({T: frozenset({0})})

    assert member.on_answer(answer(code=code)) is step

    assert (member.state is MembershipState.FENCED) == (step is Step.JOIN_AGAIN)
    assert bool(member.owned) == (step is not Step.JOIN_AGAIN)


def test_who_is_fenced_joins_again_with_nothing_as_who_it_is() -> None:
    member = in_group({T: frozenset({0})})
    member.on_answer(answer(code=ErrorCode.FENCED_MEMBER_EPOCH))
    assert member.on_answer(answer(9, {T: frozenset({0})})) is Step.GO_ON
    assert member.target == {}, "what was asked before says nothing any more"

    member.join()

    request = member.heartbeat_request()
    assert (request.member_id, request.member_epoch) == ("m", 0)
    assert said(request)["owned"] == []


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ],
)
def test_what_nothing_can_mend_ends_the_joining(code: ErrorCode) -> None:
    member = new()
    member.heartbeat_request()

    with pytest.raises(RefusedError) as refused:
        member.on_answer(answer(code=code))

    assert refused.value.code is code


def test_who_leaves_says_whether_it_will_be_back() -> None:
    static = ConsumerConfig(group_id="g", group_protocol="consumer", group_instance_id="i")

    assert in_group({}).leave_request().member_epoch == -1
    member = in_group({}, static)
    assert member.leave_request().member_epoch == -2
    assert member.leave_request().instance_id == "i"
    assert member.leave_request(is_final=True).member_epoch == -1
    member.on_left(is_stale=True)
    assert state_of(member) is MembershipState.STALE
    member.join()
    assert state_of(member) is MembershipState.JOINING


TARGETS = st.none() | st.dictionaries(
    st.sampled_from([T, U]), st.frozensets(st.integers(0, 3), min_size=1)
)
CODES = st.sampled_from(
    [ErrorCode.NONE] * 6 + [ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_MEMBER_ID]
)


EVENTS = st.sampled_from(["beat", "answer", "reconcile", "lose"])


@given(st.lists(st.tuples(EVENTS, TARGETS, CODES)))
def test_whatever_comes_what_it_says_it_owns_is_what_it_reads(
    events: list[tuple[str, Assignment | None, ErrorCode]],
) -> None:
    member = new()
    epoch, heard, is_asked = 0, dict[UUID, frozenset[int]](), False
    for event, target, code in events:
        if event == "beat" and (
            member.state in IN_GROUP or member.state is MembershipState.JOINING
        ):
            request = member.heartbeat_request()
            is_asked = True
            if request.member_epoch == 0:
                heard = {}
            if request.topic_partitions is not None:
                heard = {
                    one.topic_id: frozenset(one.partitions) for one in request.topic_partitions
                }
            assert heard == member.owned, "the coordinator knows what is read, once it is asked"
        elif event == "answer" and is_asked:
            is_asked, epoch = False, epoch + 1
            member.on_answer(answer(epoch, target, code))
        elif event == "reconcile" and member.state is MembershipState.RECONCILING:
            member.on_reconciled(member.next_owned({T, U}))
            assert member.owned == member.target
        elif event == "lose" and member.state is MembershipState.FENCED:
            member.join()
        if member.state not in IN_GROUP:
            assert not member.owned
            assert member.member_epoch == 0
