"""Admin calls for replicas: leader elections, partition reassignments, moves between log
directories, and active producers."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ottla.client.admin_parts.admin_calls import AdminCalls, by_topic, refusal_of
from ottla.client.network.answer_checks import only
from ottla.client.network.cluster import raise_for
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId, Offset, ProducerId, TopicPartition
from ottla.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
)
from ottla.wire.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.wire.messages.alter_replica_log_dirs_response import AlterReplicaLogDirsResponse
from ottla.wire.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.describe_producers_response import DescribeProducersResponse
from ottla.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.elect_leaders_response import ElectLeadersResponse
from ottla.wire.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from ottla.wire.messages.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
)

PREFERRED = 0
UNCLEAN = 1


class Reassignment(NamedTuple):
    """State of a partition that is being reassigned to other brokers."""

    replicas: tuple[NodeId, ...]
    """Brokers that have a replica of the partition at present, including replicas that are being
    added or removed."""
    adding: tuple[NodeId, ...]
    """Brokers to which a replica is being added."""
    removing: tuple[NodeId, ...]
    """Brokers from which the replica is being removed."""


class ActiveProducer(NamedTuple):
    """A producer that has recently written to a partition, as reported by the partition's
    leader."""

    producer_id: ProducerId
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start: Offset | None
    """First offset of the producer's open transaction in the partition. None if no transaction is
    open."""


class ReplicaCalls(AdminCalls):
    """Methods of the admin client for the replicas of partitions."""

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, is_unclean: bool = False
    ) -> dict[TopicPartition, ErrorCode]:
        """Elect the preferred replica of each partition as its leader.

        None for `partitions` means all partitions. With `is_unclean`, a replica that is not in sync
        may become the leader. Records that only other replicas have are then lost. Returns the
        error code of each partition: NONE, ELECTION_NOT_NEEDED or an error.
        """
        return _codes(await self.try_elect_leaders(partitions, is_unclean=is_unclean))

    async def try_elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, is_unclean: bool = False
    ) -> dict[TopicPartition, RefusedError | None]:
        """Elect leaders as `elect_leaders` does, and return refusals with their messages.

        Returns the RefusedError of each partition, or None if its election succeeded.
        """
        wanted = None
        if partitions is not None:
            wanted = [
                TopicPartitions(topic=topic, partitions=indexes)
                for topic, indexes in by_topic(partitions).items()
            ]
        request = ElectLeadersRequest(
            election_type=UNCLEAN if is_unclean else PREFERRED,
            topic_partitions=wanted,
            timeout_ms=self._timeout_ms,
        )
        answer = await self._cluster.request(request, ElectLeadersResponse)
        raise_for(answer.error_code)
        return {
            TopicPartition(topic.topic, one.partition_id): refusal_of(
                one.error_code, one.error_message
            )
            for topic in answer.replica_election_results
            for one in topic.partition_result
        }

    async def alter_reassignments(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        may_change_replication_factor: bool = True,
    ) -> dict[TopicPartition, ErrorCode]:
        """Reassign each partition to the brokers in `targets`. The first broker becomes the
        preferred leader.

        None in place of the brokers cancels the reassignment of a partition. Returns the error code
        of each partition: NONE, or the reason of the refusal.
        """
        return _codes(
            await self.try_alter_reassignments(
                targets, may_change_replication_factor=may_change_replication_factor
            )
        )

    async def try_alter_reassignments(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        may_change_replication_factor: bool = True,
    ) -> dict[TopicPartition, RefusedError | None]:
        """Reassign partitions as `alter_reassignments` does, and return refusals with their
        messages.

        Returns the RefusedError of each partition, or None if the controller accepted the
        reassignment.
        """
        topics: dict[str, ReassignableTopic] = {}
        for at, replicas in targets.items():
            topic = topics.setdefault(at.topic, ReassignableTopic(name=at.topic))
            topic.partitions.append(
                ReassignablePartition(
                    partition_index=at.partition,
                    replicas=None if replicas is None else list(replicas),
                )
            )
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=self._timeout_ms, topics=list(topics.values())
        )
        if not may_change_replication_factor:
            request.allow_replication_factor_change = False
        answer = await self._cluster.request(request, AlterPartitionReassignmentsResponse)
        raise_for(answer.error_code, answer.error_message)
        return {
            TopicPartition(topic.name, one.partition_index): refusal_of(
                one.error_code, one.error_message
            )
            for topic in answer.responses
            for one in topic.partitions
        }

    async def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Return the reassignments in progress of `partitions`, or of all partitions if
        `partitions` is None."""
        wanted = None
        if partitions is not None:
            wanted = [
                ListPartitionReassignmentsTopics(name=topic, partition_indexes=indexes)
                for topic, indexes in by_topic(partitions).items()
            ]
        request = ListPartitionReassignmentsRequest(timeout_ms=self._timeout_ms, topics=wanted)
        answer = await self._cluster.request(request, ListPartitionReassignmentsResponse)
        raise_for(answer.error_code, answer.error_message)
        return {
            TopicPartition(topic.name, one.partition_index): Reassignment(
                tuple(map(NodeId, one.replicas)),
                tuple(map(NodeId, one.adding_replicas)),
                tuple(map(NodeId, one.removing_replicas)),
            )
            for topic in answer.topics
            for one in topic.partitions
        }

    async def move_replicas(
        self, node: NodeId, directories: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, RefusedError | None]:
        """Move replicas of a broker to other log directories of that broker (KIP-113).
        `directories` has the path of the new directory of each partition.

        Returns the RefusedError of each partition, or None if the move has started or the replica
        is already in the directory. `describe_log_dirs` shows the progress.
        """
        request = AlterReplicaLogDirsRequest()
        for path in sorted(set(directories.values())):
            wanted = by_topic(at for at, chosen in directories.items() if chosen == path)
            request.dirs.append(
                AlterReplicaLogDir(
                    path=path,
                    topics=[
                        AlterReplicaLogDirTopic(name=topic, partitions=indexes)
                        for topic, indexes in wanted.items()
                    ],
                )
            )
        answer = await self._cluster.request(request, AlterReplicaLogDirsResponse, node=node)
        return {
            TopicPartition(topic.topic_name, one.partition_index): refusal_of(one.error_code, None)
            for topic in answer.results
            for one in topic.partitions
        }

    async def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[ActiveProducer]]:
        """Return the active producers of each partition, as reported by its leader."""
        return {
            at: await self._retry_until_timeout(partial(self._producers_once, at))
            for at in set(partitions)
        }

    async def _producers_once(self, at: TopicPartition) -> list[ActiveProducer]:
        topic = TopicRequest(name=at.topic, partition_indexes=[at.partition])
        leader = await self._cluster.leader_of(at)
        answer = await self._cluster.request(
            DescribeProducersRequest(topics=[topic]), DescribeProducersResponse, node=leader
        )
        row = only(only(answer.topics, "topic").partitions, "partition")
        if row.error_code != ErrorCode.NONE:
            self._cluster.forget_leaders()
        raise_for(row.error_code, row.error_message)
        return [
            ActiveProducer(
                ProducerId(one.producer_id),
                one.producer_epoch,
                one.last_sequence,
                one.last_timestamp,
                one.coordinator_epoch,
                Offset(one.current_txn_start_offset) if one.current_txn_start_offset >= 0 else None,
            )
            for one in row.active_producers
        ]


def _codes(
    outcomes: Mapping[TopicPartition, RefusedError | None],
) -> dict[TopicPartition, ErrorCode]:
    return {
        at: ErrorCode.NONE if refusal is None else refusal.code for at, refusal in outcomes.items()
    }
