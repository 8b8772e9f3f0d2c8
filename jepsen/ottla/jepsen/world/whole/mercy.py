"""Who may lose what: faults stay within what the protocol promises to bear.

A record counts as written when enough replicas have it, not when it is flushed; so a broker loses
power only while everybody serves and every in-sync set is full, and until they are again no other
broker is killed: to the controller a kill looks like a loss of power, and it would trust neither
(KIP-966).  A broker that runs without one of its directories counts as killed beforehand: it has to
start again to have them all, their clean markers then name different epochs, and the controller
trusts it as little.  Brokers that flush what they acknowledge, and controllers, who always do, may
lose power at any time.
"""

from ottla.jepsen.world.rare import Rare
from ottla.jepsen.world.whole.cluster import SimulatedCluster
from ottla.jepsen.world.whole.machine import Machine


class Mercy:
    """Keeps one wound open at a time."""

    def __init__(self, cluster: SimulatedCluster, rare: Rare, *, is_flushed: bool) -> None:
        self.is_flushed = is_flushed
        self._cluster = cluster
        self._rare = rare
        self._wounded: Machine | None = None
        """The broker that lost power, until every in-sync set has been full again."""
        self._wounded_start = 0
        """With which start of it: not before it has started again can it be in sync again."""

    def is_fragile(self, machine: Machine) -> bool:
        """Return whether a machine that loses power may lose what was acknowledged."""
        return not self.is_flushed and machine in self._cluster.broker_machines.values()

    def wound(self, machine: Machine) -> bool:
        """Return whether a machine may lose unflushed data; a fragile one is wounded then."""
        if not self.is_fragile(machine):
            return True
        if not self._cluster.is_in_sync or self._must_another_start_again(machine):
            return False
        self._wounded, self._wounded_start = machine, machine.start_count
        return True

    def may_die(self, machine: Machine) -> bool:
        """Return whether a machine's process may end while another one's wound is open."""
        wounded = self._wounded
        if (
            wounded is not None
            and wounded.start_count > self._wounded_start
            and not wounded.has_bad_disk
            and self._cluster.is_in_sync
        ):
            self._wounded = None
            self._rare.sometimes("a wound has healed before the end")
        return self._wounded in (None, machine) or not self.is_fragile(machine)

    def _must_another_start_again(self, machine: Machine) -> bool:
        return any(
            other.trouble is not None and other.trouble.has_lost_directory
            for other in self._cluster.broker_machines.values()
            if other is not machine
        )
