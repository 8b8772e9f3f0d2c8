"""The parts of requests that are refused one by one, and what the answer says of them.  Pure.

A part that its client may not use is taken out of the request before the handler sees it, and its
place in the answer is made here, in the shape that Kafka gives it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.broker.network.steps import StepPace, Steps
from ottla.model.errors import ErrorCode
from ottla.wire import apis
from ottla.wire.messages import (
    consumer_group_describe_response,
    delete_groups_response,
    delete_records_response,
    describe_configs_response,
    describe_groups_response,
    describe_producers_response,
    describe_transactions_response,
    find_coordinator_response,
    list_offsets_response,
    offset_commit_response,
    offset_delete_response,
    offset_fetch_response,
    offset_for_leader_epoch_response,
    produce_response,
    txn_offset_commit_response,
)

NO_OFFSET = -1
NO_NODE, NO_PORT = -1, -1


class Elements(NamedTuple):
    """The parts of one API's requests; each names a resource."""

    field: str
    """The list of the request that has them."""
    name: str
    """The field of a part with the resource's name; empty where the part is the name."""
    into: str
    """The list of the answer with a place for each."""
    refused: Callable[[Any, ErrorCode, list[Any]], Any]
    """Makes the place of a part, of the places of its partitions."""
    partitions: str = ""
    """The field of a part with its partitions, if it has some."""
    refused_partition: Callable[[Any, ErrorCode], Any] | None = None
    single: str = ""
    """The field with the one resource that earlier versions name, and are refused for."""
    lists_from: int = 0
    """The first version with the list."""
    is_served_empty: bool = False
    """Whether the handler is called though nothing is left of the request."""

    def name_of(self, part: Any) -> str:
        """Return the name of a part's resource; empty where the part has an id instead."""
        name: str = getattr(part, self.name) if self.name else part
        return name

    def place_of(self, part: Any, code: ErrorCode, pace: StepPace) -> Steps[Any]:
        """Make what the answer says of a part that is refused."""
        places: list[Any] = []
        if self.refused_partition is not None:
            for one in getattr(part, self.partitions):
                places.append(self.refused_partition(one, code))
                if pace.is_due():
                    yield
        if pace.is_due():
            yield
        return self.refused(part, code, places)


