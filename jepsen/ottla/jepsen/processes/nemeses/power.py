"""Power cuts: processes end, and with them whatever they had not flushed.

Who may lose power is the atlas' to say.
"""

from random import Random

from ottla.jepsen.processes.abilities import Ability
from ottla.jepsen.processes.nemeses.nemesis import Nemesis, Told, names
from ottla.jepsen.processes.nodes import ProcessNode


class PowerNemesis(Nemesis):
    """One broker loses power, or some controllers do; they are started again to heal.

    Brokers that flush before they answer may lose it together.
    """

    name = "power-cut"
    needs = frozenset({Ability.IMAGES})

    async def hurt(self, rng: Random) -> Told:
        """Choose who loses power."""
        free = self.cluster.atlas.free()
        brokers = [node for node in free if node in self.cluster.brokers]
        controllers = [node for node in free if node in self.cluster.controllers]
        at_once = (1, 2, 3) if self.cluster.atlas.flush else (1,)
        kinds = [(brokers, at_once), (brokers, at_once), (controllers, (1, 1, 2, 3))]
        # When one kind may not be struck now, the other may.
        for nodes, counts in rng.sample(kinds, len(kinds)):
            if nodes and (told := await self._cut(self.choose(nodes, rng, counts))):
                return told
        return {}

    async def mend(self) -> Told:
        """Give power back."""
        return await self.start_again()

    async def _cut(self, victims: list[ProcessNode]) -> Told:
        atlas = self.cluster.atlas
        reason = await atlas.why_not_kill(victims) or await atlas.why_not_damage(victims)
        if reason is not None or not victims:
            self.let_go()
            return {}
        await self.cluster.cut_power(*names(victims))
        return {"nodes": names(victims)}


class PowerCutAll(PowerNemesis):
    """All nodes lose power at one moment; only clusters that flush have promised anything then."""

    name = "power-cut-all"
    needs_flush = True

    async def hurt(self, rng: Random) -> Told:
        """Cut the power of all nodes."""
        free = self.cluster.atlas.free()
        if len(free) < len(self.cluster.nodes):
            return {}
        self.hold(free)
        return await self._cut(free)
