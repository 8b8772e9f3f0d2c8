"""Base class for faults of a whole simulated cluster, and the random choices, counters and nodes
that they share."""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.whole.cluster import SimulatedCluster
from ottla.jepsen.world.whole.faults.loss_limit import LossLimit
from ottla.jepsen.world.whole.machine import Machine
from ottla.jepsen.world.whole.workload import ClientWorkload


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultContext:
    """Random choices, counters and nodes that all faults of one run share."""

    chance: Chance
    rare: RareStates
    counts: Counter[str]
    """Number of injected faults, by the kind of fault."""
    cluster: SimulatedCluster
    workload: ClientWorkload
    loss_limit: LossLimit
    wait: Callable[[tuple[int, int]], Awaitable[None]]
    """Function that waits for a random number of milliseconds within a range, mostly near the
    range's lower end."""
    start_later: Callable[[Machine], Awaitable[None]]
    """Function that starts a machine's process again, some time after the process has ended."""


class ClusterFaults:
    """Base class of a family of faults that a nemesis injects into a simulated cluster."""

    def __init__(self, context: FaultContext) -> None:
        self._chance = context.chance
        self._rare = context.rare
        self._counts = context.counts
        self._cluster = context.cluster
        self._workload = context.workload
        self._loss_limit = context.loss_limit
        self._wait = context.wait
