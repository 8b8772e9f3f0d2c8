"""What handlers ask of a request's permissions: None as permissions means that all is allowed.

Pure.  For what a gate cannot see: parts of answers, options, lists that are filtered.
"""

from ottla.broker.network.dispatch import Permissions
from ottla.model.acls import CLUSTER_NAME, OPERATIONS, AclOperation, ResourceType

OPERATIONS_NOT_ASKED = -(1 << 31)

OPERATIONS_COST = 8
"""Decisions that the operations of one resource take."""


def may(
    permissions: Permissions | None,
    operation: AclOperation,
    resource_type: ResourceType,
    name: str,
    *,
    is_logged: bool = True,
) -> bool:
    """Return whether an operation on a resource is allowed."""
    return permissions is None or permissions.allows(
        operation, resource_type, name, is_logged=is_logged
    )


def may_describe_topic(
    permissions: Permissions | None, name: str, *, is_logged: bool = True
) -> bool:
    """Return whether a topic may be shown."""
    return permissions is None or permissions.allows(
        AclOperation.DESCRIBE, ResourceType.TOPIC, name, is_logged=is_logged
    )


def may_on_cluster(permissions: Permissions | None, operation: AclOperation) -> bool:
    """Return whether an operation on the cluster is allowed; a denial is not logged."""
    return permissions is None or permissions.allows(
        operation, ResourceType.CLUSTER, CLUSTER_NAME, is_logged=False
    )


def operations_on(permissions: Permissions | None, resource_type: ResourceType, name: str) -> int:
    """Return what is allowed on a resource, one bit for each operation."""
    if permissions is None:
        return sum(1 << operation for operation in OPERATIONS[resource_type])
    return permissions.operations(resource_type, name)


def cluster_operations(permissions: Permissions | None, *, is_asked: bool) -> int:
    """Return what is allowed on the cluster, as answers have it; none without Describe."""
    if not is_asked:
        return OPERATIONS_NOT_ASKED
    if not may(permissions, AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return operations_on(permissions, ResourceType.CLUSTER, CLUSTER_NAME)
