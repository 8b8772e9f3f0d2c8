"""The fault atlas: which faults a cluster has promised to bear, given what it suffers already.

A broker that loses power, or bytes on its disk, has lost acknowledged records that others still
have; Kafka promises to keep them while one in-sync replica does.  So one broker at a time may be
hurt that way, only while all replicas of all partitions are in sync, and until they are again no
other broker is even killed: to the controller a kill is as bad, and it would have to trust the one
who lost.  Brokers that flush before they answer are free of that; controllers always flush.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.jepsen.processes.nodes import NodeRole, ProcessNode, ProcessState

if TYPE_CHECKING:
    from ottla.jepsen.processes.cluster import ProcessCluster


class Atlas:
    """Who may be hurt now; owns who is at work on which node, and who has lost records."""

    def __init__(self, cluster: "ProcessCluster", *, flush: bool) -> None:
        self.flush = flush
        self.damaged: ProcessNode | None = None
        """The broker that lost records and is not known to have them again."""
        self._cluster = cluster

    def free(self) -> list[ProcessNode]:
        """Return the nodes that serve and that nobody is at work on."""
        return [
            node
            for node in self._cluster.nodes.values()
            if node.held_by is None and node.state is ProcessState.RUNNING
        ]

    def hold(self, nodes: Iterable[ProcessNode], who: str) -> None:
        """Be at work on nodes: nobody else chooses them, until `release`."""
        for node in nodes:
            assert node.held_by is None, f"{node.name} is {node.held_by}'s"
            node.held_by = who

    def release(self, nodes: Iterable[ProcessNode]) -> None:
        """Leave nodes to others."""
        for node in nodes:
            node.held_by = None

    @contextmanager
    def holding(self, nodes: Iterable[ProcessNode], who: str) -> Iterator[None]:
        """Be at work on nodes for the length of a block."""
        nodes = list(nodes)
        self.hold(nodes, who)
        try:
            yield
        finally:
            self.release(nodes)

    async def why_not_kill(self, nodes: Iterable[ProcessNode]) -> str | None:
        """Say why the nodes may not be killed now (or restarted uncleanly); None when they may."""
        if self.damaged is not None and await self._cluster.is_isr_full():
            self.damaged = None
        others = [
            node for node in nodes if node.role is NodeRole.BROKER and node is not self.damaged
        ]
        if self.damaged is None or not others:
            return None
        return f"{self.damaged.name} has lost records and does not have them again"

    async def why_not_damage(self, nodes: Iterable[ProcessNode]) -> str | None:
        """Say why the nodes may not lose what they did not flush; None when they may.

        When they may and one of them is a broker that does not flush, it counts as damaged from now
        on: nothing may come between this answer and the deed that would make it wrong.
        """
        brokers = [node for node in nodes if node.role is NodeRole.BROKER]
        if self.flush or not brokers:
            return None
        return await self._why_not_lose(brokers)

    async def why_not_corrupt(self, node: ProcessNode) -> str | None:
        """Say why a replica may not lose what it *did* flush; flushing does not help here."""
        assert node.role is NodeRole.BROKER, "a controller whose disk lies may not vote"
        return await self._why_not_lose([node])

    async def _why_not_lose(self, brokers: list[ProcessNode]) -> str | None:
        reason = self._why_not_alone(brokers) or await self._cluster.why_not_full()
        # The world has gone on while the cluster was asked.
        reason = reason or self._why_not_alone(brokers)
        if reason is None:
            self.damaged = brokers[0]
        return reason

    def _why_not_alone(self, brokers: list[ProcessNode]) -> str | None:
        if len(brokers) > 1:
            return "two brokers that do not flush may not lose records at once"
        if not self._cluster.network.is_well:
            return "links are faulty: who is in sync is not known for sure"
        for node in self._cluster.brokers:
            if node.state is not ProcessState.RUNNING or (node.held_by and node is not brokers[0]):
                return f"{node.name} is not well"
        return None
