"""Processes that are killed, stand still, or are restarted one by one."""

from random import Random

import trio

from ottla.jepsen.processes.nemeses.nemesis import Nemesis, Told, names
from ottla.jepsen.processes.nodes import NodeError, ProcessNode

SOME = (1, 1, 1, 2, 2, 3)
"""How many nodes of six are struck: mostly one, sometimes half."""

ROLLING_TIME_S = 25.0
"""How long a rolling restart may take; what is not restarted by then is left."""
AGAIN_IN_SYNC_TIMEOUT_S = 10.0


class Kill(Nemesis):
    """Some nodes are killed (SIGKILL) at one moment, and started again to heal."""

    name = "kill"

    async def hurt(self, rng: Random) -> Told:
        """Kill some nodes."""
        return await self._kill(self.choose(self.cluster.atlas.free(), rng, SOME))

    async def mend(self) -> Told:
        """Start them again."""
        return await self.start_again()

    async def _kill(self, victims: list[ProcessNode]) -> Told:
        reason = await self.cluster.atlas.why_not_kill(victims)
        if reason is not None or not victims:
            self.let_go()
            return {}
        await self.cluster.kill(*names(victims))
        return {"nodes": names(victims)}


class KillAll(Kill):
    """All nodes are killed at one moment: the whole cluster starts again."""

    name = "kill-all"

    async def hurt(self, rng: Random) -> Told:
        """Kill all nodes."""
        free = self.cluster.atlas.free()
        if len(free) < len(self.cluster.nodes):
            return {}
        self.hold(free)
        return await self._kill(free)


class Pause(Nemesis):
    """Some nodes stand still (SIGSTOP); the kernel still takes what is sent to them."""

    name = "pause"

    async def hurt(self, rng: Random) -> Told:
        """Stop some nodes in their tracks."""
        victims = self.choose(self.cluster.atlas.free(), rng, SOME)
        for node in victims:
            node.pause()
        return {"nodes": names(victims)} if victims else {}

    async def mend(self) -> Told:
        """Let them go on."""
        for node in self.held:
            node.resume()
        return {"resumed": names(self.held)}


class RollingRestart(Nemesis):
    """All brokers, or all controllers, are shut down and started again one after the other.

    As an operator does it: the next one has its turn when the last one serves, and all are in sync.
    """

    name = "rolling-restart"

    async def hurt(self, rng: Random) -> Told:
        """Restart one node after the other, for so long as there is time."""
        cluster = self.cluster
        nodes = rng.choice((cluster.brokers, cluster.brokers, cluster.controllers))
        order = rng.sample(nodes, len(nodes))
        if await cluster.atlas.why_not_kill(order) is not None:
            return {}
        done, hung = [], []
        with trio.move_on_after(ROLLING_TIME_S):
            for node in order:
                if node not in cluster.atlas.free():
                    continue
                self.hold([node])
                if not await self._restart(node):
                    hung.append(node.name)
                done.append(node.name)
                self.let_go()
                with trio.move_on_after(AGAIN_IN_SYNC_TIMEOUT_S):
                    await cluster.wait_healthy()
        return {"nodes": done, "hung": hung} if done else {}

    async def _restart(self, node: ProcessNode) -> bool:
        """Restart one node, whatever the time; return whether it stopped and served in time."""
        is_well = True
        with trio.CancelScope(shield=True):
            try:
                await node.stop()
            except NodeError:
                is_well = False
            if node.pid is None:
                node.start()
            try:
                await node.wait_ready()
            except NodeError:
                is_well = False
        return is_well
