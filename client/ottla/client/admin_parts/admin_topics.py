"""Admin calls for topics, their partitions and their records."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import NamedTuple, TypeAlias
from uuid import UUID

from ottla.client.admin_parts.admin_calls import AdminCalls, by_topic, granted, refusal_of
from ottla.client.fetch.offset_lookup import FoundOffset, find_offsets
from ottla.client.network.answer_checks import only
from ottla.client.network.cluster import raise_for
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import ZERO_UUID, Epoch, NodeId, Offset, TopicPartition
from ottla.model.settings.resources import ConfigKind
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
from ottla.wire.messages.describe_topic_partitions_request import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from ottla.wire.messages.describe_topic_partitions_response import (
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from ottla.wire.messages.list_config_resources_request import ListConfigResourcesRequest
from ottla.wire.messages.list_config_resources_response import ListConfigResourcesResponse
from ottla.wire.messages.metadata_response import MetadataResponseTopic

BY_CLUSTER_DEFAULT = -1
"""Value of a partition count or replication factor that selects the cluster's default."""
DELETE_BY_NAME_VERSION = DELETE_TOPICS_STATES_FROM - 1
TYPES_OF_RESOURCES_FROM = 1
"""First version of ListConfigResources that lists topics."""
_DescribedTopic: TypeAlias = MetadataResponseTopic | DescribeTopicPartitionsResponseTopic


