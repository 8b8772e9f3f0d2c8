"""The controller's decision for each forwarded client request, by API key.

A broker forwards a client's admin request to the active controller in Kafka's encoding. This module
decides the request, and returns the reply in Kafka's encoding. A decision raises RefusedError to
refuse a whole request.
"""

from functools import cache

from ottla.controller.decision import Context, Decide, Decision
from ottla.controller.describe_quorum import describe_quorum
from ottla.controller.membership.brokers import unregister_broker
from ottla.controller.membership.controllers import unregister_controller
from ottla.controller.membership.voters import add_voter, remove_voter
from ottla.controller.replication import topics
from ottla.controller.replication.elections import elect_leaders
from ottla.controller.replication.reassignments import (
    alter_partition_reassignments,
    list_partition_reassignments,
)
from ottla.controller.security import acls
from ottla.controller.security.scram_credentials import alter_user_scram_credentials
from ottla.controller.security.tokens import create_token, expire_token, renew_token
from ottla.controller.settings import configs
from ottla.controller.settings.client_quotas import alter_client_quotas
from ottla.controller.settings.update_features import update_features
from ottla.controller.snapshot_requests import write_snapshot
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.security.acls import AclOperation, ResourceType
from ottla.wire import apis
from ottla.wire.api import Need, Scope, When
from ottla.wire.apis import API
from ottla.wire.codec_types import Message


@cache
def cluster_needs(api_key: int) -> tuple[AclOperation, ...]:
    """Return the operations on the Cluster resource for which a client needs permission before its
    request is processed.

    For APIs without such operations, the decision authorizes each resource in the request
    separately.
    """
    return tuple(
        need.operation
        for need in API[api_key].needs
        if isinstance(need, Need)
        and (need.resource, need.scope, need.when)
        == (ResourceType.CLUSTER, Scope.REQUEST, When.ALWAYS)
    )


def decide(
    image: MetadataImage, api_key: int, request: Message, context: Context
) -> Decision[Message]:
    """Return the controller's decision for one forwarded client request. `image` is the metadata
    image of all appended records, committed or not.

    Raises RefusedError if the controller does not decide this API, if the client lacks permission
    on the cluster, or if the decision has too many records.
    """
    found = DECISIONS.get(api_key)
    if found is None:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_VERSION, f"The controller does not decide api key {api_key}."
        )
    for operation in cluster_needs(api_key):
        context.requester.check_cluster(operation)
    decision = found(image, context, request)
    if len(decision.records) > API[api_key].cost.records_max:
        raise RefusedError(
            ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
        )
    return decision


DECISIONS: dict[int, Decide] = {
    apis.CREATE_TOPICS: topics.create_topics,
    apis.DELETE_TOPICS: topics.delete_topics,
    apis.CREATE_PARTITIONS: topics.create_partitions,
    apis.ALTER_CONFIGS: configs.alter_configs,
    apis.INCREMENTAL_ALTER_CONFIGS: configs.incremental_alter_configs,
    apis.ELECT_LEADERS: elect_leaders,
    apis.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments,
    apis.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments,
    apis.UPDATE_FEATURES: update_features,
    apis.DESCRIBE_QUORUM: describe_quorum,
    apis.ALTER_CLIENT_QUOTAS: alter_client_quotas,
    apis.ALTER_USER_SCRAM_CREDENTIALS: alter_user_scram_credentials,
    apis.CREATE_ACLS: acls.create_acls,
    apis.DELETE_ACLS: acls.delete_acls,
    apis.UNREGISTER_BROKER: unregister_broker,
    apis.ADD_RAFT_VOTER: add_voter,
    apis.REMOVE_RAFT_VOTER: remove_voter,
    apis.UNREGISTER_CONTROLLER: unregister_controller,
    apis.WRITE_SNAPSHOT: write_snapshot,
    apis.CREATE_DELEGATION_TOKEN: create_token,
    apis.RENEW_DELEGATION_TOKEN: renew_token,
    apis.EXPIRE_DELEGATION_TOKEN: expire_token,
}
"""Functions that decide the requests that brokers forward, by API key. A test compares the keys
with `FORWARDED_KEYS`."""
