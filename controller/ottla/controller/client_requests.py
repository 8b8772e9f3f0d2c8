"""Which decision answers which forwarded request: one row an api key.

A client's admin request reaches the active controller whole, in Kafka's encoding, and is decided
here; the reply goes back the same way.  A refusal of the whole request is a RefusedError.
"""

from collections.abc import Callable
from typing import Any

from ottla.controller import acls, topics
from ottla.controller.brokers import unregister
from ottla.controller.client_quotas import alter_client_quotas
from ottla.controller.configs import alter_configs, incremental_alter_configs
from ottla.controller.decision import Context, Decision, decided
from ottla.controller.describe_quorum import describe_quorum
from ottla.controller.elections import elect_leaders
from ottla.controller.reassignments import (
    alter_partition_reassignments,
    list_partition_reassignments,
)
from ottla.controller.scram_credentials import alter_user_scram_credentials
from ottla.controller.tokens import create_token, expire_token, renew_token
from ottla.controller.update_features import update_features
from ottla.metadata.image import MetadataImage
from ottla.model.acls import AclOperation, ResourceType
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.limits import INT32_MAX, USER_OPERATION_RECORDS_MAX
from ottla.wire.api_permissions import PERMISSIONS, Need, Scope, When
from ottla.wire.codec_types import Message
from ottla.wire.messages.alter_client_quotas_request import AlterClientQuotasRequest
from ottla.wire.messages.alter_configs_request import AlterConfigsRequest
from ottla.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
)
from ottla.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
)
from ottla.wire.messages.create_acls_request import CreateAclsRequest
from ottla.wire.messages.create_delegation_token_request import CreateDelegationTokenRequest
from ottla.wire.messages.create_partitions_request import CreatePartitionsRequest
from ottla.wire.messages.create_topics_request import CreateTopicsRequest
from ottla.wire.messages.delete_acls_request import DeleteAclsRequest
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest
from ottla.wire.messages.describe_quorum_request import DescribeQuorumRequest
from ottla.wire.messages.elect_leaders_request import ElectLeadersRequest
from ottla.wire.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from ottla.wire.messages.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from ottla.wire.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
)
from ottla.wire.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from ottla.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from ottla.wire.messages.unregister_broker_response import UnregisterBrokerResponse
from ottla.wire.messages.update_features_request import UpdateFeaturesRequest


def decide(
    image: MetadataImage, api_key: int, api_version: int, request: Message, context: Context
) -> Decision[Message]:
    """Decide one forwarded request on the (speculative) image."""
    found = DECISIONS.get(api_key)
    if found is None:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_VERSION, f"The controller does not decide api key {api_key}."
        )
    for operation in ON_CLUSTER.get(api_key, ()):
        context.requester.check_cluster(operation)
    decision = found(image, context, request, api_version)
    if len(decision.records) > records_max(api_key):
        raise RefusedError(
            ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
        )
    return decision


def records_max(api_key: int) -> int:
    """Return how many records a client's request may cost.

    A broker that goes takes all it led with it, in batches of their own; all else is bounded as in
    Kafka, with room for a record beside each one that was asked for.
    """
    return (
        INT32_MAX if api_key == UnregisterBrokerRequest.API_KEY else 2 * USER_OPERATION_RECORDS_MAX
    )


def _create_topics(
    image: MetadataImage, context: Context, request: CreateTopicsRequest, version: int
) -> Decision[Any]:
    return topics.create_topics(image, context, request)


def _delete_topics(
    image: MetadataImage, context: Context, request: DeleteTopicsRequest, version: int
) -> Decision[Any]:
    return topics.delete_topics(image, context, request, version=version)


def _create_partitions(
    image: MetadataImage, context: Context, request: CreatePartitionsRequest, version: int
) -> Decision[Any]:
    return topics.create_partitions(image, context, request)


def _alter_configs(
    image: MetadataImage, context: Context, request: AlterConfigsRequest, version: int
) -> Decision[Any]:
    return alter_configs(image, context, request)


def _incremental_alter_configs(
    image: MetadataImage, context: Context, request: IncrementalAlterConfigsRequest, version: int
) -> Decision[Any]:
    return incremental_alter_configs(image, context, request)


def _elect_leaders(
    image: MetadataImage, context: Context, request: ElectLeadersRequest, version: int
) -> Decision[Any]:
    return elect_leaders(image, context.config, request)


