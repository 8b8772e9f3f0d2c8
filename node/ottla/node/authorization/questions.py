"""Permission checks that handlers make themselves. If permissions are None, every operation is
allowed.

Pure. The check before the handler cannot cover parts of responses, options and filtered lists.
Handlers check these with the functions of this module.
"""

from ottla.model.security.acls import CLUSTER_NAME, OPERATIONS, AclOperation, ResourceType
from ottla.node.network.dispatch import Permissions

OPERATIONS_NOT_ASKED = -(1 << 31)

OPERATIONS_COST = 8
"""Cost of computing the ACL operations that are allowed on one resource, measured in decisions of
the authorizer."""


def may(
    permissions: Permissions | None,
    operation: AclOperation,
    resource_type: ResourceType,
    name: str,
    *,
    is_logged: bool = True,
) -> bool:
    """Return whether the client may perform an operation on a resource. If the permissions are
    None, every operation is allowed."""
    return permissions is None or permissions.allows(
        operation, resource_type, name, is_logged=is_logged
    )


def may_describe_topic(
    permissions: Permissions | None, name: str, *, is_logged: bool = True
) -> bool:
    """Return whether the client has permission to describe a topic."""
    return permissions is None or permissions.allows(
        AclOperation.DESCRIBE, ResourceType.TOPIC, name, is_logged=is_logged
    )


def may_on_cluster(permissions: Permissions | None, operation: AclOperation) -> bool:
    """Return whether the client may perform an ACL operation on the cluster. A denial is not
    logged."""
    return permissions is None or permissions.allows(
        operation, ResourceType.CLUSTER, CLUSTER_NAME, is_logged=False
    )


def operations_on(permissions: Permissions | None, resource_type: ResourceType, name: str) -> int:
    """Return the ACL operations that the client may perform on a resource, as a bit field."""
    if permissions is None:
        return sum(1 << operation for operation in OPERATIONS[resource_type])
    return permissions.operations(resource_type, name)


def cluster_operations(permissions: Permissions | None, *, is_asked: bool) -> int:
    """Return the operations that the client may perform on the cluster, as a bit field. The result
    is 0 if the client may not DESCRIBE the cluster. It is `OPERATIONS_NOT_ASKED` if the request did
    not ask for cluster operations (`is_asked`)."""
    if not is_asked:
        return OPERATIONS_NOT_ASKED
    if not may(permissions, AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return operations_on(permissions, ResourceType.CLUSTER, CLUSTER_NAME)
