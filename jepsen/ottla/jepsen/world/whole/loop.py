"""trio's event loop with virtual time, an order decided by the seed, and processes that stop.

A context variable, which child tasks inherit, assigns each task to a `Machine`. When a machine
stops, its tasks stop where they are. If its process was paused, they continue later and find their
deadlines expired, as after SIGSTOP. If it was killed, they never run again, not even to clean up.
To achieve this, trio's run queue is replaced by one that does not run such tasks. Product code is
unaffected.

This relies on internals of trio: `_core._run._r`, its flag for deterministic scheduling, the run
queue and the instruments of its runner. `test_loop.py` asserts that they exist.
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
"""Name of the flag that makes trio sort the runnable tasks by age before `_r` shuffles them, so
that the order does not depend on memory addresses."""

INSTANTS_PER_S = 4_000
"""Number of instants (times at which machines may affect each other) per virtual second. With more
instants, fewer events happen at once, and a run is slower."""


class Tasks:
    """The tasks of one simulated process. While `is_stopped`, none of these tasks runs."""

    __slots__ = ("held", "is_late", "is_stopped", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_stopped = False
        self.is_late: Callable[[], bool] | None = None
        """Function that decides at each wake-up of one of the process's tasks whether the task is
        delayed. None means that no task is delayed."""
        self.held: list[Task] = []
        """Runnable tasks of this process that are held back while it is stopped."""


STUCK_LOOK_S = 0.01
STUCK_COUNT_MAX = 100
"""Number of consecutive waits of 10 ms without a runnable task after which the simulator's event
loop counts as stuck."""

TASKS: ContextVar[Tasks | None] = ContextVar("tasks", default=None)
"""Context variable with the process (`Tasks`) that owns the current task. None means the simulator
itself."""


class VirtualClock(Clock):
    """Clock in virtual time. It does not advance while any task can run, and otherwise jumps to the
    next deadline."""

    def __init__(self, loop: "Loop") -> None:
        self.now_s = 0.0
        self._loop = loop
        self._stuck_count = 0

    def start_clock(self) -> None:
        """Start the virtual clock (called by trio)."""

    def current_time(self) -> float:
        """Return the virtual seconds since the run's start."""
        return self.now_s

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Advance the virtual clock to the deadline, and return the real time in seconds for which
        trio must wait. trio calls this method only if no task can run before the deadline."""
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
    """Return the first instant at or after a virtual time. Both are in seconds.

    Machines affect each other only at instants, so that many events happen at once. Their order is
    then random, and an event-loop iteration does more work.
    """
    return ceil(at_s * INSTANTS_PER_S) / INSTANTS_PER_S


class NothingWillHappenError(Exception):
    """Raised if every task waits without a deadline, so that no task can ever run again."""


class _NoInstruments(Instruments):
    """Set of trio instruments that is always empty, because instruments measure real time."""

    def add_instrument(self, instrument: Instrument) -> None:
        """Do nothing, because instruments measure real time and are never used here."""

    def remove_instrument(self, instrument: Instrument) -> None:
        """Do nothing, because instruments measure real time and are never used here."""


class _RunQueue(deque[Task]):
    """Queue of the runnable tasks of trio, without the tasks of stopped processes."""

    before_step: Callable[[], None]

    def __iter__(self) -> Iterator[Task]:
        """Begin an event-loop step. In every iteration of its loop, trio removes all tasks from the
        queue at once."""
        self.before_step()
        return super().__iter__()

    def append(self, task: Task) -> None:
        owner = task.context.get(TASKS)
        if owner is not None and (
            owner.is_stopped or (owner.is_late is not None and owner.is_late())
        ):
            owner.held.append(task)
        else:
            super().append(task)


class Loop:
    """The running event loop of the simulator, which stops and resumes processes between two
    steps."""

    def __init__(self) -> None:
        self._queue = _RunQueue()
        self._queue.before_step = self._before_step
        self._due: list[Callable[[], None]] = []
        self._stopped: dict[Tasks, None] = {}
        self._strike: Callable[[], None] | None = None
        self._steps_to_strike = 0
        self.on_step: Callable[[], None] | None = None
        """Function that is called between any two steps of the event loop, or None."""
        self.failure: Exception | None = None
        self.step_count = 0

    def take_over(self) -> None:
        """Replace trio's run queue by a queue that holds back the tasks of stopped processes."""
        runner = trio_run.GLOBAL_RUN_CONTEXT.runner
        assert type(runner.runq) is deque
        self._queue.extend(runner.runq)
        runner.runq = self._queue
        runner.instruments = _NoInstruments(())

    @property
    def has_more_to_do(self) -> bool:
        """True if actions or tasks are pending that must run before the virtual time advances."""
        return bool(self._due)

    def between_steps(self, action: Callable[[], None]) -> None:
        """Call an action as soon as all running tasks have reached their next wait, and before
        other tasks run."""
        self._due.append(action)

    def call_after_steps(self, step_count: int, action: Callable[[], None]) -> None:
        """Call an action after a number of event-loop steps, unless `cancel_call` is called
        before."""
        self._steps_to_strike, self._strike = step_count, action

    def cancel_call(self) -> None:
        """Drop the action that `call_after_steps` scheduled."""
        self._strike = None

    def _before_step(self) -> None:
        """Call the pending actions. trio calls this between two steps of the event loop."""
        self.step_count += 1
        if self._strike is not None:
            self._steps_to_strike -= 1
            if self._steps_to_strike <= 0:
                self._due.append(self._strike)
                self._strike = None
        if self.on_step is not None:
            self._due.append(self.on_step)
        while self._due:
            due, self._due = self._due, []
            for action in due:
                try:
                    action()
                except Exception as error:  # trio would drop this instrument and continue
                    self.failure = self.failure or error

    def stop(self, tasks: Tasks) -> None:
        """Hold back all tasks of a process. The caller must call this between two steps of the
        event loop."""
        tasks.is_stopped = True
        self._stopped[tasks] = None
        for _ in range(len(self._queue)):
            self._queue.append(self._queue.popleft())

    def resume(self, tasks: Tasks) -> None:
        """Release the tasks of a stopped process, so that they run again."""
        tasks.is_stopped = False
        self._stopped.pop(tasks, None)
        held, tasks.held = tasks.held, []
        self._queue.extend(held)

    def resume_all(self) -> None:
        """Release the held-back tasks of all processes, so that they can end with the run."""
        for tasks in list(self._stopped):
            self.resume(tasks)


def run_in_virtual_time(main: Callable[[Loop], Awaitable[T]], *, seed: int) -> T:
    """Run `main` in a new event loop whose order is decided by the seed. Returns the result of
    `main`."""
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
    """Return an async function like `function`, whose task and child tasks belong to the process of
    `tasks`."""

    async def owned(*arguments: Any) -> None:
        TASKS.set(tasks)
        await function(*arguments)

    return owned
