"""Limits of the faults: no node loses more data than the protocol tolerates.

A record counts as written when enough replicas have it, not when it is flushed. A broker therefore
loses power only while all brokers serve with full ISRs. Until the ISRs are full again, no other
broker is killed: the controller treats a kill like a loss of power, and would elect neither broker
(KIP-966).

A broker that lacks one of its log directories counts as if it had been killed. It must restart to
have all directories again. The clean-shutdown markers in its directories then have different
epochs, and the controller does not trust that broker either.

Brokers that flush before they acknowledge may lose power at any time. So may controllers, which
always flush.
"""

from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.whole.cluster import SimulatedCluster
from ottla.jepsen.world.whole.machine import Machine


class LossLimit:
    """Limit of the faults that lose data: at most one broker at a time may have lost unflushed
    data."""

    def __init__(self, cluster: SimulatedCluster, rare: RareStates, *, is_flushed: bool) -> None:
        self.is_flushed = is_flushed
        self._cluster = cluster
        self._rare = rare
        self._wounded: Machine | None = None
        """Machine of the broker that lost power, until every ISR is full again. None if there is no
        such broker."""
        self._wounded_start = 0
        """Number of starts of the machine `_wounded` when it lost power. Its broker cannot be in
        sync again before it has restarted."""

    def is_fragile(self, machine: Machine) -> bool:
        """Return whether a power cut of a machine may lose acknowledged records."""
        return not self.is_flushed and machine in self._cluster.broker_machines.values()

    def allow_loss(self, machine: Machine) -> bool:
        """Return whether a machine may lose unflushed data now. If the loss may include
        acknowledged records, also record that this machine's broker has lost power."""
        if not self.is_fragile(machine):
            return True
        if not self._cluster.is_in_sync or self._must_another_start_again(machine):
            return False
        self._wounded, self._wounded_start = machine, machine.start_count
        return True

    def may_die(self, machine: Machine) -> bool:
        """Return whether the process of a machine may be ended now.

        Returns False in one case: another broker has lost power, some ISR is not full again, and
        this machine could lose acknowledged records.
        """
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
