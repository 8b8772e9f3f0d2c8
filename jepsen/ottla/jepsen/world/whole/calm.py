"""What a cluster owes while one fault is on and nothing else is wrong.

A demand is counted in calm time only: while every node serves, every link and every other disk is
well.  So it can be made beside any other fault, and says nothing that another one explains.
"""

from collections.abc import Callable

import trio

from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.whole.cluster import SimulatedCluster
from ottla.jepsen.world.whole.machine import Machine

LOOK_S = 0.1


class CalmCheck:
    """Looks whether anything but one machine's trouble is wrong."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._network = cluster.world.network

    def is_calm_but_for(self, troubled: Machine) -> bool:
        """Return whether everybody else is well, and the troubled machine's process runs."""
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
        """Wait until nothing is missing, and say so; False where the demand is void before.

        Raises Violation when something is missing after so much calm time.
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
