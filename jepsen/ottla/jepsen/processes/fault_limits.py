"""The fault limits: they decide whether a cluster must tolerate a further fault, in addition to the
active faults.

If a broker loses power, or data on its disk, it may have lost acknowledged records, which other
replicas still have. Kafka keeps such records as long as one in-sync replica has them. Only one
broker at a time may therefore be damaged in this way, and only while all replicas of all partitions
are in sync.

Until all replicas are in sync again, no other broker may even be killed. To the controller a kill
looks like a loss, so it would have to elect the damaged replica. These rules do not apply to
brokers that flush before they acknowledge. Controllers always flush.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from ottla.jepsen.processes.nodes import NodeRole, ProcessNode, ProcessState


class FaultyNetwork(Protocol):
    """The network of a cluster, with the faults that a nemesis injects."""

    @property
    def is_well(self) -> bool:
        """True if no network fault is active."""
        ...


class LimitedCluster(Protocol):
    """The part of a cluster's interface that the fault limits use."""

    @property
    def nodes(self) -> Mapping[str, ProcessNode]:
        """All nodes of the cluster, by name."""
        ...

    @property
    def brokers(self) -> Iterable[ProcessNode]:
        """The nodes of the cluster that are brokers."""
        ...

    @property
    def network(self) -> FaultyNetwork:
        """The network between the cluster's nodes."""
        ...

    async def is_isr_full(self) -> bool:
        """Return whether every replica of every partition is in the ISR."""
        ...

    async def reason_not_full(self) -> str | None:
        """Return the reason why a replica is not in the ISR, or None if all replicas are in the
        ISR."""
        ...


class FaultLimits:
    """Limits of the faults in one cluster: the nodes that a fault may hit, the active fault of each
    node, and the broker that has lost records."""

    def __init__(self, cluster: LimitedCluster, *, flush: bool) -> None:
        self.flush = flush
        self.damaged: ProcessNode | None = None
        """The broker that lost records and is not known to have recovered them. None if there is no
        such broker."""
        self._cluster = cluster

    def free(self) -> list[ProcessNode]:
        """Return the running nodes that currently have no active fault."""
        return [
            node
            for node in self._cluster.nodes.values()
            if node.held_by is None and node.state is ProcessState.RUNNING
        ]

    def hold(self, nodes: Iterable[ProcessNode], who: str) -> None:
        """Reserve nodes for the fault named `who`. No other fault chooses them until `release`."""
        for node in nodes:
            assert node.held_by is None, f"{node.name} is {node.held_by}'s"
            node.held_by = who

    def release(self, nodes: Iterable[ProcessNode]) -> None:
        """End the reservation of nodes for a fault."""
        for node in nodes:
            node.held_by = None

    @contextmanager
    def holding(self, nodes: Iterable[ProcessNode], who: str) -> Iterator[None]:
        """Reserve nodes for the fault named `who`, for the duration of the `with` block."""
        nodes = list(nodes)
        self.hold(nodes, who)
        try:
            yield
        finally:
            self.release(nodes)

    async def reason_not_to_kill(self, nodes: Iterable[ProcessNode]) -> str | None:
        """Return the reason why nodes may not be killed or restarted uncleanly now, or None if that
        is allowed."""
        if self.damaged is not None and await self._cluster.is_isr_full():
            self.damaged = None
        others = [
            node for node in nodes if node.role is NodeRole.BROKER and node is not self.damaged
        ]
        if self.damaged is None or not others:
            return None
        return f"{self.damaged.name} has lost records and has not copied them again"

    async def reason_not_to_damage(self, nodes: Iterable[ProcessNode]) -> str | None:
        """Return the reason why nodes may not lose unflushed data now, or None if that is allowed.

        If None is returned and one of the nodes is a broker that does not flush, this broker counts
        as damaged from then on. The caller must damage it without an `await` in between.
        """
        brokers = [node for node in nodes if node.role is NodeRole.BROKER]
        if self.flush or not brokers:
            return None
        return await self._reason_not_to_lose(brokers)

    async def reason_not_to_corrupt(self, node: ProcessNode) -> str | None:
        """Return the reason why a broker's replicas may not lose flushed data now, or None if they
        may. This also applies to brokers that flush records before they acknowledge them.

        If None is returned, the broker counts as damaged from then on. The caller must damage it
        without an `await` in between.
        """
        assert node.role is NodeRole.BROKER, "a controller with a damaged disk may not vote"
        return await self._reason_not_to_lose([node])

    async def _reason_not_to_lose(self, brokers: list[ProcessNode]) -> str | None:
        reason = self._reason_not_alone(brokers) or await self._cluster.reason_not_full()
        # The state may have changed while the cluster was asked.
        reason = reason or self._reason_not_alone(brokers)
        if reason is None:
            self.damaged = brokers[0]
        return reason

    def _reason_not_alone(self, brokers: list[ProcessNode]) -> str | None:
        if len(brokers) > 1:
            return "two brokers that do not flush may not lose records at the same time"
        if not self._cluster.network.is_well:
            return "links are faulty, so the in-sync replicas are not certain"
        for node in self._cluster.brokers:
            if node.state is not ProcessState.RUNNING or (node.held_by and node is not brokers[0]):
                return f"{node.name} is not healthy"
        return None
