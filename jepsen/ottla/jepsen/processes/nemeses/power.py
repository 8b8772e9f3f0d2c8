"""Nemeses that cut the power: processes end, and their unflushed data is lost.

The fault limits decide which nodes may lose power.
"""

from random import Random

from ottla.jepsen.processes.abilities import Ability
from ottla.jepsen.processes.nemeses.nemesis import FaultReport, Nemesis, names
from ottla.jepsen.processes.nodes import ProcessNode


class PowerNemesis(Nemesis):
    """A fault in which one broker or some controllers lose power. Healing starts them again.

    If brokers flush before they acknowledge, several of them may lose power together.
    """

    name = "power-cut"
    needs = frozenset({Ability.IMAGES})

    async def inject_fault(self, rng: Random) -> FaultReport:
        """Cut the power of a random broker, or of some controllers. Returns a report of the
        fault."""
        free = self.cluster.fault_limits.free()
        brokers = [node for node in free if node in self.cluster.brokers]
        controllers = [node for node in free if node in self.cluster.controllers]
        at_once = (1, 2, 3) if self.cluster.fault_limits.flush else (1,)
        kinds = [(brokers, at_once), (brokers, at_once), (controllers, (1, 1, 2, 3))]
        # If nodes of one role may not be damaged now, those of the other may.
        for nodes, counts in rng.sample(kinds, len(kinds)):
            if nodes and (report := await self._cut(self.choose(nodes, rng, counts))):
                return report
        return {}

    async def heal_fault(self) -> FaultReport:
        """Start the nodes that lost power, and return a report of the result."""
        return await self.start_again()

    async def _cut(self, victims: list[ProcessNode]) -> FaultReport:
        fault_limits = self.cluster.fault_limits
        reason = await fault_limits.reason_not_to_kill(
            victims
        ) or await fault_limits.reason_not_to_damage(victims)
        if reason is not None or not victims:
            self.release_nodes()
            return {}
        await self.cluster.cut_power(*names(victims))
        return {"nodes": names(victims)}


class PowerCutAll(PowerNemesis):
    """A fault in which all nodes lose power at one moment.

    The fault is safe only if brokers flush before they acknowledge."""

    name = "power-cut-all"
    needs_flush = True

    async def inject_fault(self, rng: Random) -> FaultReport:
        """Cut the power of all nodes, and return a report of the fault."""
        free = self.cluster.fault_limits.free()
        if len(free) < len(self.cluster.nodes):
            return {}
        self.hold(free)
        return await self._cut(free)
