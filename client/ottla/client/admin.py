"""What operators ask of a cluster: topics, settings, offsets, leaders, groups.

`async with open_admin(…) as admin`.  A call that is refused raises RefusedError with Kafka's code;
trouble that passes (a controller that changes, a connection that is lost) is sat out up to the
admin's timeout.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar
from uuid import UUID

import trio

from ottla.client.bootstrap import addresses_of
from ottla.client.cluster import Cluster, open_cluster, raise_for
from ottla.client.connection import ConnectionLostError
from ottla.client.coordinator import Coordinator, open_coordinator
from ottla.client.group_offsets import Committed, commit_offsets, fetch_offsets
from ottla.client.offset_lookup import FoundOffset, find_offsets
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import ZERO_UUID, Epoch, NodeId, Offset, TopicPartition
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
from ottla.wire.messages.delete_groups_request import DeleteGroupsRequest
from ottla.wire.messages.delete_groups_response import DeleteGroupsResponse
from ottla.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.messages.delete_records_response import DeleteRecordsResponse
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest
from ottla.wire.messages.delete_topics_response import DeleteTopicsResponse
from ottla.wire.messages.describe_cluster_request import DescribeClusterRequest
from ottla.wire.messages.describe_cluster_response import DescribeClusterResponse
from ottla.wire.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from ottla.wire.messages.describe_configs_response import DescribeConfigsResponse
from ottla.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.elect_leaders_response import ElectLeadersResponse
from ottla.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse

T = TypeVar("T")

BY_CLUSTER_DEFAULT = -1
"""As a count of partitions or replicas: what the cluster's settings say."""
DELETE_BY_NAME_VERSION = 5
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
SET_OPERATION = 0
DELETE_OPERATION = 1
PREFERRED = 0
UNCLEAN = 1


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


class BrokerDescription(NamedTuple):
    """One broker of the cluster."""

    node: NodeId
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """Who the cluster is."""

    cluster_id: str
    controller: NodeId
    brokers: tuple[BrokerDescription, ...]


class ConfigEntry(NamedTuple):
    """One setting of a topic or broker as it is in force."""

    value: str | None
    source: int
    """Kafka's number of where it comes from: 1 is the topic's own, 5 the built-in default."""
    is_read_only: bool
    is_sensitive: bool


