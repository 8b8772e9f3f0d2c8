"""Limit of the operations per second of a run, needed because clients share the machine with the
cluster.

The module is pure.
"""

from ottla.jepsen.workloads.load import SECOND

OPS_PER_S_MAX = 900
"""Default maximum number of operations per second, over all threads of a workload. With a larger
value, nodes would lack the CPU time to recover under load, and checking a history would take longer
than recording it."""


class ThreadPace:
    """The earliest time at which each thread of a workload may begin its next operation."""

    def __init__(self, thread_count: int, ops_per_s_max: int = OPS_PER_S_MAX) -> None:
        self._step_ns = SECOND * thread_count // ops_per_s_max
        self._next_ns: dict[int, int] = {}

    def may_begin(self, thread: int, now_ns: int) -> bool:
        """Return whether a workload's thread may begin an operation now. If so, the operation
        counts as begun."""
        next_ns = self._next_ns.get(thread, now_ns)
        if now_ns < next_ns:
            return False
        # A late thread may catch up two steps, because the threads' loop sleeps in steps of its
        # own.
        self._next_ns[thread] = max(next_ns, now_ns - 2 * self._step_ns) + self._step_ns
        return True
