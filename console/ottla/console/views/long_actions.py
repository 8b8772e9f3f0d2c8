"""Pages of long actions, which run in the background of the console. One page lists all actions.
Another page shows the progress of one action and can cancel it."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus

from ottla.client.admin import Admin
from ottla.console.http_errors import PageError
from ottla.console.links import address
from ottla.console.live_views import every
from ottla.console.long_actions_driver import ActionState, LongAction
from ottla.console.page_types import Action, Live, Page, PageRequest, PageView, UserRole
from ottla.console.sheets import (
    Cell,
    Column,
    FactsPart,
    FormPart,
    NotePart,
    Sheet,
    SheetPart,
    TablePart,
    badge,
    code,
    sheet_view,
    text,
    when,
)
from ottla.insight.changes.progress import Report

LIVE_S = 1.0
TONES = {
    ActionState.DONE: "good",
    ActionState.FAILED: "bad",
    ActionState.CANCELLED: "warning",
    ActionState.RUNNING: "neutral",
}
PATH = "/actions/{action}"


def start_long(
    request: PageRequest,
    work: Callable[[Admin, Report], Awaitable[str]],
    *,
    title: str,
    about: str,
    command: str,
) -> PageView:
    """Start a long action with a separate admin client, which has the permissions of the signed-in
    user. `about` is the address of the page about the changed object. Returns a redirect to the
    page of the action."""

    async def with_admin(report: Report) -> str:
        async with request.open_admin() as admin:
            return await work(admin, report)

    action = request.long_actions.start(
        with_admin,
        title=title,
        about=about,
        command=command,
        user=request.user,
        role=request.role.name.lower(),
    )
    return PageView(context={}, location=address(PATH, {"action": action.key}))


def running_notes(request: PageRequest, about: str) -> list[SheetPart]:
    """Return page parts about the long actions in progress that change one object. `about` is the
    address of the object's page."""
    return [
        NotePart(
            text=f"{one.title} is in progress.",
            tone="warning",
            href=address(PATH, {"action": one.key}),
            link_text="Show its progress",
        )
        for one in _visible(request)
        if one.is_running and one.about == about
    ]


async def long_actions(request: PageRequest) -> PageView:
    """Return the page that lists the long actions of the user, or all long actions for an
    administrator."""
    rows = tuple(
        (
            code(one.title, address(PATH, {"action": one.key})),
            _state(one),
            when(one.began_ms),
            when(one.ended_ms),
            text(one.user),
            text(one.progress),
        )
        for one in _visible(request)
    )
    table = TablePart(
        title="Long actions",
        columns=(
            Column(title="Action"),
            Column(title="State"),
            Column(title="Began"),
            Column(title="Ended"),
            Column(title="User"),
            Column(title="Latest report"),
        ),
        rows=rows,
        empty="No long action has run since the console started.",
    )
    return sheet_view(
        "Long actions",
        [table],
        lead="These actions go on without their page. They end with the console; each can be "
        "started again, and then does what is left.",
    )


async def long_action(request: PageRequest) -> PageView:
    """Return the page that shows the progress of one long action."""
    one = _one(request)
    parts: list[SheetPart] = []
    if one.is_running:
        parts.append(
            FormPart(
                title="Cancel",
                button="Cancel this action",
                action="long-action-cancel",
                values={"action": one.key},
                hint="Steps that are complete are not undone.",
            )
        )
    return sheet_view(
        one.title,
        parts,
        command=one.command,
        live="long-action",
        live_values={"action": one.key},
        live_parts=_progress(one),
    )


async def progress(request: PageRequest) -> PageView:
    """Return the live part of a long action's page, which shows the progress and is updated while
    the page is open."""
    one = _one(request)
    sheet = Sheet(heading=one.title, parts=(), live_parts=tuple(_progress(one)))
    return PageView(context={"sheet": sheet}, template="live/sheet")


async def cancel(request: PageRequest) -> PageView:
    """Cancel a long action that is running. Returns a redirect to the page of the action."""
    one = _one(request)
    if not one.is_running:
        raise PageError(HTTPStatus.CONFLICT, f"{one.title!r} has ended already")
    one.scope.cancel()
    return PageView(
        context={},
        location=address(PATH, {"action": one.key}),
        notice=f"{one.title} is being cancelled.",
    )


def _visible(request: PageRequest) -> list[LongAction]:
    is_admin = request.role >= UserRole.ADMIN
    return request.long_actions.visible_to(request.user, is_admin=is_admin)


def _one(request: PageRequest) -> LongAction:
    for one in _visible(request):
        if one.key == request.path["action"]:
            return one
    raise PageError(
        HTTPStatus.NOT_FOUND, "the console knows no such action; it may have started again since"
    )


def _state(one: LongAction) -> Cell:
    return badge(one.state.value, TONES[one.state])


def _progress(one: LongAction) -> list[SheetPart]:
    return [
        FactsPart(
            facts=(
                ("State", _state(one)),
                ("About", code(one.about, one.about)),
                ("Began", when(one.began_ms)),
                ("Ended", when(one.ended_ms)),
                ("User", text(one.user)),
                ("Result", text(one.result)),
            )
        ),
        TablePart(
            title="Progress, latest first",
            columns=(Column(title="Time"), Column(title="Report")),
            rows=tuple((when(line.time_ms), text(line.text)) for line in reversed(one.lines)),
            empty="There is no report yet.",
        ),
    ]


PAGES = (
    Page(
        name="long-actions",
        path="/actions",
        title="Long actions",
        command="",
        view=long_actions,
        section="Operations",
    ),
    Page(
        name="long-action",
        path=PATH,
        title="Long action",
        command="",
        view=long_action,
        actions=(
            Action(
                name="long-action-cancel",
                path="/actions/{action}/cancel",
                command="",
                run=cancel,
            ),
        ),
        lives=(
            Live(
                name="long-action",
                path="/live/actions/{action}",
                stream=every(LIVE_S, progress),
            ),
        ),
    ),
)
