"""Where replicas are: elections, reassignments, moves between directories, producers."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ottla.client.admin_parts.admin_calls import AdminCalls, by_topic, refusal_of
from ottla.client.network.cluster import raise_for
from ottla.client.network.told import only
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
    """A partition that is on its way to other brokers."""

    replicas: tuple[NodeId, ...]
    """All it has now, old and new."""
    adding: tuple[NodeId, ...]
    """Brokers that get a replica."""
    removing: tuple[NodeId, ...]
    """Brokers that lose their replica."""


class ActiveProducer(NamedTuple):
    """A producer whose sequences a partition's leader remembers."""

    producer_id: ProducerId
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start: Offset | None
    """Where its open transaction begins; None where none is open."""


class ReplicaCalls(AdminCalls):
    """Calls about replicas."""

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, is_unclean: bool = False
    ) -> dict[TopicPartition, ErrorCode]:
        """Give partitions (all, for None) their preferred leader, or any replica as leader.

        Return what became of each that was asked: NONE, ELECTION_NOT_NEEDED or why not.  An
        unclean election loses what only the others had.
        """
        return _codes(await self.try_elect_leaders(partitions, is_unclean=is_unclean))

    async def try_elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, is_unclean: bool = False
    ) -> dict[TopicPartition, RefusedError | None]:
        """Elect leaders as `elect_leaders` does; return refusals with their messages."""
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
        """Move partitions to these brokers (the first is preferred); None gives a move up.

        Return what became of each: NONE, or why it was refused.
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
        """Move partitions as `alter_reassignments` does; return refusals with their messages."""
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
        """Return the moves under way, of these partitions or of all."""
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
        """Have a broker's replicas lie in other log directories of it (KIP-113), by their paths.

        None of a partition says that its move has begun, or that it is there already;
        `describe_log_dirs` shows how far it is.
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
        """Return the producers each partition's leader remembers."""
        return {
            at: await self._sit_out(partial(self._producers_once, at)) for at in set(partitions)
        }

    async def _producers_once(self, at: TopicPartition) -> list[ActiveProducer]:
        topic = TopicRequest(name=at.topic, partition_indexes=[at.partition])
        leader = await self._cluster.leader_of(at)
        answer = await self._cluster.request(
            DescribeProducersRequest(topics=[topic]), DescribeProducersResponse, node=leader
        )
        told = only(only(answer.topics, "topic").partitions, "partition")
        if told.error_code != ErrorCode.NONE:
            self._cluster.forget_leaders()
        raise_for(told.error_code, told.error_message)
        return [
            ActiveProducer(
                ProducerId(one.producer_id),
                one.producer_epoch,
                one.last_sequence,
                one.last_timestamp,
                one.coordinator_epoch,
                Offset(one.current_txn_start_offset) if one.current_txn_start_offset >= 0 else None,
            )
            for one in told.active_producers
        ]


def _codes(
    outcomes: Mapping[TopicPartition, RefusedError | None],
) -> dict[TopicPartition, ErrorCode]:
    return {
        at: ErrorCode.NONE if refusal is None else refusal.code for at, refusal in outcomes.items()
    }