def _alter_reassignments(
    image: MetadataImage,
    context: Context,
    request: AlterPartitionReassignmentsRequest,
    version: int,
) -> Decision[Any]:
    return alter_partition_reassignments(image, context.config, request)


def _list_reassignments(
    image: MetadataImage, context: Context, request: ListPartitionReassignmentsRequest, version: int
) -> Decision[Any]:
    return decided(image, (), list_partition_reassignments(image, request))


def _update_features(
    image: MetadataImage, context: Context, request: UpdateFeaturesRequest, version: int
) -> Decision[Any]:
    return update_features(image, context.config, request, version=version)


def _describe_quorum(
    image: MetadataImage, context: Context, request: DescribeQuorumRequest, version: int
) -> Decision[Any]:
    return decided(image, (), describe_quorum(context.quorum_status(), request, version=version))


def _alter_client_quotas(
    image: MetadataImage, context: Context, request: AlterClientQuotasRequest, version: int
) -> Decision[Any]:
    return alter_client_quotas(image, request)


def _alter_scram_credentials(
    image: MetadataImage,
    context: Context,
    request: AlterUserScramCredentialsRequest,
    version: int,
) -> Decision[Any]:
    if context.requester.is_token:
        # A token must not give its holder a password, which would outlast it (KIP-554).
        raise RefusedError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    return alter_user_scram_credentials(image, request)


def _create_acls(
    image: MetadataImage, context: Context, request: CreateAclsRequest, version: int
) -> Decision[Any]:
    return acls.create_acls(image, context, request)


def _delete_acls(
    image: MetadataImage, context: Context, request: DeleteAclsRequest, version: int
) -> Decision[Any]:
    return acls.delete_acls(image, context, request)


def _create_token(
    image: MetadataImage, context: Context, request: CreateDelegationTokenRequest, version: int
) -> Decision[Any]:
    return create_token(image, context, request)


def _renew_token(
    image: MetadataImage, context: Context, request: RenewDelegationTokenRequest, version: int
) -> Decision[Any]:
    return renew_token(image, context, request)


def _expire_token(
    image: MetadataImage, context: Context, request: ExpireDelegationTokenRequest, version: int
) -> Decision[Any]:
    return expire_token(image, context, request)


def _unregister_broker(
    image: MetadataImage, context: Context, request: UnregisterBrokerRequest, version: int
) -> Decision[Any]:
    decision = unregister(image, context.config, request.broker_id)
    return decision.with_reply(UnregisterBrokerResponse(error_message=None))


DECISIONS: dict[int, Callable[[MetadataImage, Context, Any, int], Decision[Any]]] = {
    CreateTopicsRequest.API_KEY: _create_topics,
    DeleteTopicsRequest.API_KEY: _delete_topics,
    CreatePartitionsRequest.API_KEY: _create_partitions,
    AlterConfigsRequest.API_KEY: _alter_configs,
    IncrementalAlterConfigsRequest.API_KEY: _incremental_alter_configs,
    ElectLeadersRequest.API_KEY: _elect_leaders,
    AlterPartitionReassignmentsRequest.API_KEY: _alter_reassignments,
    ListPartitionReassignmentsRequest.API_KEY: _list_reassignments,
    UpdateFeaturesRequest.API_KEY: _update_features,
    DescribeQuorumRequest.API_KEY: _describe_quorum,
    AlterClientQuotasRequest.API_KEY: _alter_client_quotas,
    AlterUserScramCredentialsRequest.API_KEY: _alter_scram_credentials,
    CreateAclsRequest.API_KEY: _create_acls,
    DeleteAclsRequest.API_KEY: _delete_acls,
    UnregisterBrokerRequest.API_KEY: _unregister_broker,
    CreateDelegationTokenRequest.API_KEY: _create_token,
    RenewDelegationTokenRequest.API_KEY: _renew_token,
    ExpireDelegationTokenRequest.API_KEY: _expire_token,
}


def _cluster_needs(api_key: int) -> tuple[AclOperation, ...]:
    """Return what a client must be allowed on the cluster for a request, by the declared table."""
    return tuple(
        need.operation
        for need in PERMISSIONS[api_key].needs
        if isinstance(need, Need)
        and (need.resource, need.scope, need.when)
        == (ResourceType.CLUSTER, Scope.REQUEST, When.ALWAYS)
    )


ON_CLUSTER: dict[int, tuple[AclOperation, ...]] = {
    key: operations for key in DECISIONS if (operations := _cluster_needs(key))
}
"""What is needed for all of a request; the other APIs look at what they name, one by one."""
