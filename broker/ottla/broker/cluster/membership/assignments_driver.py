"""Reports the log directory of each replica to the controller (KIP-858).

A broker with several directories chooses the directory of each replica. The controller must know
the choice, so that it can move leaderships away when one disk fails. Reports are batched and
repeated until they are accepted.
"""

import logging
from collections import defaultdict
from collections.abc import Callable
from uuid import UUID

import trio

from ottla.model.errors import RefusedError
from ottla.model.ids import NodeId, TopicIdPartition
from ottla.node.part_registry import PartRegistry
from ottla.proto import controller_pb2 as pb
from ottla.rpc.controller_client import ControllerClient

logger = logging.getLogger("ottla.broker.assignments")

REPORT_TIMEOUT_MS = 5_000
RETRY_MS_FIRST = 100
RETRY_MS_MAX = 10_000
"""Maximum milliseconds between two attempts to report the log directories of replicas to the
controller. With a smaller value, a recovered controller gets the report earlier. With a larger
value, an overloaded controller gets fewer requests."""

PARTITIONS_PER_REPORT_MAX = 2_000
"""Maximum number of partitions in one report of replica directories. Further partitions are in the
next report."""


class Assignments:
    """Unconfirmed reports to the controller about the log directories of replicas. If there are
    several reports about a partition, only the latest is sent."""

    def __init__(
        self, node_id: NodeId, controller: ControllerClient, broker_epoch: Callable[[], int]
    ) -> None:
        self._node_id = node_id
        self._controller = controller
        self._broker_epoch = broker_epoch
        self._waiting: dict[TopicIdPartition, UUID] = {}
        self._is_due = trio.Event()

    def report(self, partition: TopicIdPartition, directory_id: UUID) -> None:
        """Queue a report to the controller that a replica of this broker is in a log directory."""
        self._waiting[partition] = directory_id
        self._is_due.set()

    def register_with(self, parts: PartRegistry) -> None:
        """Register the background task that reports the log directories of replicas to the
        controller."""
        parts.task("directory assignments", self.run)

    async def run(self) -> None:
        """Send queued reports of replicas' log directories to the controller until cancelled."""
        retry_ms = RETRY_MS_FIRST
        if self._waiting:
            self._is_due.set()
        while True:
            await self._is_due.wait()
            self._is_due = trio.Event()
            placed = dict(list(self._waiting.items())[:PARTITIONS_PER_REPORT_MAX])
            try:
                await self._controller.assign_replicas_to_dirs(
                    self._request(placed), deadline_ms=REPORT_TIMEOUT_MS
                )
            except RefusedError as error:
                logger.warning("directories of %d replicas not reported: %s", len(placed), error)
                await trio.sleep(retry_ms / 1000)
                retry_ms = min(2 * retry_ms, RETRY_MS_MAX)
            else:
                retry_ms = RETRY_MS_FIRST
                for partition, directory_id in placed.items():
                    if self._waiting.get(partition) == directory_id:
                        del self._waiting[partition]
            if self._waiting:
                self._is_due.set()

    def _request(self, placed: dict[TopicIdPartition, UUID]) -> pb.AssignReplicasToDirsRequest:
        by_directory: defaultdict[UUID, defaultdict[UUID, list[int]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for partition, directory_id in placed.items():
            by_directory[directory_id][partition.topic_id].append(partition.partition)
        return pb.AssignReplicasToDirsRequest(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            directories=[
                pb.DirectoryAssignment(
                    directory_id=directory_id.bytes,
                    topics=[
                        pb.DirectoryTopic(topic_id=topic_id.bytes, partitions=indexes)
                        for topic_id, indexes in topics.items()
                    ],
                )
                for directory_id, topics in by_directory.items()
            ],
        )
