"""Topics, their partitions and their records, as operators make, describe and delete them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple
from uuid import UUID

from ottla.client.admin_calls import AdminCalls
from ottla.client.cluster import raise_for
from ottla.client.offset_lookup import FoundOffset, find_offsets
from ottla.client.told import only
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID, Epoch, NodeId, Offset, TopicPartition
from ottla.wire.apis import DELETE_TOPICS_STATES_FROM
from ottla.wire.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.wire.messages.create_partitions_response import CreatePartitionsResponse
from ottla.wire.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.messages.delete_records_response import DeleteRecordsResponse
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest
from ottla.wire.messages.delete_topics_response import DeleteTopicsResponse

BY_CLUSTER_DEFAULT = -1
"""As a count of partitions or replicas: what the cluster's settings say."""
DELETE_BY_NAME_VERSION = DELETE_TOPICS_STATES_FROM - 1


class PartitionDescription(NamedTuple):
    """Who has one partition."""

    partition: int
    leader: NodeId | None
    leader_epoch: Epoch
    replicas: tuple[NodeId, ...]
    in_sync: tuple[NodeId, ...]
    offline: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic and its partitions."""

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


class TopicCalls(AdminCalls):
    """Calls about topics."""

    async def create_topic(
        self,
        name: str,
        *,
        partition_count: int = BY_CLUSTER_DEFAULT,
        replication_factor: int = BY_CLUSTER_DEFAULT,
        configs: Mapping[str, str] | None = None,
        is_rehearsal: bool = False,
    ) -> None:
        """Create a topic; with `is_rehearsal` only say whether that would do."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partition_count,
                    replication_factor=replication_factor,
                    configs=[
                        CreatableTopicConfig(name=key, value=value)
                        for key, value in (configs or {}).items()
                    ],
                )
            ],
            timeout_ms=self._timeout_ms,
            validate_only=is_rehearsal,
        )

        async def attempt() -> None:
            answer = await self._cluster.request(request, CreateTopicsResponse)
            told = only(answer.topics, "topic")
            raise_for(told.error_code, told.error_message)

        await self._sit_out(attempt)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records."""
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=self._timeout_ms)
        answer = await self._cluster.request(
            request, DeleteTopicsResponse, version=DELETE_BY_NAME_VERSION
        )
        told = only(answer.responses, "topic")
        raise_for(told.error_code, told.error_message)

    async def create_partitions(self, topic: str, total_count: int) -> None:
        """Give a topic more partitions, up to this many; keys may move to others."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=total_count, assignments=None)],
            timeout_ms=self._timeout_ms,
        )

        async def attempt() -> None:
            answer = await self._cluster.request(request, CreatePartitionsResponse)
            told = only(answer.results, "topic")
            raise_for(told.error_code, told.error_message)

        await self._sit_out(attempt)

    async def list_topics(self) -> list[str]:
        """Return the names of all topics but internal ones, in order."""
        answer = await self._cluster.metadata()
        return sorted(topic.name or "" for topic in answer.topics if not topic.is_internal)

    async def describe_topic(self, name: str) -> TopicDescription:
        """Return a topic's partitions and who has them."""
        topic = only((await self._cluster.metadata([name])).topics, "topic")
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise_for(topic.error_code, f"there is no topic {name!r}")
        raise_for(topic.error_code)
        partitions = [
            PartitionDescription(
                partition=one.partition_index,
                leader=NodeId(one.leader_id) if one.leader_id >= 0 else None,
                leader_epoch=Epoch(one.leader_epoch),
                replicas=tuple(map(NodeId, one.replica_nodes)),
                in_sync=tuple(map(NodeId, one.isr_nodes)),
                offline=tuple(map(NodeId, one.offline_replicas)),
            )
            for one in topic.partitions
        ]
        return TopicDescription(
            name,
            topic.topic_id or ZERO_UUID,
            topic.is_internal,
            tuple(sorted(partitions)),
        )

    async def list_offsets(
        self, times_ms: Mapping[TopicPartition, int], *, isolation_level: str = "read_uncommitted"
    ) -> dict[TopicPartition, FoundOffset]:
        """Return the first offset at or after a time in ms; -2 asks for the first, -1 the end."""
        return await find_offsets(
            self._cluster, times_ms, isolation_level=isolation_level, timeout_s=self._timeout_s
        )

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Offset]:
        """Delete the records before these offsets (-1: all); return where the partitions begin."""
        found: dict[TopicPartition, Offset] = {}
        for at, offset in before.items():
            found[at] = await self._sit_out(partial(self._delete_once, at, offset))
        return found

    async def _delete_once(self, at: TopicPartition, offset: int) -> Offset:
        partition = DeleteRecordsPartition(partition_index=at.partition, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=at.topic, partitions=[partition])],
            timeout_ms=self._timeout_ms,
        )
        leader = await self._cluster.leader_of(at)
        answer = await self._cluster.request(request, DeleteRecordsResponse, node=leader)
        told = only(only(answer.topics, "topic").partitions, "partition")
        if told.error_code != ErrorCode.NONE:
            self._cluster.forget_leaders()
        raise_for(told.error_code)
        return Offset(told.low_watermark)
