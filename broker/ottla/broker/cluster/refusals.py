"""How the refusal of a whole admin request looks, in the answer of each API.

Pure.  Older answers have no room for an error of the whole: there it is said of every part that
was asked for, as Kafka does.
"""

from collections.abc import Callable
from typing import Any

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.explanations import Explanations
from ottla.wire.codec_types import Message
from ottla.wire.messages.alter_client_quotas_request import AlterClientQuotasRequest
from ottla.wire.messages.alter_client_quotas_response import (
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
)
from ottla.wire.messages.alter_configs_request import AlterConfigsRequest
from ottla.wire.messages.alter_configs_response import (
    AlterConfigsResourceResponse as AlteredResource,
)
from ottla.wire.messages.alter_configs_response import AlterConfigsResponse
from ottla.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
)
from ottla.wire.messages.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
)
from ottla.wire.messages.alter_user_scram_credentials_response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from ottla.wire.messages.create_acls_request import CreateAclsRequest
from ottla.wire.messages.create_acls_response import AclCreationResult, CreateAclsResponse
from ottla.wire.messages.create_delegation_token_request import CreateDelegationTokenRequest
from ottla.wire.messages.create_delegation_token_response import CreateDelegationTokenResponse
from ottla.wire.messages.create_partitions_request import CreatePartitionsRequest
from ottla.wire.messages.create_partitions_response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from ottla.wire.messages.create_topics_request import CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from ottla.wire.messages.delete_acls_request import DeleteAclsRequest
from ottla.wire.messages.delete_acls_response import DeleteAclsFilterResult, DeleteAclsResponse
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest
from ottla.wire.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from ottla.wire.messages.describe_quorum_request import DescribeQuorumRequest
from ottla.wire.messages.describe_quorum_response import DescribeQuorumResponse
from ottla.wire.messages.elect_leaders_request import ElectLeadersRequest
from ottla.wire.messages.elect_leaders_response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ottla.wire.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from ottla.wire.messages.expire_delegation_token_response import ExpireDelegationTokenResponse
from ottla.wire.messages.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from ottla.wire.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from ottla.wire.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
)
from ottla.wire.messages.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
)
from ottla.wire.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from ottla.wire.messages.renew_delegation_token_response import RenewDelegationTokenResponse
from ottla.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from ottla.wire.messages.unregister_broker_response import UnregisterBrokerResponse
from ottla.wire.messages.update_features_request import UpdateFeaturesRequest
from ottla.wire.messages.update_features_response import UpdateFeaturesResponse

ELECTION_ERROR_FROM = 1
"""The first version of ElectLeaders with an error of the whole."""


def refuse(request: Message, refusal: RefusedError, version: int) -> Message:
    """Return the answer to a request that is refused as a whole."""
    code = refusal.code
    if code is ErrorCode.NETWORK_EXCEPTION:
        # It is between us and the controllers; the client's own network is fine.
        code = ErrorCode.REQUEST_TIMED_OUT
    return REFUSALS[request.API_KEY](request, code, refusal.message, version)


def _create_topics(
    request: CreateTopicsRequest, code: ErrorCode, message: str, version: int
) -> Message:
    explanations = Explanations()
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(
                name=topic.name,
                error_code=code,
                error_message=explanations.of(message),
                configs=None,
            )
            for topic in request.topics
        ]
    )


def _delete_topics(
    request: DeleteTopicsRequest, code: ErrorCode, message: str, version: int
) -> Message:
    explanations = Explanations()
    by_name = [
        DeletableTopicResult(name=name, error_code=code, error_message=explanations.of(message))
        for name in request.topic_names
    ]
    by_either = [
        DeletableTopicResult(
            name=topic.name,
            topic_id=topic.topic_id,
            error_code=code,
            error_message=explanations.of(message),
        )
        for topic in request.topics
    ]
    return DeleteTopicsResponse(responses=by_name + by_either)


def _create_partitions(
    request: CreatePartitionsRequest, code: ErrorCode, message: str, version: int
) -> Message:
    explanations = Explanations()
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(
                name=topic.name, error_code=code, error_message=explanations.of(message)
            )
            for topic in request.topics
        ]
    )


