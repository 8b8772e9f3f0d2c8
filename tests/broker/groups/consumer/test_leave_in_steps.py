"""A LeaveGroup of many members is served in steps: no turn of the loop removes them all."""

from typing import Any

import pytest

from ottla.broker.groups.classic.membership_apis import LEAVING_AT_ONCE_MAX, MembershipApis
from ottla.model.errors import ErrorCode
from ottla.model.settings.groups import GroupConfig
from ottla.node.network.steps import is_steps, run_through
from ottla.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity


class CoordinatorDouble:
    """A coordinator of one shard; `code` is answered instead where it is set."""

    def __init__(self, groups: Any) -> None:
        self._groups = groups
        self.sizes: list[int] = []
        self.code: ErrorCode | None = None

    def perform(self, group_id: str, responder: Any, step: Any) -> None:
        if self.code is not None:
            responder(self.code)
            return
        before = len(self._groups.consumers.members)
        step(self._groups.shard, self._groups.now)
        self._groups.settle()
        self.sizes.append(before - len(self._groups.consumers.members))


class Context:
    """The context of a LeaveGroup request, which takes the answer."""

    api_version = 5
    answer: Any = None

    def complete(self, answer: Any) -> None:
        self.answer = answer

    def complete_begun(self, result: Any) -> None:
        self.answer = run_through(result) if is_steps(result) else result


def leave(coordinator: CoordinatorDouble, names: list[str]) -> tuple[Any, int]:
    """Send the request; return the answer and the number of turns that it took."""
    context: Any = Context()
    request = LeaveGroupRequest(
        group_id="group", members=[MemberIdentity(member_id=name) for name in names]
    )
    steps: Any = MembershipApis(GroupConfig(), coordinator).leave(context, request)  # type: ignore[arg-type]
    turn_count = 1
    if is_steps(steps):
        turn_count += sum(1 for _ in steps)
    return context.answer, turn_count


@pytest.mark.interpreted_only("passes a double of the coordinator")
@pytest.mark.parametrize(("count", "turns"), [(1, 1), (LEAVING_AT_ONCE_MAX, 1), (450, 3)])
def test_many_leave_some_at_a_time(groups: Any, count: int, turns: int) -> None:
    groups.make_topic("orders", 1)
    names = [f"m{number}" for number in range(count)]
    for name in names:
        groups.enter(name)
    coordinator = CoordinatorDouble(groups)
    answer, turn_count = leave(coordinator, [*names[:-1], "stranger", *names[-1:]][-count:])
    codes = [one.error_code for one in answer.members]
    assert len(codes) == count
    assert codes.count(ErrorCode.UNKNOWN_MEMBER_ID) == (count > 1)
    assert turn_count == turns
    assert max(coordinator.sizes) <= LEAVING_AT_ONCE_MAX
    assert len(groups.consumers.members) == (count > 1)


@pytest.mark.interpreted_only("passes a double of the coordinator")
def test_another_coordinator_is_reported_once(groups: Any) -> None:
    coordinator = CoordinatorDouble(groups)
    coordinator.code = ErrorCode.NOT_COORDINATOR
    answer, _ = leave(coordinator, [f"m{number}" for number in range(450)])
    assert (answer.error_code, answer.members) == (ErrorCode.NOT_COORDINATOR, [])
