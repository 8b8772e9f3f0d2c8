"""Nodes that are cut off from each other; clients reach all of them all the time."""

from abc import abstractmethod
from random import Random

from ottla.jepsen.processes.nemeses.nemesis import Nemesis, Told
from ottla.jepsen.processes.network_links import (
    LinkFault,
    cut_links,
    isolate,
    majorities_ring,
    split,
)
from ottla.jepsen.processes.nodes import ProcessNode


class PartitionNemesis(Nemesis):
    """A cut between nodes; who is cut from whom is the kinds' choice."""

    async def hurt(self, rng: Random) -> Told:
        """Cut, as the kind has it."""
        fault, told = await self.cut(rng)
        if not fault.lost:
            return {}
        await self.cluster.network.put(self.name, fault)
        return told

    async def heal(self) -> Told:
        """Heal the cut."""
        await self.cluster.network.lift(self.name)
        return {"healed": True}

    @abstractmethod
    async def cut(self, rng: Random) -> tuple[LinkFault, Told]:
        """Return which links are cut, and what is told of it."""

    def shuffled(self, rng: Random) -> list[str]:
        """Return the names of all nodes in a random order."""
        return rng.sample(sorted(self.cluster.nodes), len(self.cluster.nodes))

    def parted(self, *parts: list[str]) -> tuple[LinkFault, Told]:
        """Cut parts from each other."""
        return split(parts), {"nodes": sorted(parts[0]), "parts": [sorted(part) for part in parts]}

    def isolated(self, node: ProcessNode | None) -> tuple[LinkFault, Told]:
        """Cut one node from all others; nothing when there is none."""
        if node is None:
            return LinkFault(), {}
        return isolate(node.name, self.cluster.nodes), {"nodes": [node.name]}


class PartitionOne(PartitionNemesis):
    """One node is cut from all others."""

    name = "partition-one"

    async def cut(self, rng: Random) -> tuple[LinkFault, Told]:
        """Choose one."""
        first, *rest = self.shuffled(rng)
        return self.parted([first], rest)


class PartitionMajority(PartitionNemesis):
    """A random majority of all nodes is cut from the others."""

    name = "partition-majority"

    async def cut(self, rng: Random) -> tuple[LinkFault, Told]:
        """Halve."""
        nodes = self.shuffled(rng)
        minority = (len(nodes) - 1) // 2
        return self.parted(nodes[:minority], nodes[minority:])


class PartitionMajoritiesRing(PartitionNemesis):
    """Each node sees a majority, no two the same one."""

    name = "partition-majorities-ring"

    async def cut(self, rng: Random) -> tuple[LinkFault, Told]:
        """Seat all at a random round table; far ones do not hear each other."""
        nodes = self.shuffled(rng)
        return majorities_ring(nodes), {"nodes": nodes, "ring": nodes}


class PartitionMinorityThird(PartitionNemesis):
    """A random third of all nodes is cut from the others."""

    name = "partition-minority-third"

    async def cut(self, rng: Random) -> tuple[LinkFault, Told]:
        """Take a third."""
        nodes = self.shuffled(rng)
        third = max(1, len(nodes) // 3)
        return self.parted(nodes[:third], nodes[third:])


class PartitionLeader(PartitionNemesis):
    """The leader of some partition is cut from all other nodes, and clients still write to it."""

    name = "partition-leader"

    async def cut(self, rng: Random) -> tuple[LinkFault, Told]:
        """Choose a partition."""
        partitions = await self.cluster.partitions()
        keys = sorted(key for key, one in partitions.items() if one.leader >= 0)
        # Those that bear the load, where there are any.
        keys = [key for key in keys if not key.startswith("__")] or keys
        if not keys:
            return LinkFault(), {}
        key = rng.choice(keys)
        fault, told = self.isolated(self.cluster.broker(partitions[key].leader))
        return fault, {**told, "key": key}


class PartitionController(PartitionNemesis):
    """The active controller is cut from all other nodes."""

    name = "partition-controller"

    async def cut(self, rng: Random) -> tuple[LinkFault, Told]:
        """Ask who it is."""
        return self.isolated(await self.cluster.active_controller())


class PartitionOneWay(PartitionNemesis):
    """What some nodes say to the others is lost, and what these say to them arrives."""

    name = "partition-one-way"

    async def cut(self, rng: Random) -> tuple[LinkFault, Told]:
        """Choose who is not heard: one node, or as many as half."""
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
