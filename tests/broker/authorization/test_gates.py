"""Authorization gates: parts they remove from requests, and errors they add to responses."""

from collections.abc import Generator
from typing import Any

import pytest

from ottla.model.errors import ErrorCode
from ottla.model.security.acls import CLUSTER_NAME
from ottla.model.security.authorizer import AllowAll
from ottla.node.authorization.authorization import Authorization
from ottla.node.network.steps import run_through
from ottla.wire import apis
from ottla.wire.apis import (
    API,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    OFFSET_COMMIT,
    request_class,
    response_class,
)
from ottla.wire.messages.delete_groups_request import DeleteGroupsRequest
from ottla.wire.messages.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_commit_response import OffsetCommitResponse

World = Any  # the class of the `world` fixture, in conftest.py
Authorizer = Any  # the class of the `authorizer` fixture there


class Deletions:
    """A handler of DeleteGroups, which answers when the test wants it to."""

    def __init__(self) -> None:
        self.seen: list[list[str]] = []
        self.is_late = False

    def handle(self, context: Any, request: DeleteGroupsRequest) -> DeleteGroupsResponse | None:
        self.seen.append(request.groups_names)
        return None if self.is_late else self.answer()

    def answer(self) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(
            results=[DeletableGroupResult(group_id=name) for name in self.seen[-1]]
        )


def codes(call: Any) -> dict[str, int]:
    found = call.response(DeleteGroupsResponse).results
    return {one.group_id: one.error_code for one in found}


@pytest.fixture
def guarded(world: World, authorizer: Authorizer) -> World:
    """The world with the authorizer in force."""
    world.authorization.use(authorizer)
    return world


def test_a_handler_sees_only_what_is_allowed(guarded: World, authorizer: Authorizer) -> None:
    authorizer.allow("DELETE GROUP mine")
    deletions = Deletions()
    request = DeleteGroupsRequest(groups_names=["theirs", "mine"])
    call = guarded.run(deletions.handle, guarded.call(DELETE_GROUPS, 2), request)
    assert deletions.seen == [["mine"]]
    assert codes(call) == {"mine": 0, "theirs": ErrorCode.GROUP_AUTHORIZATION_FAILED}


def test_an_answer_that_comes_later_is_completed_too(
    guarded: World, authorizer: Authorizer
) -> None:
    authorizer.allow("DELETE GROUP mine")
    deletions = Deletions()
    deletions.is_late = True
    request = DeleteGroupsRequest(groups_names=["theirs", "mine"])
    call = guarded.run(deletions.handle, guarded.call(DELETE_GROUPS, 2), request)
    assert not call.is_completed
    call.slot.complete(deletions.answer())
    assert codes(call) == {"mine": 0, "theirs": ErrorCode.GROUP_AUTHORIZATION_FAILED}


def test_an_answer_in_steps_is_completed_too(guarded: World, authorizer: Authorizer) -> None:
    authorizer.allow("DELETE GROUP mine")
    deletions = Deletions()

    def handle(context: Any, request: DeleteGroupsRequest) -> Generator[None, None, Any]:
        deletions.handle(context, request)
        yield
        return deletions.answer()

    request = DeleteGroupsRequest(groups_names=["theirs", "mine"])
    call = guarded.run(handle, guarded.call(DELETE_GROUPS, 2), request)
    assert set(codes(call)) == {"mine", "theirs"}


def test_a_handler_with_nothing_left_is_not_called(guarded: World) -> None:
    deletions = Deletions()
    request = DeleteGroupsRequest(groups_names=["theirs"])
    call = guarded.run(deletions.handle, guarded.call(DELETE_GROUPS, 2), request)
    assert deletions.seen == []
    assert codes(call) == {"theirs": ErrorCode.GROUP_AUTHORIZATION_FAILED}
    assert guarded.refusals == [(DELETE_GROUPS, ErrorCode.GROUP_AUTHORIZATION_FAILED)]


