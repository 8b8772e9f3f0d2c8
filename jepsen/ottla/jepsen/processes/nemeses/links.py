"""Links that lose packets, are slow, or drop their connections."""

from random import Random

from ottla.jepsen.processes.abilities import Ability
from ottla.jepsen.processes.nemeses.nemesis import Nemesis, Told
from ottla.jepsen.processes.network_links import CLIENTS, LinkFault, lossy, slow

SHARES = (0.05, 0.1, 0.2, 0.3)
"""Of packets that do not arrive; TCP lives with it, ever more slowly."""
RATES_BITS_PER_S = (256_000, 1_000_000, 4_000_000)
"""From what heartbeats need to what a small load needs."""
COUNTS = (1, 2, 6)
"""How many nodes have bad links: one, some, all."""


class _Links(Nemesis):
    """Puts one fault of links in force, and lifts it."""

    async def _put(self, fault: LinkFault) -> None:
        await self.cluster.network.put(self.name, fault)

    async def heal(self) -> Told:
        """Mend the links."""
        await self.cluster.network.lift(self.name)
        return {"healed": True}

    def _some(self, rng: Random) -> list[str]:
        nodes = sorted(self.cluster.nodes)
        return sorted(rng.sample(nodes, min(rng.choice(COUNTS), len(nodes))))


class Loss(_Links):
    """A share of all packets from and to some nodes is lost, clients' too."""

    name = "loss"

    async def hurt(self, rng: Random) -> Told:
        """Choose nodes and a share."""
        victims, share = self._some(rng), rng.choice(SHARES)
        await self._put(lossy(victims, [*self.cluster.nodes, CLIENTS], share))
        return {"nodes": victims, "share": share}


class Slow(_Links):
    """What goes from and to some nodes in a second is bound."""

    name = "slow"
    needs = frozenset({Ability.RATES})

    async def hurt(self, rng: Random) -> Told:
        """Choose nodes and a rate."""
        victims, rate = self._some(rng), rng.choice(RATES_BITS_PER_S)
        await self._put(slow(victims, rate))
        return {"nodes": victims, "bits_per_s": rate}


class Reset(Nemesis):
    """All TCP connections of some nodes are reset, at one moment."""

    name = "reset"
    needs = frozenset({Ability.RESETS})

    async def hurt(self, rng: Random) -> Told:
        """Choose nodes; there is nothing to heal."""
        nodes = sorted(self.cluster.nodes)
        victims = sorted(rng.sample(nodes, min(rng.choice(COUNTS), len(nodes))))
        return {"nodes": victims, "connections": await self.cluster.network.reset(victims)}
