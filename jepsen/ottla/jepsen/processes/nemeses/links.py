"""Nemeses (sources of faults) that make network links lose packets, slow them down, or reset their
connections."""

from random import Random

from ottla.jepsen.processes.abilities import Ability
from ottla.jepsen.processes.nemeses.nemesis import FaultReport, Nemesis
from ottla.jepsen.processes.network_links import CLIENTS, LinkFault, lossy, slow

SHARES = (0.05, 0.1, 0.2, 0.3)
"""Fractions of packets that a bad link may lose. One of these fractions is chosen at random. TCP
still works with each of them, but is slower."""
RATES_BITS_PER_S = (256_000, 1_000_000, 4_000_000)
"""Bit rates that a slow link may have, in bits per second. The lowest suffices only for heartbeats,
the highest for a small load."""
COUNTS = (1, 2, 6)
"""Numbers of nodes whose network links a fault may degrade: one node, some, or all. One of these
numbers is chosen at random."""


class _Links(Nemesis):
    """Base class of nemeses that inject one kind of fault into network links. Healing removes
    it."""

    async def _put(self, fault: LinkFault) -> None:
        await self.cluster.network.put(self.name, fault)

    async def heal(self) -> FaultReport:
        """Remove the fault from all network links, and return a report of the result."""
        await self.cluster.network.lift(self.name)
        return {"healed": True}

    def _some(self, rng: Random) -> list[str]:
        nodes = sorted(self.cluster.nodes)
        return sorted(rng.sample(nodes, min(rng.choice(COUNTS), len(nodes))))


class Loss(_Links):
    """A fault that loses a fraction of all packets of some nodes, including packets of clients."""

    name = "loss"

    async def inject_fault(self, rng: Random) -> FaultReport:
        """Inject packet loss on the links of randomly chosen nodes, and return a report of the
        fault."""
        victims, share = self._some(rng), rng.choice(SHARES)
        await self._put(lossy(victims, [*self.cluster.nodes, CLIENTS], share))
        return {"nodes": victims, "share": share}


class Slow(_Links):
    """A fault that limits the bit rate from and to some nodes."""

    name = "slow"
    needs = frozenset({Ability.RATES})

    async def inject_fault(self, rng: Random) -> FaultReport:
        """Limit the bit rate of randomly chosen nodes, and return a report of the fault."""
        victims, rate = self._some(rng), rng.choice(RATES_BITS_PER_S)
        await self._put(slow(victims, rate))
        return {"nodes": victims, "bits_per_s": rate}


class Reset(Nemesis):
    """A fault that resets all TCP connections of some nodes at one moment."""

    name = "reset"
    needs = frozenset({Ability.RESETS})

    async def inject_fault(self, rng: Random) -> FaultReport:
        """Reset the connections of randomly chosen nodes, and return a report of the fault. A reset
        needs no healing."""
        nodes = sorted(self.cluster.nodes)
        victims = sorted(rng.sample(nodes, min(rng.choice(COUNTS), len(nodes))))
        return {"nodes": victims, "connections": await self.cluster.network.reset(victims)}
