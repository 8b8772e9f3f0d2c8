"""Test subject of the simulator: a tiered topic whose former leader leads again after an unclean
election, while a reader keeps all copied segments in the brokers' caches.

A cut-off leader copies records that no other replica has, and a reader reads the copies from it.
Later it leads again, on top of other records with the same offsets. So the same broker reads copied
segments of both logs. In the other subjects this takes several rare faults in one order, and kills
empty the caches.
"""

from dataclasses import replace
from typing import ClassVar

import trio

from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.whole.cluster import SimulatedCluster
from ottla.jepsen.world.whole.machine import Machine
from ottla.jepsen.world.whole.tier.expiring import ExpiringCluster
from ottla.jepsen.world.whole.tier.expiring_clients import ExpiringWorkload
from ottla.jepsen.world.whole.workload import ClientWorkload, WorkloadPlan


class ForkedWorkload(ExpiringWorkload):
    """A client workload with one writer, and one reader that reads the logs from their start to
    their end repeatedly."""

    polls_per_scan = 30

    @property
    def machines(self) -> list[Machine]:
        """Machines of all clients."""
        return [self.writer, self.scanner]


class ForkedCluster(ExpiringCluster):
    """Search engine that simulates whole nodes and clients with tiered topics, whose former leaders
    lead again after unclean elections."""

    subject = "tiered-forked"
    budget = 8_000
    workload = ForkedWorkload
    controller_counts = (1,)
    only: tuple[str, ...] = ("returning leader",)
    settings: ClassVar[dict[str, str]] = {
        **ExpiringCluster.settings,
        "leader.imbalance.check.interval.seconds": "1",
        "log.local.retention.bytes": "800",
    }
    required: tuple[str, ...] = (
        "a tiered leader is alone",
        "an unclean leader is elected beside its predecessor",
        "a former leader leads again in the tier",
        "the bucket has segments that overlap",
    )

    def watch_more(
        self,
        nursery: trio.Nursery,
        cluster: SimulatedCluster,
        workload: ClientWorkload,
        rare: RareStates,
    ) -> None:
        """Start the observer that compares local logs with copied segments. The object store has no
        faults."""
        self.watch_lineages(nursery, cluster, workload, rare)

    def plan_of(self, plan: WorkloadPlan) -> WorkloadPlan:
        """Return the clients' work plan, without the clients of other topics."""
        plan = super().plan_of(plan)
        return replace(plan, producer_count=0, reader_count=0, member_count=0)
