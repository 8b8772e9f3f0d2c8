"""Long actions of the console: results, failures, cancellation, limits, and their readers."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ottla.console.http_errors import PageError
from ottla.console.long_actions_driver import (
    ENDED_MAX,
    LINES_MAX,
    RUNNING_MAX,
    ActionState,
    LongAction,
    LongActions,
    Work,
)
from ottla.insight.changes.progress import Report
from ottla.model.errors import ErrorCode, RefusedError
from tests.console.console_fixture import AuditLines, seams_of


def started(actions: LongActions, work: Work, title: str = "Drain", user: str = "a") -> LongAction:
    return actions.start(work, title=title, about="/b", command="ottla x", user=user, role="admin")


async def endless(report: Report) -> str:
    report("1 of 2")
    await trio.sleep_forever()
    return ""


async def at_once(_report: Report) -> str:
    return "all is done"


async def refused(_report: Report) -> str:
    raise RefusedError(ErrorCode.INVALID_REQUEST, "no such broker")


async def broken(_report: Report) -> str:
    raise ZeroDivisionError("a secret")


async def talkative(report: Report) -> str:
    for number in range(3 * LINES_MAX):
        report(str(number))
        report(str(number))
    return "counted"


@pytest.mark.parametrize(
    ("work", "state", "result"),
    [
        (at_once, ActionState.DONE, "all is done"),
        (refused, ActionState.FAILED, "no such broker"),
        (broken, ActionState.FAILED, "the console's log has the details"),
    ],
)
async def test_an_action_ends_with_its_result_and_an_audit_line(
    work: Work, state: ActionState, result: str
) -> None:
    audit = AuditLines()
    async with trio.open_nursery() as nursery:
        one = started(LongActions(nursery.start_soon, seams_of(audit)), work)
        assert one.is_running
    assert (one.state, one.result, one.progress) == (state, result, result)
    (line,) = audit.lines
    assert line["outcome"] == f"{state}: {result}"
    assert line["user"] == "a"


async def test_a_cancelled_action_shows_its_latest_report() -> None:
    async with trio.open_nursery() as nursery:
        one = started(LongActions(nursery.start_soon, seams_of(AuditLines())), endless)
        await wait_all_tasks_blocked()
        assert one.progress == "1 of 2"
        one.scope.cancel()
    assert one.state is ActionState.CANCELLED
    assert one.result == "cancelled: 1 of 2"


async def test_the_latest_reports_are_kept_without_repetitions() -> None:
    async with trio.open_nursery() as nursery:
        one = started(LongActions(nursery.start_soon, seams_of(AuditLines())), talkative)
    assert [line.text for line in one.lines] == [
        str(number) for number in range(2 * LINES_MAX, 3 * LINES_MAX)
    ]


async def test_running_and_ended_actions_are_limited() -> None:
    async with trio.open_nursery() as nursery:
        actions = LongActions(nursery.start_soon, seams_of(AuditLines()))
        running = [started(actions, endless, f"Drain {one}") for one in range(RUNNING_MAX)]
        with pytest.raises(PageError, match="long actions are in progress"):
            started(actions, endless, "One more")
        with pytest.raises(PageError, match="in progress already"):
            started(actions, endless, "Drain 0")
        nursery.cancel_scope.cancel()
    assert all(one.state is ActionState.CANCELLED for one in running)
    async with trio.open_nursery() as nursery:
        actions = LongActions(nursery.start_soon, seams_of(AuditLines()))
        for number in range(ENDED_MAX + 5):
            last = started(actions, at_once, f"Drain {number}")
            await wait_all_tasks_blocked()
    found = actions.visible_to("a", is_admin=False)
    assert len(found) == ENDED_MAX + 1
    assert found[0] is last


async def test_users_see_their_own_actions_and_administrators_all() -> None:
    async with trio.open_nursery() as nursery:
        actions = LongActions(nursery.start_soon, seams_of(AuditLines()))
        own, other = started(actions, at_once, "A", "a"), started(actions, at_once, "B", "b")
    assert actions.visible_to("a", is_admin=False) == [own]
    assert actions.visible_to("b", is_admin=True) == [other, own]
    assert actions.visible_to("c", is_admin=False) == []