ELEMENTS: dict[int, Elements] = {
    apis.PRODUCE: Elements(
        field="topic_data",
        name="name",
        into="responses",
        refused=lambda topic, code, places: produce_response.TopicProduceResponse(
            name=topic.name, topic_id=topic.topic_id, partition_responses=places
        ),
        partitions="partition_data",
        refused_partition=lambda one, code: produce_response.PartitionProduceResponse(
            index=one.index, error_code=code, base_offset=NO_OFFSET
        ),
        is_served_empty=True,
    ),
    apis.LIST_OFFSETS: Elements(
        field="topics",
        name="name",
        into="topics",
        refused=lambda topic, code, places: list_offsets_response.ListOffsetsTopicResponse(
            name=topic.name, partitions=places
        ),
        partitions="partitions",
        refused_partition=lambda one, code: list_offsets_response.ListOffsetsPartitionResponse(
            partition_index=one.partition_index, error_code=code
        ),
    ),
    apis.OFFSET_COMMIT: Elements(
        field="topics",
        name="name",
        into="topics",
        refused=lambda topic, code, places: offset_commit_response.OffsetCommitResponseTopic(
            name=topic.name, topic_id=topic.topic_id, partitions=places
        ),
        partitions="partitions",
        refused_partition=lambda one, code: offset_commit_response.OffsetCommitResponsePartition(
            partition_index=one.partition_index, error_code=code
        ),
    ),
    apis.TXN_OFFSET_COMMIT: Elements(
        field="topics",
        name="name",
        into="topics",
        refused=lambda topic, code, places: txn_offset_commit_response.TxnOffsetCommitResponseTopic(
            name=topic.name, topic_id=topic.topic_id, partitions=places
        ),
        partitions="partitions",
        refused_partition=lambda one, code: (
            txn_offset_commit_response.TxnOffsetCommitResponsePartition(
                partition_index=one.partition_index, error_code=code
            )
        ),
    ),
    apis.OFFSET_DELETE: Elements(
        field="topics",
        name="name",
        into="topics",
        refused=lambda topic, code, places: offset_delete_response.OffsetDeleteResponseTopic(
            name=topic.name, partitions=places
        ),
        partitions="partitions",
        refused_partition=lambda one, code: offset_delete_response.OffsetDeleteResponsePartition(
            partition_index=one.partition_index, error_code=code
        ),
        is_served_empty=True,  # the group may not be there at all
    ),
    apis.DELETE_RECORDS: Elements(
        field="topics",
        name="name",
        into="topics",
        refused=lambda topic, code, places: delete_records_response.DeleteRecordsTopicResult(
            name=topic.name, partitions=places
        ),
        partitions="partitions",
        refused_partition=lambda one, code: delete_records_response.DeleteRecordsPartitionResult(
            partition_index=one.partition_index, low_watermark=NO_OFFSET, error_code=code
        ),
    ),
    apis.OFFSET_FOR_LEADER_EPOCH: Elements(
        field="topics",
        name="topic",
        into="topics",
        refused=lambda topic, code, places: (
            offset_for_leader_epoch_response.OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=places
            )
        ),
        partitions="partitions",
        refused_partition=lambda one, code: offset_for_leader_epoch_response.EpochEndOffset(
            partition=one.partition, error_code=code
        ),
    ),
    apis.DESCRIBE_PRODUCERS: Elements(
        field="topics",
        name="name",
        into="topics",
        refused=lambda topic, code, places: describe_producers_response.TopicResponse(
            name=topic.name, partitions=places
        ),
        partitions="partition_indexes",
        refused_partition=lambda index, code: describe_producers_response.PartitionResponse(
            partition_index=index, error_code=code
        ),
    ),
    apis.OFFSET_FETCH: Elements(
        field="groups",
        name="group_id",
        into="groups",
        refused=lambda group, code, places: offset_fetch_response.OffsetFetchResponseGroup(
            group_id=group.group_id, error_code=code
        ),
        single="group_id",
        lists_from=8,
    ),
    apis.FIND_COORDINATOR: Elements(
        field="coordinator_keys",
        name="",
        into="coordinators",
        refused=lambda key, code, places: find_coordinator_response.Coordinator(
            key=key, node_id=NO_NODE, port=NO_PORT, error_code=code, error_message=None
        ),
        single="key",
        lists_from=apis.COORDINATOR_KEYS_FROM,
    ),
    apis.DESCRIBE_GROUPS: Elements(
        field="groups",
        name="",
        into="groups",
        refused=lambda group_id, code, places: describe_groups_response.DescribedGroup(
            group_id=group_id, error_code=code
        ),
    ),
    apis.CONSUMER_GROUP_DESCRIBE: Elements(
        field="group_ids",
        name="",
        into="groups",
        refused=lambda group_id, code, places: consumer_group_describe_response.DescribedGroup(
            group_id=group_id, error_code=code
        ),
    ),
    apis.DELETE_GROUPS: Elements(
        field="groups_names",
        name="",
        into="results",
        refused=lambda group_id, code, places: delete_groups_response.DeletableGroupResult(
            group_id=group_id, error_code=code
        ),
    ),
    apis.DESCRIBE_TRANSACTIONS: Elements(
        field="transactional_ids",
        name="",
        into="transaction_states",
        refused=lambda transactional_id, code, places: (
            describe_transactions_response.TransactionState(
                transactional_id=transactional_id, error_code=code
            )
        ),
    ),
    apis.DESCRIBE_CONFIGS: Elements(
        field="resources",
        name="resource_name",
        into="results",
        refused=lambda resource, code, places: describe_configs_response.DescribeConfigsResult(
            error_code=code,
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        ),
    ),
}
"""The parts of each API that a gate takes out; what is not here, the handler looks at itself."""
