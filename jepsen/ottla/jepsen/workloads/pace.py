"""How fast a run goes at most: the machine is shared with the cluster.

Pure.
"""

from ottla.jepsen.workloads.load import SECOND

OPS_PER_S_MAX = 900
"""Of all threads together: more would leave the nodes no time to recover beside the load, and make
histories that take longer to judge than to record."""


class ThreadPace:
    """When each thread may begin its next operation."""

    def __init__(self, thread_count: int, ops_per_s_max: int = OPS_PER_S_MAX) -> None:
        self._step_ns = SECOND * thread_count // ops_per_s_max
        self._next_ns: dict[int, int] = {}

    def may_begin(self, thread: int, now_ns: int) -> bool:
        """Return whether a thread may begin an operation now; if so, it has."""
        next_ns = self._next_ns.get(thread, now_ns)
        if now_ns < next_ns:
            return False
        # Who was late may catch up two steps: the threads' loop sleeps in steps of its own.
        self._next_ns[thread] = max(next_ns, now_ns - 2 * self._step_ns) + self._step_ns
        return True
