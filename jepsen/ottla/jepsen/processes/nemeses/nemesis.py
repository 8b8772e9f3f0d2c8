"""Base class of nemeses: a nemesis injects a fault into the cluster, reports it, and heals it.

A nemesis chooses among the running nodes that have no active fault. It asks the fault limits
whether they may be damaged. If no fault is allowed now, it does nothing and returns `{}`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, ClassVar

from ottla.jepsen.checkers.verdict import RunFacts
from ottla.jepsen.processes.abilities import Ability
from ottla.jepsen.processes.cluster import ProcessCluster
from ottla.jepsen.processes.nodes import NodeError, ProcessNode

FaultReport = dict[str, Any]
"""Report of an injected or healed fault, as JSON; empty if nothing was done."""

START_TIMEOUT_S = 20.0
"""Time limit in seconds until a started node serves requests. Other active faults may prevent the
node from serving in time."""


class Nemesis(ABC):
    """Base class of one kind of fault. A nemesis has at most one active fault, and must heal it."""

    name: ClassVar[str]
    needs: ClassVar[frozenset[Ability]] = frozenset()
    """Abilities (privileges and tools) of this machine that the nemesis needs."""
    needs_flush: ClassVar[bool] = False
    """True if the nemesis may be used only with brokers that flush before they acknowledge.
    Otherwise its faults may lose records that Kafka does not guarantee."""

    needs_store: ClassVar[bool] = False
    """True if the nemesis damages the object store of tiered topics. A cluster has an object store
    only in runs of such a nemesis."""

    def __init__(self, cluster: ProcessCluster, rng: Random, facts: RunFacts) -> None:
        self.count = 0
        """Number of faults that this nemesis has injected."""
        self.cluster = cluster
        self.facts = facts
        self.held: list[ProcessNode] = []
        self._rng = rng

    async def inject(self, rng: Random | None = None) -> FaultReport:
        """Inject one fault. Random choices are drawn from `rng`, or from the run's generator if
        `rng` is None. Returns a report of the fault, which is empty if the fault is not allowed
        now."""
        report = await self.inject_fault(rng or self._rng)
        self.count += bool(report)
        return report

    @abstractmethod
    async def inject_fault(self, rng: Random) -> FaultReport:
        """Inject one fault, and return a report of it. The report is empty if nothing was done."""

    async def heal(self) -> FaultReport:
        """Heal the active fault of this nemesis. Returns a report of the result, which is empty if
        no fault is active."""
        report = await self.heal_fault() if self.held else {}
        self.release_nodes()
        return report

    async def heal_fault(self) -> FaultReport:
        """Undo the fault on the nodes that this nemesis has reserved, and return a report of the
        result."""
        return {}

    def choose(
        self, nodes: Sequence[ProcessNode], rng: Random, counts: Sequence[int]
    ) -> list[ProcessNode]:
        """Choose nodes at random from `nodes`, reserve them for this nemesis and return them. Their
        number is drawn from `counts`."""
        victims = rng.sample(nodes, min(rng.choice(counts), len(nodes)))
        self.hold(victims)
        return victims

    def hold(self, nodes: Iterable[ProcessNode]) -> None:
        """Reserve nodes for this nemesis until its fault is healed."""
        nodes = list(nodes)
        self.cluster.fault_limits.hold(nodes, self.name)
        self.held += nodes

    def release_nodes(self) -> None:
        """End the reservation of all nodes that this nemesis has reserved."""
        self.cluster.fault_limits.release(self.held)
        self.held = []

    async def start_again(self) -> FaultReport:
        """Start the reserved nodes that have no process, and wait for a limited time until they
        serve requests. Returns a report that names the nodes."""
        down = [node for node in self.held if node.pid is None]
        for node in down:
            node.start()
        late = []
        for node in down:
            try:
                await node.wait_ready(START_TIMEOUT_S)
            except NodeError:
                late.append(node.name)
        return {"started": names(down), **({"late": late} if late else {})}


def names(nodes: Iterable[ProcessNode]) -> list[str]:
    """Return the sorted names of nodes."""
    return sorted(node.name for node in nodes)
