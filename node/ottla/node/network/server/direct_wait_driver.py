"""Wait for clients' sockets without a pass of trio's scheduler, while trio has nothing to run.

A pass of trio's scheduler costs more instructions than most requests, and a client with one request
in flight would pay it for each request. The socket server's task therefore blocks in an epoll of
its own, which contains the epoll of the clients' sockets and that of trio. It gives way to trio as
soon as a task is runnable, a deadline is due, or trio's epoll has an event.

The state of trio's scheduler is not part of its public interface. `test_direct_wait.py` asserts
that the attributes exist. Without them, the server waits as any other task does.
"""

import math
import select
from typing import Any

import trio
import trio._core._run as trio_run

WAIT_S_MAX = 1.0
"""Longest direct wait, in seconds. After it, the server's task waits by trio until the next event
of a client.

A longer wait would delay a cancellation of that task alone, because such a cancellation makes no
other task runnable. With a shorter wait, the first request after a pause more often costs a pass of
trio's scheduler."""


class DirectWait:
    """Direct wait: the socket server's task waits for the events of an epoll by itself, without
    trio's scheduler."""

    def __init__(self, clients: select.epoll) -> None:
        self._clients_fd = clients.fileno()
        self._both = select.epoll()
        self._both.register(clients.fileno(), select.EPOLLIN)
        self._runner: Any = None

    def belong_to(self, runner: Any) -> None:
        """Add the epoll of a trio scheduler, whose events then end a wait too. Called by the first
        wait."""
        self._runner = runner
        self._both.register(runner.io_manager._epoll.fileno(), select.EPOLLIN)

    @trio.lowlevel.enable_ki_protection
    def wait(self) -> bool:
        """Block the thread until a client's socket has an event. Returns False if trio has to run
        now, or if the caller must wait by trio instead."""
        if self._runner is None:
            self.belong_to(trio_run.GLOBAL_RUN_CONTEXT.runner)
        runner = self._runner
        if runner.runq or runner.waiting_for_idle or runner.is_guest:
            return False
        if runner.clock_autojump_threshold != math.inf:
            return False
        timeout_s = runner.clock.deadline_to_sleep_time(runner.deadlines.next_deadline())
        if timeout_s <= 0:
            return False
        # Meters of the event loop's pauses must not take the wait for work.
        instruments = runner.instruments
        if "before_io_wait" in instruments:
            instruments.call("before_io_wait", timeout_s)
        ready = self._both.poll(min(timeout_s, WAIT_S_MAX), 2)
        if "after_io_wait" in instruments:
            instruments.call("after_io_wait", timeout_s)
        return len(ready) == 1 and ready[0][0] == self._clients_fd

    def close(self) -> None:
        """Close the epoll that contains the two others."""
        self._both.close()
