"""The producer-ids workload: nobody is ever given what somebody else was given.

Pure.  Operations: `init`, value null -> `[producer_id, epoch]`, and `crash`.  Every answer is a
fresh id, whoever answers: brokers take blocks of ids from the controller, and a block is taken only
once, also by a broker that died with most of it unused.
"""

from random import Random

from ottla.jepsen.workloads.crashes import CRASH, Crashes
from ottla.jepsen.workloads.load import Completion, LoadPlan, NewTopic, Op
from ottla.jepsen.workloads.pace import OPS_PER_S_MAX

INIT = Op("init")


class ProducerIdsLoad:
    """The generator."""

    name = "producer-ids"
    checkers: tuple[str, ...] = ("producer-ids", "availability", "servers")
    ops_per_s_max = OPS_PER_S_MAX
    topics: tuple[NewTopic, ...] = ()
    is_caught_up = True

    def __init__(self, plan: LoadPlan) -> None:
        self._crashes = Crashes()

    def next_op(self, thread: int, now_ns: int, rng: Random) -> Op | None:
        """Return what a thread does next."""
        return CRASH if self._crashes.is_due(thread, now_ns, rng) else INIT

    def on_completion(self, thread: int, op: Op, done: Completion) -> None:
        """Learn how it ended: nothing follows from it."""

    def final_op(self, thread: int, now_ns: int, rng: Random) -> Op | None:
        """Return None: there is nothing to read."""
        return None
