"""Requirements on a cluster while it has only one fault.

The time limit of a requirement includes only calm time, in which every node serves, and all links
and all other disks work. Requirements can therefore be checked while other faults happen, and do
not fail because of them.
"""

from collections.abc import Callable

import trio

from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.whole.cluster import SimulatedCluster
from ottla.jepsen.world.whole.machine import Machine

LOOK_S = 0.1


class CalmCheck:
    """Test whether the fault of one machine is the only fault in the cluster."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._network = cluster.world.network

    def is_calm_but_for(self, troubled: Machine) -> bool:
        """Return whether every node serves, all links work, and no machine except `troubled` has a
        fault."""
        if self._network.is_troubled or self._cluster.unready():
            return False
        for machine in self._cluster.machines:
            if machine.is_paused or machine.slow_disk_s:
                return False
            is_well = machine.trouble is None and not machine.has_bad_disk
            if machine is not troubled and not is_well:
                return False
        return True

    async def demand(
        self,
        invariant: str,
        missing: Callable[[], str],
        *,
        patience_s: float,
        troubled: Machine,
        is_void: Callable[[], bool],
    ) -> bool:
        """Wait until a requirement is met. `missing` returns a description of the unmet part, or ""
        if the requirement is met. Returns True if it is met, or False if `is_void` returned True
        before.

        Raises Violation(`invariant`) if the requirement is not met after `patience_s` seconds of
        calm time. Time is calm if `troubled` is the only machine with a fault.
        """
        waited_s = 0.0
        while not is_void():
            lack = missing()
            if not lack:
                return True
            if waited_s > patience_s:
                raise Violation(invariant, f"{lack}, {patience_s:g} s of calm after")
            if self.is_calm_but_for(troubled):
                waited_s += LOOK_S
            await trio.sleep(LOOK_S)
        return False
