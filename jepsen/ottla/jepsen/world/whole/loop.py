"""trio's loop as the world needs it: virtual time, an order that the seed decides, and stops.

Tasks belong to a `Machine` by a context variable that children inherit.  A stopped machine's tasks
stay where they are: when its process is paused they run on later and find their deadlines past, as
after SIGSTOP; when it was killed they never run again, not even to clean up.  For this trio's run
queue is replaced by one that sets them aside, so no product code knows of it.

It leans on what trio does not promise: `_core._run._r`, its flag for deterministic scheduling, the
run queue and the instruments of its runner.  `test_loop.py` asserts that they are there.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from math import ceil
from typing import Any, TypeVar

import trio
import trio._core._run as trio_run
from trio._core._instrumentation import Instruments
from trio.abc import Clock, Instrument
from trio.lowlevel import Task

T = TypeVar("T")

SCHEDULING_FLAG = "_ALLOW_DETERMINISTIC_SCHEDULING"
"""Makes trio sort what runs next by age before `_r` shuffles it, so that no address shows."""

INSTANTS_PER_S = 4_000
"""More of them make fewer things happen at once, and runs slower."""


class Tasks:
    """The tasks of one process; `is_stopped` while none of them may run."""

    __slots__ = ("held", "is_stopped", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_stopped = False
        self.held: list[Task] = []
        """Those that would run if they might."""


STUCK_LOOK_S = 0.01
STUCK_COUNT_MAX = 100
"""A second of real time in which nothing runs is an eternity."""

TASKS: ContextVar[Tasks | None] = ContextVar("tasks", default=None)
"""Whose task this is; None is the world's own."""


class VirtualClock(Clock):
    """Time that stands while anybody can run, and else jumps to the next deadline."""

    def __init__(self, loop: "Loop") -> None:
        self.now_s = 0.0
        self._loop = loop
        self._stuck_count = 0

    def start_clock(self) -> None:
        """Begin (trio calls this)."""

    def current_time(self) -> float:
        """Return the seconds since the run's start."""
        return self.now_s

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Jump to the deadline: trio asks only when no task can run before."""
        if self._loop.has_more_to_do:
            return 0.0
        if deadline == float("inf"):
            # trio's own tasks are woken through a socket, in real time.
            self._stuck_count += 1
            if self._stuck_count > STUCK_COUNT_MAX:
                raise NothingWillHappenError
            return STUCK_LOOK_S
        self._stuck_count = 0
        self.now_s = max(self.now_s, deadline)
        return 0.0


def next_instant(at_s: float) -> float:
    """Return the first of the world's instants that is not before a time.

    What machines do to each other happens at instants, so that much of it happens at once: its
    order is then chance's, and a turn of the loop does more.
    """
    return ceil(at_s * INSTANTS_PER_S) / INSTANTS_PER_S


class NothingWillHappenError(Exception):
    """Every task waits for another one, without a deadline."""


class _NoInstruments(Instruments):
    """Takes none: they measure real time, of which a run has none."""

    def add_instrument(self, instrument: Instrument) -> None:
        """Do nothing."""

    def remove_instrument(self, instrument: Instrument) -> None:
        """Do nothing."""


class _RunQueue(deque[Task]):
    """The tasks that run next, but those of stopped processes."""

    before_step: Callable[[], None]

    def __iter__(self) -> Iterator[Task]:
        """Begin a step: trio takes all that is here in one go, in every turn of its loop."""
        self.before_step()
        return super().__iter__()

    def append(self, task: Task) -> None:
        owner = task.context.get(TASKS)
        if owner is not None and owner.is_stopped:
            owner.held.append(task)
        else:
            super().append(task)


class Loop:
    """The loop that runs now: stops and resumes processes between two steps of it."""

    def __init__(self) -> None:
        self._queue = _RunQueue()
        self._queue.before_step = self._before_step
        self._due: list[Callable[[], None]] = []
        self._stopped: dict[Tasks, None] = {}
        self.failure: Exception | None = None
        self.step_count = 0

    def take_over(self) -> None:
        """Put our queue in the place of trio's."""
        runner = trio_run.GLOBAL_RUN_CONTEXT.runner
        assert type(runner.runq) is deque
        self._queue.extend(runner.runq)
        runner.runq = self._queue
        runner.instruments = _NoInstruments(())

    @property
    def has_more_to_do(self) -> bool:
        """Whether something is to be done before time goes on."""
        return bool(self._due)

    def between_steps(self, action: Callable[[], None]) -> None:
        """Act when every task that runs now has come to its next wait: before others run."""
        self._due.append(action)

    def _before_step(self) -> None:
        """Do what is due between two steps."""
        self.step_count += 1
        while self._due:
            due, self._due = self._due, []
            for action in due:
                try:
                    action()
                except Exception as error:  # trio would drop us, and go on
                    self.failure = self.failure or error

    def stop(self, tasks: Tasks) -> None:
        """Let none of a process's tasks run; only between two steps."""
        tasks.is_stopped = True
        self._stopped[tasks] = None
        for _ in range(len(self._queue)):
            self._queue.append(self._queue.popleft())

    def resume(self, tasks: Tasks) -> None:
        """Let them run on."""
        tasks.is_stopped = False
        self._stopped.pop(tasks, None)
        held, tasks.held = tasks.held, []
        self._queue.extend(held)

    def resume_all(self) -> None:
        """Let everything run, so that it can end with the run."""
        for tasks in list(self._stopped):
            self.resume(tasks)


def run_in_virtual_time(main: Callable[[Loop], Awaitable[T]], *, seed: int) -> T:
    """Run `main` in a loop of its own, with every order in it decided by the seed."""
    state, flag = trio_run._r.getstate(), getattr(trio_run, SCHEDULING_FLAG)
    trio_run._r.seed(seed)
    setattr(trio_run, SCHEDULING_FLAG, True)
    loop = Loop()

    async def start() -> T:
        loop.take_over()
        return await main(loop)

    try:
        result: T = trio.run(start, clock=VirtualClock(loop))
        return result
    finally:
        trio_run._r.setstate(state)
        setattr(trio_run, SCHEDULING_FLAG, flag)


def own(tasks: Tasks, function: Callable[..., Any]) -> Callable[..., Awaitable[None]]:
    """Return the async function as one whose task, and all it starts, belong to a process."""

    async def owned(*arguments: Any) -> None:
        TASKS.set(tasks)
        await function(*arguments)

    return owned
