"""Nemeses (sources of faults) that partition the network: nodes are cut off from each other.
Clients always reach all nodes."""

from abc import abstractmethod
from random import Random

from ottla.jepsen.processes.nemeses.nemesis import FaultReport, Nemesis
from ottla.jepsen.processes.network_links import (
    LinkFault,
    cut_links,
    isolate,
    majorities_ring,
    split,
)
from ottla.jepsen.processes.nodes import ProcessNode


class PartitionNemesis(Nemesis):
    """Base class of faults that cut nodes off from each other. Subclasses choose the links to
    cut."""

    async def inject_fault(self, rng: Random) -> FaultReport:
        """Cut the links that the subclass chooses, and return a report of the fault."""
        fault, report = await self.cut(rng)
        if not fault.lost:
            return {}
        await self.cluster.network.put(self.name, fault)
        return report

    async def heal(self) -> FaultReport:
        """Restore the cut links, and return a report of the result."""
        await self.cluster.network.lift(self.name)
        return {"healed": True}

    @abstractmethod
    async def cut(self, rng: Random) -> tuple[LinkFault, FaultReport]:
        """Choose the network links to cut. Returns a fault with these links, and the report of the
        fault for the history."""

    def shuffled(self, rng: Random) -> list[str]:
        """Return the names of all nodes in a random order."""
        return rng.sample(sorted(self.cluster.nodes), len(self.cluster.nodes))

    def parted(self, *parts: list[str]) -> tuple[LinkFault, FaultReport]:
        """Return a fault that cuts the groups of nodes in `parts` off from each other, and the
        report of the fault."""
        return split(parts), {"nodes": sorted(parts[0]), "parts": [sorted(part) for part in parts]}

    def isolated(self, node: ProcessNode | None) -> tuple[LinkFault, FaultReport]:
        """Return a fault that cuts one node off from all other nodes, and the report of the fault.
        If `node` is None, the fault is empty."""
        if node is None:
            return LinkFault(), {}
        return isolate(node.name, self.cluster.nodes), {"nodes": [node.name]}


class PartitionOne(PartitionNemesis):
    """A fault that cuts one node off from all other nodes."""

    name = "partition-one"

    async def cut(self, rng: Random) -> tuple[LinkFault, FaultReport]:
        """Return a fault that isolates a random node, with its report."""
        first, *rest = self.shuffled(rng)
        return self.parted([first], rest)


class PartitionMajority(PartitionNemesis):
    """A fault that cuts a random majority of all nodes off from the other nodes."""

    name = "partition-majority"

    async def cut(self, rng: Random) -> tuple[LinkFault, FaultReport]:
        """Return a fault that separates a random majority of the nodes from the others, with its
        report."""
        nodes = self.shuffled(rng)
        minority = (len(nodes) - 1) // 2
        return self.parted(nodes[:minority], nodes[minority:])


class PartitionMajoritiesRing(PartitionNemesis):
    """A fault in which each node reaches a majority of the nodes, different for every node."""

    name = "partition-majorities-ring"

    async def cut(self, rng: Random) -> tuple[LinkFault, FaultReport]:
        """Return a fault that cuts the links between distant nodes of a random ring, with its
        report."""
        nodes = self.shuffled(rng)
        return majorities_ring(nodes), {"nodes": nodes, "ring": nodes}


class PartitionMinorityThird(PartitionNemesis):
    """A fault that cuts a random third of all nodes off from the other nodes."""

    name = "partition-minority-third"

    async def cut(self, rng: Random) -> tuple[LinkFault, FaultReport]:
        """Return a fault that separates a random third of the nodes from the others, with its
        report."""
        nodes = self.shuffled(rng)
        third = max(1, len(nodes) // 3)
        return self.parted(nodes[:third], nodes[third:])


class PartitionLeader(PartitionNemesis):
    """A fault that cuts the leader of a random partition off from all other nodes.

    Clients still reach the leader and write to it."""

    name = "partition-leader"

    async def cut(self, rng: Random) -> tuple[LinkFault, FaultReport]:
        """Return a fault that isolates the leader of a random partition, with its report."""
        partitions = await self.cluster.partitions()
        keys = sorted(key for key, one in partitions.items() if one.leader >= 0)
        # Prefer partitions of the load to internal ones.
        keys = [key for key in keys if not key.startswith("__")] or keys
        if not keys:
            return LinkFault(), {}
        key = rng.choice(keys)
        fault, report = self.isolated(self.cluster.broker(partitions[key].leader))
        return fault, {**report, "key": key}


class PartitionController(PartitionNemesis):
    """A fault that cuts the active controller off from all other nodes."""

    name = "partition-controller"

    async def cut(self, rng: Random) -> tuple[LinkFault, FaultReport]:
        """Return a fault that isolates the active controller, with its report."""
        return self.isolated(await self.cluster.active_controller())


class PartitionOneWay(PartitionNemesis):
    """A fault that loses data from some nodes to the others, but not in the other direction."""

    name = "partition-one-way"

    async def cut(self, rng: Random) -> tuple[LinkFault, FaultReport]:
        """Return a fault in which data sent by one node, or by up to half of the nodes, is lost,
        and a report of the fault."""
        nodes = self.shuffled(rng)
        unheard = rng.choice((1, 1, max(1, len(nodes) // 2)))
        mute, deaf = nodes[:unheard], nodes[unheard:]
        fault = cut_links((sender, receiver) for sender in mute for receiver in deaf)
        return fault, {"nodes": sorted(mute), "unheard_by": sorted(deaf)}


KINDS: tuple[type[PartitionNemesis], ...] = (
    PartitionOne,
    PartitionMajority,
    PartitionMajoritiesRing,
    PartitionMinorityThird,
    PartitionLeader,
    PartitionController,
    PartitionOneWay,
)
