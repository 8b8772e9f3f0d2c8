"""Longest time for which a task held the event loop."""

import time

import trio


class HeldLoop(trio.abc.Instrument):
    """Longest step of any task so far. It is measured in CPU time of the loop's thread, so that
    other processes of a busy machine do not count."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        """CPU time in seconds of the longest step."""
        self._began_at = time.thread_time()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Note the start of a step."""
        self._began_at = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Note the end of a step."""
        self.longest_s = max(self.longest_s, time.thread_time() - self._began_at)
