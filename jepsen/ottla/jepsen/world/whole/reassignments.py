"""Partitions that move to other brokers while everything else goes wrong."""

from collections import Counter

import trio

from ottla.client.admin import open_admin
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.rare import Rare
from ottla.jepsen.world.whole.cluster import SimulatedCluster
from ottla.jepsen.world.whole.workload import TROUBLE, ClientWorkload
from ottla.model.ids import TopicPartition
from ottla.model.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

REPLICAS_MIN = 2
PATIENCE_S = 10.0


class Reassignments:
    """Gives partitions of clients and of coordinators other replicas, in another order."""

    def __init__(
        self,
        chance: Chance,
        rare: Rare,
        counts: Counter[str],
        cluster: SimulatedCluster,
        workload: ClientWorkload,
    ) -> None:
        self._chance = chance
        self._rare = rare
        self._counts = counts
        self._cluster = cluster
        self._workload = workload

    async def reassign(self) -> None:
        """Move one partition, and go on."""
        at = self._chance.pick(
            [
                *self._workload.partitions,
                TopicPartition(OFFSETS_TOPIC, 0),
                TopicPartition(TRANSACTIONS_TOPIC, 0),
            ]
        )
        left = sorted(self._cluster.broker_machines)
        replicas = []
        for _ in range(REPLICAS_MIN + self._chance.below(max(1, len(left) - REPLICAS_MIN + 1))):
            replicas.append(left.pop(self._chance.below(len(left))))
        self._counts["reassignments"] += 1
        with trio.move_on_after(PATIENCE_S):
            try:
                async with open_admin(self._cluster.bootstrap, timeout_s=PATIENCE_S) as admin:
                    await admin.alter_reassignments({at: replicas[:3]})
                    await admin.elect_leaders([at])
                self._rare.sometimes("a partition is reassigned")
                if at.topic == TRANSACTIONS_TOPIC:
                    self._rare.sometimes("the transactions' state is reassigned")
            except* TROUBLE:
                pass