class PartitionDescription(NamedTuple):
    """Leader and replicas of one partition."""

    partition: int
    leader: NodeId | None
    leader_epoch: Epoch
    replicas: tuple[NodeId, ...]
    in_sync: tuple[NodeId, ...]
    offline: tuple[NodeId, ...]
    eligible: tuple[NodeId, ...] | None = None
    """Replicas that are not in sync but may be elected without loss of records (KIP-966). None if
    the responding broker did not report them."""
    last_known_eligible: tuple[NodeId, ...] | None = None
    """Replicas that were eligible leader replicas until an unclean stop, after which they may lack
    records (KIP-966). None if the responding broker did not report them."""


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic: its id and its partitions with their leaders and replicas."""

    name: str
    """Name of the topic."""
    topic_id: UUID
    """Id of the topic."""
    is_internal: bool
    """True if the topic is an internal topic of the cluster, such as `__consumer_offsets`."""
    partitions: tuple[PartitionDescription, ...]
    """Partitions in order of their numbers, each with its leader and replicas."""
    is_complete: bool = True
    """False if the topic has further partitions, beyond the requested maximum."""


class CreatedTopic(NamedTuple):
    """Properties of a topic that a request created. After a rehearsal, these are the properties
    that the topic would have."""

    partition_count: int
    replication_factor: int


class TopicCalls(AdminCalls):
    """Methods of the admin client for topics, their partitions and their records.

    Methods with a plural name, and methods named `try_…`, send a single request without retries and
    return the result of each item.
    """

    async def create_topic(
        self,
        name: str,
        *,
        partition_count: int = BY_CLUSTER_DEFAULT,
        replication_factor: int = BY_CLUSTER_DEFAULT,
        configs: Mapping[str, str] | None = None,
        is_rehearsal: bool = False,
    ) -> None:
        """Create a topic.  With `is_rehearsal`, the request is only validated.

        Raises RefusedError if the topic exists already or cannot be created.
        """

        async def attempt() -> None:
            outcomes = await self.create_topics(
                [name],
                partition_count=partition_count,
                replication_factor=replication_factor,
                configs=(configs or {}).items(),
                is_rehearsal=is_rehearsal,
            )
            granted(only(list(outcomes.values()), "topic"))

        await self._retry_until_timeout(attempt)

    async def create_topics(
        self,
        names: Iterable[str],
        *,
        partition_count: int = BY_CLUSTER_DEFAULT,
        replication_factor: int = BY_CLUSTER_DEFAULT,
        configs: Iterable[tuple[str, str]] = (),
        is_rehearsal: bool = False,
    ) -> dict[str, CreatedTopic | RefusedError]:
        """Create several topics that have the same settings.

        Returns the properties of each topic, or the RefusedError. With `is_rehearsal`, the request
        is only validated.
        """
        settings = [CreatableTopicConfig(name=key, value=value) for key, value in configs]
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partition_count,
                    replication_factor=replication_factor,
                    configs=settings,
                )
                for name in names
            ],
            timeout_ms=self._timeout_ms,
            validate_only=is_rehearsal,
        )
        answer = await self._cluster.request(request, CreateTopicsResponse)
        return {
            row.name: refusal_of(row.error_code, row.error_message)
            or CreatedTopic(row.num_partitions, row.replication_factor)
            for row in answer.topics
        }

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and all its records."""
        granted(only(list((await self.delete_topics([name])).values()), "topic"))

    async def delete_topics(self, names: Iterable[str]) -> dict[str, RefusedError | None]:
        """Delete topics and all their records. Returns the RefusedError of each topic, or None if
        it was deleted."""
        request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=self._timeout_ms)
        answer = await self._cluster.request(
            request, DeleteTopicsResponse, version=DELETE_BY_NAME_VERSION
        )
        return {
            row.name or "": refusal_of(row.error_code, row.error_message)
            for row in answer.responses
        }

    async def create_partitions(self, topic: str, total_count: int) -> None:
        """Add partitions to a topic until it has `total_count` partitions.

        Afterwards, a record may be written to another partition than earlier records with the same
        key.
        """

        async def attempt() -> None:
            outcomes = await self.try_create_partitions({topic: total_count})
            granted(only(list(outcomes.values()), "topic"))

        await self._retry_until_timeout(attempt)

    async def try_create_partitions(
        self, total_counts: Mapping[str, int], *, is_rehearsal: bool = False
    ) -> dict[str, RefusedError | None]:
        """Add partitions to each topic until it has the total number of partitions in
        `total_counts`.

        Returns the RefusedError of each topic, or None if its partitions were added. With
        `is_rehearsal`, the request is only validated.
        """
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(name=topic, count=count, assignments=None)
                for topic, count in total_counts.items()
            ],
            timeout_ms=self._timeout_ms,
            validate_only=is_rehearsal,
        )
        answer = await self._cluster.request(request, CreatePartitionsResponse)
        return {row.name: refusal_of(row.error_code, row.error_message) for row in answer.results}

    async def list_topics(self) -> list[str]:
        """Return the sorted names of all topics except internal topics."""
        answer = await self._cluster.metadata()
        return sorted(topic.name or "" for topic in answer.topics if not topic.is_internal)

    async def describe_topic(self, name: str) -> TopicDescription:
        """Return a topic with the leaders and replicas of its partitions."""
        topic = only((await self._cluster.metadata([name])).topics, "topic")
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise_for(topic.error_code, f"there is no topic {name!r}")
        raise_for(topic.error_code)
        return _described(topic)

    async def describe_topics(
        self, names: Iterable[str], *, partition_count_max: int = 2_000
    ) -> dict[str, TopicDescription | RefusedError]:
        """Describe several topics by one request. Returns the leaders and replicas of each topic's
        partitions, or the RefusedError.

        With DescribeTopicPartitions (KIP-966), the partitions contain their eligible leader
        replicas, and at most `partition_count_max` partitions are returned, in order of the topics'
        names. Topics after the last of these partitions are not in the result. Brokers that do not
        support this request return all partitions, without eligible leader replicas.
        """
        wanted = sorted(set(names))
        if not wanted:
            return {}
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in wanted],
            response_partition_limit=partition_count_max,
        )
        try:
            answer = await self._cluster.request(request, DescribeTopicPartitionsResponse)
        except RefusedError as refusal:
            if refusal.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            topics: Iterable[_DescribedTopic] = (await self._cluster.metadata(wanted)).topics
            cut = ""
        else:
            topics = answer.topics
            cut = answer.next_cursor.topic_name if answer.next_cursor is not None else ""
        return {
            one.name or "": refusal_of(one.error_code, None)
            or _described(one, is_complete=one.name != cut)
            for one in topics
        }

    async def list_topic_names(self) -> list[str]:
        """Return the sorted names of all topics, including internal topics.

        Brokers that support ListConfigResources (KIP-1142) return only the names, if the user may
        describe the cluster's settings. Otherwise the response also contains all partitions, which
        takes longer.
        """
        try:
            version = await self._cluster.version_of(ListConfigResourcesRequest.API_KEY)
        except RefusedError:
            version = -1
        if version >= TYPES_OF_RESOURCES_FROM:
            request = ListConfigResourcesRequest(resource_types=[ConfigKind.TOPIC])
            answer = await self._cluster.request(request, ListConfigResourcesResponse)
            if answer.error_code == ErrorCode.NONE:
                return sorted(one.resource_name for one in answer.config_resources)
        return sorted(topic.name or "" for topic in (await self._cluster.metadata()).topics)

    async def list_offsets(
        self, times_ms: Mapping[TopicPartition, int], *, isolation_level: str = "read_uncommitted"
    ) -> dict[TopicPartition, FoundOffset]:
        """Return the first offset in each partition whose record has a timestamp at or after the
        time in `times_ms`, in ms since 1970.

        The value -2 selects the first offset of the partition, and -1 the end offset.
        """
        return await find_offsets(
            self._cluster, times_ms, isolation_level=isolation_level, timeout_s=self._timeout_s
        )

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Offset]:
        """Delete the records of each partition before the offset in `before`. The offset -1 deletes
        all records.

        Returns the new first offset of each partition.
        """
        found: dict[TopicPartition, Offset] = {}
        for at, offset in before.items():
            found[at] = await self._retry_until_timeout(partial(self._delete_once, at, offset))
        return found

    async def _delete_once(self, at: TopicPartition, offset: int) -> Offset:
        outcomes = await self.try_delete_records({at: offset})
        return granted(only(list(outcomes.values()), "partition"))

    async def try_delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Offset | RefusedError]:
        """Delete the records of each partition before the offset in `before`, by one request to
        each leader.

        Returns the new first offset of each partition, or the RefusedError. There are no retries.
        """
        led: dict[NodeId, list[TopicPartition]] = {}
        for at in before:
            led.setdefault(await self._cluster.leader_of(at), []).append(at)
        outcomes: dict[TopicPartition, Offset | RefusedError] = {}
        for leader, partitions in led.items():
            request = DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name=topic,
                        partitions=[
                            DeleteRecordsPartition(
                                partition_index=index, offset=before[TopicPartition(topic, index)]
                            )
                            for index in indexes
                        ],
                    )
                    for topic, indexes in by_topic(partitions).items()
                ],
                timeout_ms=self._timeout_ms,
            )
            answer = await self._cluster.request(request, DeleteRecordsResponse, node=leader)
            for topic in answer.topics:
                for row in topic.partitions:
                    outcomes[TopicPartition(topic.name, row.partition_index)] = refusal_of(
                        row.error_code
                    ) or Offset(row.low_watermark)
        if any(isinstance(outcome, RefusedError) for outcome in outcomes.values()):
            self._cluster.forget_leaders()
        return outcomes


def _described(topic: _DescribedTopic, *, is_complete: bool = True) -> TopicDescription:
    partitions = []
    for one in topic.partitions:
        eligible = last_known = None
        if isinstance(one, DescribeTopicPartitionsResponsePartition):
            eligible = tuple(map(NodeId, one.eligible_leader_replicas or ()))
            last_known = tuple(map(NodeId, one.last_known_elr or ()))
        partitions.append(
            PartitionDescription(
                partition=one.partition_index,
                leader=NodeId(one.leader_id) if one.leader_id >= 0 else None,
                leader_epoch=Epoch(one.leader_epoch),
                replicas=tuple(map(NodeId, one.replica_nodes)),
                in_sync=tuple(map(NodeId, one.isr_nodes)),
                offline=tuple(map(NodeId, one.offline_replicas)),
                eligible=eligible,
                last_known_eligible=last_known,
            )
        )
    return TopicDescription(
        topic.name or "",
        topic.topic_id or ZERO_UUID,
        topic.is_internal,
        tuple(sorted(partitions, key=attrgetter("partition"))),
        is_complete,
    )
