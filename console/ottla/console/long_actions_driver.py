"""Runs long actions, which continue after the page that started them was closed.

Each of these actions has its own page, which shows the progress. The actions end with the console
process. They can then be started again, because their progress is stored in the cluster.
"""

import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from enum import StrEnum
from functools import partial
from http import HTTPStatus
from typing import NamedTuple, Protocol, TypeAlias

import trio

from ottla.console.http_errors import PageError, failure_of
from ottla.console.seams import ConsoleSeams
from ottla.insight.changes.progress import Report
from ottla.model.errors import only_error

LOG = logging.getLogger(__name__)

RUNNING_MAX = 8
"""Maximum number of long actions that run at the same time. Each has a connection to brokers."""
ENDED_MAX = 50
"""Maximum number of ended long actions that the console still shows."""
LINES_MAX = 100
"""Maximum number of progress lines that the console stores for one action. Older lines are
deleted."""
LINE_CHARS_MAX = 1_000

Work: TypeAlias = Callable[[Report], Awaitable[str]]
"""Function that carries out a long action, reports its progress, and returns the result as a
sentence."""


class StartTask(Protocol):
    """Function that starts a task in the background, such as `start_soon` of a nursery."""

    def __call__(self, work: Callable[[], Awaitable[None]], /) -> object:
        """Start the task, and return without waiting for it."""
        ...


class ActionState(StrEnum):
    """State of a long action (an action that runs in the background)."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ActionReport(NamedTuple):
    """Sentence about the progress of a long action, with its time in ms since 1970."""

    time_ms: int
    text: str


class LongAction:
    """One long action (such as a drain) in the background of the console. It runs or has ended."""

    def __init__(
        self, *, key: str, title: str, about: str, command: str, user: str, role: str, began_ms: int
    ) -> None:
        self.key = key
        """Unique name of the action in addresses of pages."""
        self.title = title
        """Title of the action, such as "Drain broker 2"."""
        self.about = about
        """Address of the page about the object that the action changes."""
        self.command = command
        """Command of `ottla` that makes the same change as the action."""
        self.user = user
        self.role = role
        self.began_ms = began_ms
        self.ended_ms: int | None = None
        self.state = ActionState.RUNNING
        self.result = ""
        """Result of the action, or the reason why it failed, as a sentence. Empty while the action
        runs."""
        self.lines: deque[ActionReport] = deque(maxlen=LINES_MAX)
        self.scope = trio.CancelScope()

    @property
    def is_running(self) -> bool:
        """True if the action has not ended yet."""
        return self.state is ActionState.RUNNING

    @property
    def progress(self) -> str:
        """The latest sentence about the action: its result, or its progress."""
        return self.result or (self.lines[-1].text if self.lines else "")


class LongActions:
    """The long actions of the console that run or ended recently, oldest first."""

    def __init__(self, start_task: StartTask, seams: ConsoleSeams) -> None:
        self._start_task = start_task
        self._seams = seams
        self._actions: OrderedDict[str, LongAction] = OrderedDict()
        self._count = 0

    def start(
        self,
        work: Work,
        *,
        title: str,
        about: str,
        command: str,
        user: str,
        role: str,
    ) -> LongAction:
        """Start a long action in the background, and return it. Raises PageError if the same action
        is already running, or if too many actions are running."""
        running = [one for one in self._actions.values() if one.is_running]
        if any(one.title == title for one in running):
            raise PageError(HTTPStatus.CONFLICT, f"{title!r} is in progress already")
        if len(running) >= RUNNING_MAX:
            raise PageError(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"{RUNNING_MAX} long actions are in progress; wait until one has ended",
            )
        now_ms = self._seams.now_ms()
        self._count += 1
        action = LongAction(
            key=f"{now_ms}-{self._count}",
            title=title,
            about=about,
            command=command,
            user=user,
            role=role,
            began_ms=now_ms,
        )
        self._actions[action.key] = action
        self._forget_old()
        self._start_task(partial(self._run, action, work))
        return action

    def visible_to(self, user: str, *, is_admin: bool) -> list[LongAction]:
        """Return the long actions that a user may see, newest first. These are the user's own
        actions, or all actions for an administrator."""
        found = [one for one in self._actions.values() if is_admin or one.user == user]
        return found[::-1]

    async def _run(self, action: LongAction, work: Work) -> None:
        def report(text: str) -> None:
            line = text[:LINE_CHARS_MAX]
            if not action.lines or action.lines[-1].text != line:
                action.lines.append(ActionReport(self._seams.now_ms(), line))

        # An interrupted console stops the action, too.
        state, result = ActionState.CANCELLED, "the console stopped"
        try:
            with action.scope:
                result = await work(report)
                state = ActionState.DONE
            if action.scope.cancelled_caught:
                result = f"cancelled: {action.progress}"
        except Exception as error:
            found = only_error(error)
            failure = failure_of(found if isinstance(found, Exception) else error)
            state, result = ActionState.FAILED, failure.reason
            if failure.status == HTTPStatus.INTERNAL_SERVER_ERROR:
                LOG.exception("long action %s failed", action.key)
        finally:
            action.state, action.result = state, result
            action.ended_ms = self._seams.now_ms()
            self._seams.audit(
                action="long-action-end",
                user=action.user,
                role=action.role,
                host="",
                values={"action": action.key, "title": action.title},
                outcome=f"{state}: {result}",
            )

    def _forget_old(self) -> None:
        ended = [key for key, one in self._actions.items() if not one.is_running]
        for key in ended[: max(0, len(ended) - ENDED_MAX)]:
            del self._actions[key]
