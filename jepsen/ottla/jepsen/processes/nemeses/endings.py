"""Nemeses (sources of faults) that end or pause nodes' processes: kills, pauses, and restarts one
by one."""

from random import Random

import trio

from ottla.jepsen.processes.nemeses.nemesis import FaultReport, Nemesis, names
from ottla.jepsen.processes.nodes import NodeError, ProcessNode

SOME = (1, 1, 1, 2, 2, 3)
"""Numbers of nodes that one fault may affect. One of these numbers is chosen at random: with six
nodes mostly one node, and sometimes half of the nodes."""

ROLLING_TIME_S = 25.0
"""Time limit of a rolling restart of nodes in seconds. Nodes that were not restarted by then are
skipped."""
AGAIN_IN_SYNC_TIMEOUT_S = 10.0


class Kill(Nemesis):
    """A fault in which some nodes are killed (SIGKILL) at one moment. Healing starts them again."""

    name = "kill"

    async def inject_fault(self, rng: Random) -> FaultReport:
        """Kill some nodes, and return a report of the fault."""
        return await self._kill(self.choose(self.cluster.fault_limits.free(), rng, SOME))

    async def heal_fault(self) -> FaultReport:
        """Start the killed nodes again, and return a report of the result."""
        return await self.start_again()

    async def _kill(self, victims: list[ProcessNode]) -> FaultReport:
        reason = await self.cluster.fault_limits.reason_not_to_kill(victims)
        if reason is not None or not victims:
            self.release_nodes()
            return {}
        await self.cluster.kill(*names(victims))
        return {"nodes": names(victims)}


class KillAll(Kill):
    """A fault in which all nodes are killed at one moment. The whole cluster must start again."""

    name = "kill-all"

    async def inject_fault(self, rng: Random) -> FaultReport:
        """Kill all nodes, and return a report of the fault."""
        free = self.cluster.fault_limits.free()
        if len(free) < len(self.cluster.nodes):
            return {}
        self.hold(free)
        return await self._kill(free)


class Pause(Nemesis):
    """A fault in which some nodes are paused (SIGSTOP); the kernel still accepts data for them."""

    name = "pause"

    async def inject_fault(self, rng: Random) -> FaultReport:
        """Pause some nodes, and return a report of the fault."""
        victims = self.choose(self.cluster.fault_limits.free(), rng, SOME)
        for node in victims:
            node.pause()
        return {"nodes": names(victims)} if victims else {}

    async def heal_fault(self) -> FaultReport:
        """Resume the paused nodes, and return a report of the result."""
        for node in self.held:
            node.resume()
        return {"resumed": names(self.held)}


class RollingRestart(Nemesis):
    """A fault that restarts all brokers, or all controllers, one after the other.

    Like an operator, this nemesis restarts a node only when the previous one serves requests and
    all replicas are in sync.
    """

    name = "rolling-restart"

    async def inject_fault(self, rng: Random) -> FaultReport:
        """Restart one node after the other until the time limit. Returns a report of the
        restarts."""
        cluster = self.cluster
        nodes = rng.choice((cluster.brokers, cluster.brokers, cluster.controllers))
        order = rng.sample(nodes, len(nodes))
        if await cluster.fault_limits.reason_not_to_kill(order) is not None:
            return {}
        done, hung = [], []
        with trio.move_on_after(ROLLING_TIME_S):
            for node in order:
                if node not in cluster.fault_limits.free():
                    continue
                self.hold([node])
                if not await self._restart(node):
                    hung.append(node.name)
                done.append(node.name)
                self.release_nodes()
                with trio.move_on_after(AGAIN_IN_SYNC_TIMEOUT_S):
                    await cluster.wait_healthy()
        return {"nodes": done, "hung": hung} if done else {}

    async def _restart(self, node: ProcessNode) -> bool:
        """Restart one node, and finish even after the time limit. Returns whether the node stopped
        and served requests again in time."""
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
