"""Measurement of the longest time for which a task blocked the event loop by running without a
checkpoint."""

import time

import trio


class HeldLoop(trio.abc.Instrument):
    """Instrument of trio that measures the longest step of any task.

    A step is measured in CPU time of the event loop's thread, so that the measurement excludes
    other processes of a busy machine.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0
        """Longest step so far, as CPU time in seconds."""
        self._began_at = time.thread_time()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Record the time at which a task's step starts."""
        self._began_at = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Measure the step of a task that has ended."""
        self.longest_s = max(self.longest_s, time.thread_time() - self._began_at)
