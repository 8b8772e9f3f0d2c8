"""How a broker's image shows that an admin request is done, so that its answer can wait for it.

Pure.  Only what succeeded is looked for, and only what can be told from request and answer alone.
"""

from collections.abc import Callable

from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_NODE, ZERO_UUID
from ottla.wire.codec_types import Message
from ottla.wire.messages.alter_configs_request import AlterConfigsRequest
from ottla.wire.messages.alter_configs_response import AlterConfigsResponse
from ottla.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
)
from ottla.wire.messages.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
)
from ottla.wire.messages.create_partitions_request import CreatePartitionsRequest
from ottla.wire.messages.create_partitions_response import CreatePartitionsResponse
from ottla.wire.messages.create_topics_request import CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest
from ottla.wire.messages.delete_topics_response import DeleteTopicsResponse
from ottla.wire.messages.elect_leaders_request import ElectLeadersRequest
from ottla.wire.messages.elect_leaders_response import ElectLeadersResponse
from ottla.wire.messages.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from ottla.wire.messages.incremental_alter_configs_response import (
    IncrementalAlterConfigsResponse,
)
from ottla.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from ottla.wire.messages.unregister_broker_response import UnregisterBrokerResponse
from ottla.wire.messages.update_features_request import UpdateFeaturesRequest
from ottla.wire.messages.update_features_response import UpdateFeaturesResponse

PREFERRED_ELECTION = 0

SET, DELETE = 0, 1
"""Operations of IncrementalAlterConfigs whose outcome can be told from the request alone."""

IsSeen = Callable[[MetadataImage], bool]


def what_to_see(request: Message, answer: Message) -> IsSeen | None:
    """Return how to tell that an image contains what the controller did; None if nothing."""
    if getattr(request, "validate_only", False):
        return None
    match request, answer:
        case CreateTopicsRequest(), CreateTopicsResponse():
            created = [t.name for t in answer.topics if t.error_code == ErrorCode.NONE]
            return lambda image: all(name in image.topic_ids for name in created)
        case DeleteTopicsRequest(), DeleteTopicsResponse():
            return _deleted(answer)
        case CreatePartitionsRequest(), CreatePartitionsResponse():
            return _grown(request, answer)
        case IncrementalAlterConfigsRequest(), IncrementalAlterConfigsResponse():
            return _configured(request, answer)
        case AlterConfigsRequest(), AlterConfigsResponse():
            return _replaced(request, answer)
        case ElectLeadersRequest(), ElectLeadersResponse():
            return _elected(request, answer)
        case AlterPartitionReassignmentsRequest(), AlterPartitionReassignmentsResponse():
            return _reassigned(request, answer)
        case UpdateFeaturesRequest(), UpdateFeaturesResponse(error_code=ErrorCode.NONE):
            levels = {one.feature: one.max_version_level for one in request.feature_updates}
            return lambda image: all(
                image.features.get(name, 0) == level for name, level in levels.items()
            )
        case UnregisterBrokerRequest(), UnregisterBrokerResponse(error_code=ErrorCode.NONE):
            return lambda image: request.broker_id not in image.brokers
    return None


def _deleted(answer: DeleteTopicsResponse) -> IsSeen:
    gone = [result for result in answer.responses if result.error_code == ErrorCode.NONE]
    ids = [result.topic_id for result in gone if result.topic_id != ZERO_UUID]
    names = [result.name for result in gone if result.topic_id == ZERO_UUID]
    return lambda image: (
        not (
            any(topic_id in image.topics for topic_id in ids)
            or any(name in image.topic_ids for name in names)
        )
    )


def _grown(request: CreatePartitionsRequest, answer: CreatePartitionsResponse) -> IsSeen:
    grown = {result.name for result in answer.results if result.error_code == ErrorCode.NONE}
    counts = {topic.name: topic.count for topic in request.topics if topic.name in grown}

    def is_seen(image: MetadataImage) -> bool:
        topics = {name: image.topic(name) for name in counts}
        return all(
            topic is None or len(topic.partitions) >= counts[name] for name, topic in topics.items()
        )

    return is_seen


def _configured(
    request: IncrementalAlterConfigsRequest, answer: IncrementalAlterConfigsResponse
) -> IsSeen:
    done = {
        (result.resource_type, result.resource_name)
        for result in answer.responses
        if result.error_code == ErrorCode.NONE
    }
    expected = [
        (resource.resource_type, resource.resource_name, config.name, wanted)
        for resource in request.resources
        if (resource.resource_type, resource.resource_name) in done
        for config in resource.configs
        if config.config_operation in (SET, DELETE)
        for wanted in (config.value if config.config_operation == SET else None,)
    ]
    return lambda image: all(
        image.config(kind, name).get(key) == wanted for kind, name, key, wanted in expected
    )


def _replaced(request: AlterConfigsRequest, answer: AlterConfigsResponse) -> IsSeen:
    done = {
        (result.resource_type, result.resource_name)
        for result in answer.responses
        if result.error_code == ErrorCode.NONE
    }
    expected = {
        (resource.resource_type, resource.resource_name): {
            config.name: config.value for config in resource.configs
        }
        for resource in request.resources
        if (resource.resource_type, resource.resource_name) in done
    }
    return lambda image: all(
        dict(image.config(*resource)) == texts for resource, texts in expected.items()
    )


def _elected(request: ElectLeadersRequest, answer: ElectLeadersResponse) -> IsSeen:
    elected = [
        (topic.topic, result.partition_id)
        for topic in answer.replica_election_results
        for result in topic.partition_result
        if result.error_code == ErrorCode.NONE
    ]

    def is_seen(image: MetadataImage) -> bool:
        for name, index in elected:
            topic = image.topic(name)
            state = None if topic is None else topic.partitions.get(index)
            if state is None:
                continue
            if state.leader == NO_NODE or (
                request.election_type == PREFERRED_ELECTION
                and state.leader != state.preferred_leader
            ):
                return False
        return True

    return is_seen


def _reassigned(
    request: AlterPartitionReassignmentsRequest, answer: AlterPartitionReassignmentsResponse
) -> IsSeen:
    done = {
        (topic.name, result.partition_index)
        for topic in answer.responses
        for result in topic.partitions
        if result.error_code == ErrorCode.NONE
    }
    wanted = {
        at: asked.replicas
        for topic in request.topics
        for asked in topic.partitions
        if (at := (topic.name, asked.partition_index)) in done
    }

    def is_seen(image: MetadataImage) -> bool:
        for (name, index), replicas in wanted.items():
            topic = image.topic(name)
            state = None if topic is None else topic.partitions.get(index)
            if state is None:
                continue
            if replicas is None:
                if state.adding or state.removing:
                    return False
            elif set(state.replicas).difference(state.removing) != set(replicas):
                return False
        return True

    return is_seen
