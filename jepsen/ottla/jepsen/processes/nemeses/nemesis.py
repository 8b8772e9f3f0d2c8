"""What a nemesis is: it hurts the cluster, says what it did, and heals it again.

A nemesis chooses among nodes that serve and that no other one is at work on, and asks the atlas
whether they may be hurt; where nothing may be done now it does nothing, and says so with `{}`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, ClassVar

from ottla.jepsen.checkers.verdict import RunFacts
from ottla.jepsen.processes.abilities import Ability
from ottla.jepsen.processes.cluster import ProcessCluster
from ottla.jepsen.processes.nodes import NodeError, ProcessNode

Told = dict[str, Any]
"""What was done, as JSON; empty when nothing was."""

START_TIMEOUT_S = 20.0
"""A node may not come to serve while other faults last; it is waited for no longer than this."""


class Nemesis(ABC):
    """One kind of fault; owns what it did until it is healed."""

    name: ClassVar[str]
    needs: ClassVar[frozenset[Ability]] = frozenset()
    """What the machine must let us do."""
    needs_flush: ClassVar[bool] = False
    """Whether brokers must flush before they answer, or promises would be asked that none made."""

    def __init__(self, cluster: ProcessCluster, rng: Random, facts: RunFacts) -> None:
        self.count = 0
        """How often it did something."""
        self.cluster = cluster
        self.facts = facts
        self.held: list[ProcessNode] = []
        self._rng = rng

    async def inject(self, rng: Random | None = None) -> Told:
        """Do one fault; return what was done, nothing when it may not be done now."""
        told = await self.hurt(rng or self._rng)
        self.count += bool(told)
        return told

    @abstractmethod
    async def hurt(self, rng: Random) -> Told:
        """Do one fault."""

    async def heal(self) -> Told:
        """Undo it; return how it went.  Nothing when there is nothing to heal."""
        told = await self.mend() if self.held else {}
        self.let_go()
        return told

    async def mend(self) -> Told:
        """Undo what was done to the nodes that are held."""
        return {}

    def choose(
        self, nodes: Sequence[ProcessNode], rng: Random, counts: Sequence[int]
    ) -> list[ProcessNode]:
        """Choose some of the nodes, as many as one of the counts says, and hold them."""
        victims = rng.sample(nodes, min(rng.choice(counts), len(nodes)))
        self.hold(victims)
        return victims

    def hold(self, nodes: Iterable[ProcessNode]) -> None:
        """Be at work on nodes until the fault is healed."""
        nodes = list(nodes)
        self.cluster.atlas.hold(nodes, self.name)
        self.held += nodes

    def let_go(self) -> None:
        """Be at work on no node any more."""
        self.cluster.atlas.release(self.held)
        self.held = []

    async def start_again(self) -> Told:
        """Start the held nodes that have no process, and wait a while until they serve."""
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
    """Return the names of nodes, in order."""
    return sorted(node.name for node in nodes)
