"""Reassignments of partitions to other brokers while all other faults happen."""

import trio

from ottla.client.admin import open_admin
from ottla.jepsen.world.whole.faults.cluster_faults import ClusterFaults
from ottla.jepsen.world.whole.workload import TROUBLE
from ottla.model.ids import TopicPartition
from ottla.model.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

REPLICAS_MIN = 2
PATIENCE_S = 10.0


class Reassignments(ClusterFaults):
    """Faults that reassign partitions of client and internal topics to randomly chosen replicas, in
    a random order."""

    async def reassign(self) -> None:
        """Start the reassignment of one partition without waiting for its end."""
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
