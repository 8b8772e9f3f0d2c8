"""The producer-ids workload: brokers never allocate a producer id twice.

The module is pure. Operations: `init`, value null -> `[producer_id, epoch]`, and `crash`. Every
response must contain a new id, whichever broker sends it. Brokers receive blocks of ids from the
controller. A block is allocated only once, even if its broker dies with most of it unused.
"""

from random import Random

from ottla.jepsen.workloads.crashes import CRASH, Crashes
from ottla.jepsen.workloads.load import Completion, LoadPlan, NewTopic, Op
from ottla.jepsen.workloads.pace import OPS_PER_S_MAX

INIT = Op("init")


class ProducerIdsLoad:
    """Generator of the operations of the producer-ids workload."""

    name = "producer-ids"
    checkers: tuple[str, ...] = ("producer-ids", "availability", "servers")
    ops_per_s_max = OPS_PER_S_MAX
    topics: tuple[NewTopic, ...] = ()
    is_caught_up = True

    def __init__(self, plan: LoadPlan) -> None:
        self._crashes = Crashes()

    def next_op(self, thread: int, now_ns: int, rng: Random) -> Op | None:
        """Return the thread's next operation: an `init`, or a crash of its client if one is due."""
        return CRASH if self._crashes.is_due(thread, now_ns, rng) else INIT

    def on_completion(self, thread: int, op: Op, done: Completion) -> None:
        """Ignore the outcome of an operation: later operations do not depend on it."""

    def final_op(self, thread: int, now_ns: int, rng: Random) -> Op | None:
        """Return None, because this workload has no records to read after the load."""
        return None
