"""Wait for clients' sockets without a pass of trio's scheduler, while no other task can run.

A pass of trio's scheduler costs more instructions than most requests, and a client with one request
in flight would pay it for each request. The socket server's task therefore blocks in its own epoll,
which contains the epoll of the clients' sockets and that of trio. The task returns control to trio
as soon as another task is runnable, a deadline is due, or trio's epoll has an event.

Trio takes all runnable tasks out of its run queue before it runs the first of them, so an empty run
queue does not show that no task waits. An instrument, which is part of trio's public interface,
therefore records each task from the time it becomes runnable until it runs.

The other parts of trio's state that are read here are not public. `test_direct_wait.py` asserts
that they exist.
"""

import math
import select
from typing import Any

import trio
import trio._core._run as trio_run

WAIT_S_MAX = 1.0
"""Longest direct wait, in seconds. After it, the server's task waits by trio until the next event
of a client.

With a longer wait, a cancellation of the server's task alone would be delayed, because such a
cancellation makes no other task runnable. With a shorter wait, the first request after a pause more
often costs a pass of trio's scheduler."""

PASSES_UNSEEN = 2
"""Number of waits by trio before the first direct wait. After the second wait, every task has run
that became runnable before the instrument was added."""


class RunnableTasks(trio.abc.Instrument):
    """Trio instrument that records the tasks that are runnable and do not run yet."""

    def __init__(self) -> None:
        self.tasks: set[trio.lowlevel.Task] = set()

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        """Add a task that became runnable."""
        self.tasks.add(task)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Remove a task that trio runs now."""
        self.tasks.discard(task)


class DirectWait:
    """Direct wait of the socket server's task for the events of an epoll, without trio's
    scheduler."""

    def __init__(self, clients: select.epoll) -> None:
        self._clients_fd = clients.fileno()
        self._both = select.epoll()
        self._both.register(clients.fileno(), select.EPOLLIN)
        self._runnable = RunnableTasks()
        self._unseen_passes = 0
        self._runner: Any = None

    def begin(self, runner: Any = None) -> None:
        """Allow direct waits in a trio scheduler: the scheduler that runs this task, or the
        scheduler of a test."""
        if runner is None:
            runner = trio_run.GLOBAL_RUN_CONTEXT.runner
        if runner.is_guest:
            return
        trio_fd = runner.io_manager._epoll.fileno()
        self._runner = runner
        self._unseen_passes = PASSES_UNSEEN
        self._both.register(trio_fd, select.EPOLLIN)
        trio.lowlevel.add_instrument(self._runnable)

    def end(self) -> None:
        """Forbid all further direct waits."""
        if self._runner is not None:
            self._both.unregister(self._runner.io_manager._epoll.fileno())
            self._runner = None
            trio.lowlevel.remove_instrument(self._runnable)
            self._runnable.tasks.clear()

    @trio.lowlevel.enable_ki_protection
    def wait(self) -> bool:
        """Block the thread until a client's socket has an event. Returns False if trio has to run
        now, or if the caller must wait by trio instead."""
        runner = self._runner
        if runner is None or self._runnable.tasks or runner.waiting_for_idle:
            return False
        if self._unseen_passes:
            self._unseen_passes -= 1
            return False
        if runner.clock_autojump_threshold != math.inf:
            return False
        timeout_s = runner.clock.deadline_to_sleep_time(runner.deadlines.next_deadline())
        if timeout_s <= 0:
            return False
        if timeout_s > WAIT_S_MAX:
            timeout_s = WAIT_S_MAX
        # Meters of the event loop's pauses must not take the wait for work. A look-up in trio's
        # own mapping, which is a `UserDict`, takes five times as long.
        instruments = runner.instruments
        hooks = instruments.data
        if "before_io_wait" in hooks:
            instruments.call("before_io_wait", timeout_s)
        ready = self._both.poll(timeout_s, 2)
        if "after_io_wait" in hooks:
            instruments.call("after_io_wait", timeout_s)
        return len(ready) == 1 and ready[0][0] == self._clients_fd

    def close(self) -> None:
        """Close the epoll that contains the server's epoll and trio's epoll."""
        self._both.close()