def _alter_configs(
    request: AlterConfigsRequest, code: ErrorCode, message: str, version: int
) -> Message:
    explanations = Explanations()
    return AlterConfigsResponse(
        responses=[
            AlteredResource(
                error_code=code,
                error_message=explanations.of(message),
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, code: ErrorCode, message: str, version: int
) -> Message:
    explanations = Explanations()
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=explanations.of(message),
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _elect_leaders(
    request: ElectLeadersRequest, code: ErrorCode, message: str, version: int
) -> Message:
    explanations = Explanations()
    return ElectLeadersResponse(
        error_code=code if version >= ELECTION_ERROR_FROM else ErrorCode.NONE,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(
                        partition_id=index, error_code=code, error_message=explanations.of(message)
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def _alter_reassignments(
    request: AlterPartitionReassignmentsRequest, code: ErrorCode, message: str, version: int
) -> Message:
    explanations = Explanations()
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=code,
        error_message=message,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=one.partition_index,
                        error_code=code,
                        error_message=explanations.of(message),
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _list_reassignments(
    request: ListPartitionReassignmentsRequest, code: ErrorCode, message: str, version: int
) -> Message:
    return ListPartitionReassignmentsResponse(error_code=code, error_message=message)


def _describe_quorum(
    request: DescribeQuorumRequest, code: ErrorCode, message: str, version: int
) -> Message:
    return DescribeQuorumResponse(error_code=code, error_message=message)


def _update_features(
    request: UpdateFeaturesRequest, code: ErrorCode, message: str, version: int
) -> Message:
    return UpdateFeaturesResponse(error_code=code, error_message=message)


def _alter_client_quotas(
    request: AlterClientQuotasRequest, code: ErrorCode, message: str, version: int
) -> Message:
    explanations = Explanations()
    return AlterClientQuotasResponse(
        entries=[
            EntryData(
                error_code=code,
                error_message=explanations.of(message),
                entity=[
                    EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
                    for part in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )


def _alter_scram_credentials(
    request: AlterUserScramCredentialsRequest, code: ErrorCode, message: str, version: int
) -> Message:
    explanations = Explanations()
    names = dict.fromkeys(
        [one.name for one in request.deletions] + [one.name for one in request.upsertions]
    )
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(
                user=name, error_code=code, error_message=explanations.of(message)
            )
            for name in names
        ]
    )


def _create_acls(
    request: CreateAclsRequest, code: ErrorCode, message: str, version: int
) -> Message:
    explanations = Explanations()
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code=code, error_message=explanations.of(message))
            for _ in request.creations
        ]
    )


def _delete_acls(
    request: DeleteAclsRequest, code: ErrorCode, message: str, version: int
) -> Message:
    explanations = Explanations()
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(
                error_code=code, error_message=explanations.of(message), matching_acls=[]
            )
            for _ in request.filters
        ]
    )


def _create_token(
    request: CreateDelegationTokenRequest, code: ErrorCode, message: str, version: int
) -> Message:
    return CreateDelegationTokenResponse(error_code=code)


def _renew_token(
    request: RenewDelegationTokenRequest, code: ErrorCode, message: str, version: int
) -> Message:
    return RenewDelegationTokenResponse(error_code=code)


def _expire_token(
    request: ExpireDelegationTokenRequest, code: ErrorCode, message: str, version: int
) -> Message:
    return ExpireDelegationTokenResponse(error_code=code)


def _unregister_broker(
    request: UnregisterBrokerRequest, code: ErrorCode, message: str, version: int
) -> Message:
    explanations = Explanations()
    return UnregisterBrokerResponse(error_code=code, error_message=explanations.of(message))


REFUSALS: dict[int, Callable[[Any, ErrorCode, str, int], Message]] = {
    CreateTopicsRequest.API_KEY: _create_topics,
    DeleteTopicsRequest.API_KEY: _delete_topics,
    CreatePartitionsRequest.API_KEY: _create_partitions,
    AlterConfigsRequest.API_KEY: _alter_configs,
    IncrementalAlterConfigsRequest.API_KEY: _incremental_alter_configs,
    ElectLeadersRequest.API_KEY: _elect_leaders,
    AlterPartitionReassignmentsRequest.API_KEY: _alter_reassignments,
    ListPartitionReassignmentsRequest.API_KEY: _list_reassignments,
    DescribeQuorumRequest.API_KEY: _describe_quorum,
    UpdateFeaturesRequest.API_KEY: _update_features,
    AlterClientQuotasRequest.API_KEY: _alter_client_quotas,
    AlterUserScramCredentialsRequest.API_KEY: _alter_scram_credentials,
    CreateAclsRequest.API_KEY: _create_acls,
    DeleteAclsRequest.API_KEY: _delete_acls,
    UnregisterBrokerRequest.API_KEY: _unregister_broker,
    CreateDelegationTokenRequest.API_KEY: _create_token,
    RenewDelegationTokenRequest.API_KEY: _renew_token,
    ExpireDelegationTokenRequest.API_KEY: _expire_token,
}
"""One row for every API that is forwarded."""