def test_many_names_are_decided_in_steps(guarded: World, authorizer: Authorizer) -> None:
    names = [f"g{number}" for number in range(2_000)]
    authorizer.allow(*(f"DELETE GROUP {name}" for name in names[::2]))
    deletions = Deletions()
    call = guarded.call(DELETE_GROUPS, 2)
    steps = guarded.authorization.serve(
        call.context, DeleteGroupsRequest(groups_names=list(names)), deletions.handle
    )
    assert isinstance(steps, Generator)
    before = len(authorizer.asked)
    assert 0 < before < len(names)
    call.slot.complete(run_through(steps))
    assert len(authorizer.asked) == len(names)
    assert deletions.seen == [names[::2]]
    assert len(codes(call)) == len(names)


def test_a_topic_of_very_many_partitions_is_refused_in_steps(
    guarded: World, authorizer: Authorizer
) -> None:
    authorizer.allow("READ GROUP mine")
    partitions = [OffsetCommitRequestPartition(partition_index=at) for at in range(2_000)]
    request = OffsetCommitRequest(
        group_id="mine", topics=[OffsetCommitRequestTopic(name="closed", partitions=partitions)]
    )
    call = guarded.call(OFFSET_COMMIT, 8)
    steps = guarded.authorization.serve(call.context, request, lambda *_: None)
    assert isinstance(steps, Generator)
    answer = run_through(steps)
    assert isinstance(answer, OffsetCommitResponse)
    (topic,) = answer.topics
    assert len(topic.partitions) == 2_000
    assert {one.error_code for one in topic.partitions} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


def test_one_of_two_operations_is_enough_and_only_the_last_is_logged(
    guarded: World, authorizer: Authorizer
) -> None:
    request = request_class(27)()
    seen: list[Any] = []

    def handle(context: Any, request: Any) -> None:
        seen.append(request)

    for operation in ("ALTER", "CLUSTER_ACTION"):
        authorizer.allowed.clear()
        authorizer.allow(f"{operation} CLUSTER {CLUSTER_NAME}")
        guarded.authorization.use(authorizer)
        guarded.authorization.serve(guarded.call(27, 1).context, request, handle)
    assert len(seen) == 2
    authorizer.allowed.clear()
    guarded.authorization.use(authorizer)
    authorizer.logged.clear()
    guarded.authorization.serve(guarded.call(27, 1).context, request, lambda *_: None)
    assert authorizer.logged == [("CLUSTER_ACTION", "CLUSTER", CLUSTER_NAME)]


def test_a_refusal_names_the_client_and_what_it_lacks(guarded: World) -> None:
    key = apis.DESCRIBE_CLIENT_QUOTAS
    call = guarded.run(lambda *_: None, guarded.call(key, 1), request_class(key)())
    answer = call.response(response_class(key))
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert answer.error_message == "User:ANONYMOUS is not allowed describe configs on cluster"


def test_without_an_authorizer_nothing_is_asked() -> None:
    authorization = Authorization(lambda topic_id: None, lambda key, code: None)
    assert not authorization.is_active
    authorization.use(AllowAll())
    assert not authorization.is_active


def test_each_api_has_a_gate(guarded: World, authorizer: Authorizer) -> None:
    """An API without a gate would raise a KeyError, which closes its connection."""
    assert set(guarded.authorization._gates) == set(API)


def test_a_request_with_refused_parts_says_so_to_its_handler(
    guarded: World, authorizer: Authorizer
) -> None:
    authorizer.allow("DESCRIBE GROUP mine")
    request = request_class(DESCRIBE_GROUPS)()
    request.groups = ["mine", "theirs"]  # type: ignore[attr-defined]
    call = guarded.call(DESCRIBE_GROUPS, 5)
    assert not call.context.has_refused_parts
    guarded.authorization.serve(call.context, request, lambda *_: None)
    assert call.context.has_refused_parts