class Admin:
    """An operator's view; made by `open_admin`."""

    def __init__(self, cluster: Cluster, *, client_id: str, timeout_s: float) -> None:
        self._cluster = cluster
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._timeout_ms = int(timeout_s * 1_000)

    # Topics.

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
            raise_for(answer.topics[0].error_code, answer.topics[0].error_message)

        await self._sit_out(attempt)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records."""
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=self._timeout_ms)
        answer = await self._cluster.request(
            request, DeleteTopicsResponse, version=DELETE_BY_NAME_VERSION
        )
        raise_for(answer.responses[0].error_code, answer.responses[0].error_message)

    async def create_partitions(self, topic: str, total_count: int) -> None:
        """Give a topic more partitions, up to this many; keys may move to others."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=total_count, assignments=None)],
            timeout_ms=self._timeout_ms,
        )

        async def attempt() -> None:
            answer = await self._cluster.request(request, CreatePartitionsResponse)
            raise_for(answer.results[0].error_code, answer.results[0].error_message)

        await self._sit_out(attempt)

    async def list_topics(self) -> list[str]:
        """Return the names of all topics but internal ones, in order."""
        answer = await self._cluster.metadata()
        return sorted(topic.name or "" for topic in answer.topics if not topic.is_internal)

    async def describe_topic(self, name: str) -> TopicDescription:
        """Return a topic's partitions and who has them."""
        (topic,) = (await self._cluster.metadata([name])).topics
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

    async def describe_cluster(self) -> ClusterDescription:
        """Return the cluster's id, its controller and its brokers."""
        answer = await self._cluster.request(DescribeClusterRequest(), DescribeClusterResponse)
        raise_for(answer.error_code, answer.error_message)
        return ClusterDescription(
            answer.cluster_id,
            NodeId(answer.controller_id),
            tuple(
                BrokerDescription(NodeId(one.broker_id), one.host, one.port, one.rack)
                for one in answer.brokers
            ),
        )

    # Settings.

    async def topic_configs(self, topic: str) -> dict[str, ConfigEntry]:
        """Return every setting of a topic as it is in force."""
        return await self._configs(TOPIC_RESOURCE, topic, None)

    async def broker_configs(self, node: NodeId) -> dict[str, ConfigEntry]:
        """Return every setting of a broker as it is in force there."""
        return await self._configs(BROKER_RESOURCE, str(node), node)

    async def alter_topic_configs(
        self, topic: str, changes: Mapping[str, str | None], *, is_rehearsal: bool = False
    ) -> None:
        """Change settings of a topic; None gives one its default back."""
        await self._alter(TOPIC_RESOURCE, topic, changes, is_rehearsal)

    async def alter_broker_configs(
        self, node: NodeId | None, changes: Mapping[str, str | None], *, is_rehearsal: bool = False
    ) -> None:
        """Change settings of a broker, or with None of all of them, while they run."""
        name = "" if node is None else str(node)
        await self._alter(BROKER_RESOURCE, name, changes, is_rehearsal)

    # Records and leaders.

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

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, is_unclean: bool = False
    ) -> dict[TopicPartition, ErrorCode]:
        """Give partitions (all, for None) their preferred leader, or any replica as leader.

        Return what became of each that was asked: NONE, ELECTION_NOT_NEEDED or why not.  An
        unclean election loses what only the others had.
        """
        wanted: dict[str, TopicPartitions] | None = None
        if partitions is not None:
            wanted = {}
            for at in partitions:
                wanted.setdefault(at.topic, TopicPartitions(topic=at.topic)).partitions.append(
                    at.partition
                )
        request = ElectLeadersRequest(
            election_type=UNCLEAN if is_unclean else PREFERRED,
            topic_partitions=None if wanted is None else list(wanted.values()),
            timeout_ms=self._timeout_ms,
        )
        answer = await self._cluster.request(request, ElectLeadersResponse)
        raise_for(answer.error_code)
        return {
            TopicPartition(topic.topic, one.partition_id): ErrorCode(one.error_code)
            for topic in answer.replica_election_results
            for one in topic.partition_result
        }

    # Groups.

    async def group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, Committed]:
        """Return what a group has committed, of these partitions or of all."""
        async with self._coordinator(group_id) as coordinator:
            return await coordinator.until_it_answers(
                lambda: fetch_offsets(coordinator, partitions), self._timeout_s
            )

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Let a group without members go on at these offsets."""
        commits = {at: Committed(Offset(offset)) for at, offset in offsets.items()}
        async with self._coordinator(group_id) as coordinator:
            await coordinator.until_it_answers(
                lambda: commit_offsets(coordinator, commits), self._timeout_s
            )

    async def delete_group(self, group_id: str) -> None:
        """Forget a group without members, and what it committed."""
        async with self._coordinator(group_id) as coordinator:

            async def attempt() -> None:
                answer = await coordinator.request(
                    DeleteGroupsRequest(groups_names=[group_id]),
                    DeleteGroupsResponse,
                    timeout_s=self._timeout_s,
                )
                raise_for(answer.results[0].error_code)

            await coordinator.until_it_answers(attempt, self._timeout_s)

    @asynccontextmanager
    async def _coordinator(self, group_id: str) -> AsyncIterator[Coordinator]:
        async with open_coordinator(
            self._cluster, group_id, client_id=self._client_id
        ) as coordinator:
            yield coordinator

    async def _delete_once(self, at: TopicPartition, offset: int) -> Offset:
        partition = DeleteRecordsPartition(partition_index=at.partition, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=at.topic, partitions=[partition])],
            timeout_ms=self._timeout_ms,
        )
        leader = await self._cluster.leader_of(at)
        answer = await self._cluster.request(request, DeleteRecordsResponse, node=leader)
        told = answer.topics[0].partitions[0]
        if told.error_code != ErrorCode.NONE:
            self._cluster.forget_leaders()
        raise_for(told.error_code)
        return Offset(told.low_watermark)

    async def _configs(
        self, resource_type: int, name: str, node: NodeId | None
    ) -> dict[str, ConfigEntry]:
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=resource_type, resource_name=name, configuration_keys=None
                )
            ]
        )
        answer = await self._cluster.request(request, DescribeConfigsResponse, node=node)
        (result,) = answer.results
        raise_for(result.error_code, result.error_message)
        return {
            one.name: ConfigEntry(one.value, one.config_source, one.read_only, one.is_sensitive)
            for one in result.configs
        }

    async def _alter(
        self, resource_type: int, name: str, changes: Mapping[str, str | None], is_rehearsal: bool
    ) -> None:
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=resource_type,
                    resource_name=name,
                    configs=[
                        AlterableConfig(
                            name=key,
                            config_operation=DELETE_OPERATION if value is None else SET_OPERATION,
                            value=value,
                        )
                        for key, value in changes.items()
                    ],
                )
            ],
            validate_only=is_rehearsal,
        )

        async def attempt() -> None:
            answer = await self._cluster.request(request, IncrementalAlterConfigsResponse)
            raise_for(answer.responses[0].error_code, answer.responses[0].error_message)

        await self._sit_out(attempt)

    async def _sit_out(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat what may be repeated without harm, while the trouble is one that passes."""
        trouble: RefusedError | ConnectionLostError = ConnectionLostError("nobody was asked")
        with trio.move_on_after(self._timeout_s):
            while True:
                try:
                    return await attempt()
                except ConnectionLostError as error:
                    trouble = error
                except RefusedError as error:
                    if not error.is_retriable or error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        raise
                    trouble = error
                await trio.sleep(0.1)
        raise trouble


@asynccontextmanager
async def open_admin(
    bootstrap: str | Iterable[tuple[str, int]],
    *,
    client_id: str = "ottla",
    timeout_s: float = 30.0,
) -> AsyncIterator[Admin]:
    """Open an operator's view; `bootstrap` is `host:port,…` of any brokers of the cluster."""
    async with open_cluster(
        addresses_of(bootstrap), client_id=client_id, request_timeout_s=timeout_s
    ) as cluster:
        yield Admin(cluster, client_id=client_id, timeout_s=timeout_s)
