"""Observers of a simulated run. They count changes of partitions and occurrences of rare states
(which tests should reach), and change nothing."""

from collections import Counter
from typing import NoReturn
from uuid import UUID

import trio

from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.whole.cluster import SimulatedCluster
from ottla.jepsen.world.whole.workload import ClientWorkload
from ottla.metadata.image import PartitionState
from ottla.model.ids import NodeId, TopicPartition
from ottla.model.internal_topics import OFFSETS_TOPIC
from ottla.storage.log.log import Log

LOOK_S = 0.05
COMPACTION_LOOK_S = 0.25


class MetadataWatch:
    """Observer that counts metadata changes. It compares the newest image of any broker with the
    previous one."""

    def __init__(self, cluster: SimulatedCluster, rare: RareStates) -> None:
        self.counts: Counter[str] = Counter()
        self._cluster = cluster
        self._rare = rare
        self._known: dict[tuple[UUID, int], PartitionState] = {}
        self._epoch = -1
        self._offset = -1

    async def run(self) -> NoReturn:
        """Compare the newest metadata image with the previous one, at intervals, and count the
        changes."""
        while True:
            self._look()
            await trio.sleep(LOOK_S)

    def _look(self) -> None:
        image = self._cluster.latest_image
        if image is None or image.provenance.offset <= self._offset:
            return
        self._offset = image.provenance.offset
        if image.provenance.epoch != self._epoch:
            if self._epoch >= 0:
                self.counts["controller elections"] += 1
                self._rare.sometimes("another controller is active")
            self._epoch = image.provenance.epoch
        for topic_id, topic in image.topics.items():
            for number, state in topic.partitions.items():
                before = self._known.get((topic_id, number))
                self._known[topic_id, number] = state
                if before is not None and before is not state:
                    self._compare(before, state)

    def _compare(self, before: PartitionState, state: PartitionState) -> None:
        if (
            state.leader_epoch < before.leader_epoch
            or state.partition_epoch < before.partition_epoch
        ):
            raise Violation("EpochsRise", f"{before} became {state}")
        self.counts["elections"] += state.leader_epoch - before.leader_epoch
        rare = self._rare
        if state.leader != before.leader and state.leader >= 0:
            rare.sometimes("a broker fails over")
        if state.leader < 0 <= before.leader:
            rare.sometimes("a partition has no leader")
        if state.isr != before.isr:
            self.counts["ISR changes"] += 1
            if len(state.isr) == 1:
                rare.sometimes("an in-sync set has one member")
            if not state.isr:
                rare.sometimes("an in-sync set is empty")
            if len(before.isr) < len(state.isr) == len(state.replicas):
                rare.sometimes("an in-sync set is full again")
        if state.elr and not before.elr:
            rare.sometimes("a replica out of sync may still be elected")
        if state.leader in before.elr and state.leader != before.leader:
            rare.sometimes("one of them is elected")


class CompactionWatch:
    """Observer of compacted logs. It counts whether leaders or followers compact first, and the
    gaps in offsets that readers find."""

    def __init__(
        self, cluster: SimulatedCluster, workload: ClientWorkload, rare: RareStates
    ) -> None:
        self._cluster = cluster
        self._workload = workload
        self._rare = rare

    async def run(self) -> NoReturn:
        """Check the compacted logs at intervals, and count the rare states (which tests should
        reach) of compaction."""
        while True:
            self._look()
            await trio.sleep(COMPACTION_LOOK_S)

    def _look(self) -> None:
        rare, image = self._rare, self._cluster.latest_image
        if self._workload.gap_count:
            rare.sometimes("a consumer skips compacted records")
        for topic in () if image is None else image.topics.values():
            for number, state in topic.partitions.items():
                logs = self._logs(TopicPartition(topic.name, number))
                leading = logs.pop(NodeId(state.leader), None)
                if leading is None or not leading.config.is_compacted:
                    continue
                if topic.name == OFFSETS_TOPIC and leading.first_dirty_offset:
                    rare.sometimes("group offsets are compacted")
                for log in logs.values():
                    if log.end_offset < leading.first_dirty_offset:
                        rare.sometimes("a follower lags behind the compacted part of its leader")
                    if log.first_dirty_offset > leading.first_dirty_offset:
                        rare.sometimes("a leader has compacted less than its follower")

    def _logs(self, at: TopicPartition) -> dict[NodeId, Log]:
        found = {node: broker.logs.get(at) for node, broker in self._cluster.brokers.items()}
        return {node: log for node, log in found.items() if log is not None}
