"""Test subject of the simulator: replicas that are reassigned continuously, and are throttled while
they are out of sync.

The throttle's rate is about the rate at which clients produce. A replica that moves to a broker is
therefore copied for many seconds, while other nodes fail. Fetches of in-sync replicas count against
the quota, so the replica catches up only after clients stop.
"""

from typing import ClassVar, NoReturn

import trio

from ottla.client.admin import open_admin
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.whole.cluster import SimulatedCluster
from ottla.jepsen.world.whole.whole_cluster import WholeCluster
from ottla.jepsen.world.whole.workload import ClientWorkload

RATE = "4000"
LOOK_S = 0.05
LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


class ThrottledWorkload(ClientWorkload):
    """Clients of a simulated run, with topics whose replicas are all throttled."""

    async def create_topics(self, *, replication_factor: int) -> None:
        """Create the permanent topics (those that exist during the whole run), and throttle their
        replicas."""
        await super().create_topics(replication_factor=replication_factor)
        async with open_admin(self._cluster.bootstrap, timeout_s=30.0) as admin:
            for topic in self._plan.topics:
                await admin.alter_topic_configs(topic, dict.fromkeys(LISTS, "*"))


class ThrottleWatch:
    """Observer that counts how often a broker's replication quota is exceeded, separately for
    leaders and followers."""

    def __init__(self, cluster: SimulatedCluster, rare: RareStates) -> None:
        self._cluster = cluster
        self._rare = rare

    async def run(self) -> NoReturn:
        """Check the replication quotas of all brokers at intervals, and count the exceeded ones."""
        while True:
            for broker in self._cluster.brokers.values():
                quotas = broker.core.replication_quotas
                if quotas.leader.is_exceeded():
                    self._rare.sometimes("a leader waits for its replication quota")
                if quotas.follower.is_exceeded():
                    self._rare.sometimes("a follower waits for its replication quota")
            await trio.sleep(LOOK_S)


class ThrottledCluster(WholeCluster):
    """Search engine that simulates whole nodes and clients, and replicas that move while they are
    throttled."""

    subject = "throttled"
    budget = 8_000
    is_quiet_at_end = True
    only = (
        *("reassignment",) * 6,
        *("kill",) * 2,
        "pause",
        "restart",
        "partition",
    )
    controller_counts = (1, 1, 3)
    workload = ThrottledWorkload
    settings: ClassVar[dict[str, str]] = {
        "leader.replication.throttled.rate": RATE,
        "follower.replication.throttled.rate": RATE,
    }
    required = (
        "a partition is reassigned",
        "a leader waits for its replication quota",
        "a follower waits for its replication quota",
        "an in-sync set is full again",
    )

    def watch_more(
        self,
        nursery: trio.Nursery,
        cluster: SimulatedCluster,
        workload: ClientWorkload,
        rare: RareStates,
    ) -> None:
        """Start the observer that counts exceeded replication quotas."""
        nursery.start_soon(ThrottleWatch(cluster, rare).run)
