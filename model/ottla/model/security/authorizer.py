"""The authorizer interface, which decides whether a request may perform an operation. Pure.

A broker's request handlers and a controller call an `Authorizer`. The authorizer that evaluates
ACLs belongs to a metadata image. A deleted ACL entry therefore loses its effect with the image that
contains the deletion. `AllowAll` is used if `authorizer.class.name` is empty.
"""

from typing import Protocol

from ottla.model.security.acls import OPERATIONS, AclOperation, ResourceType


class Authorizer(Protocol):
    """Authorizer: decides the operations that a principal at a host may perform. All methods are
    pure and never wait.

    `principal` is in Kafka's notation (`User:alice`). `host` is the client's IP address as text.
    """

    @property
    def is_active(self) -> bool:
        """True if the authorizer may deny operations. Frequently executed code checks this
        first."""
        ...

    @property
    def logs_allowed(self) -> bool:
        """True if the authorizer logs allowed operations too. Callers must then check every
        operation."""
        ...

    def is_allowed(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        is_logged: bool = True,
    ) -> bool:
        """Return whether a principal may perform an operation on one resource.

        A denial is written to the audit log if `is_logged`. Callers pass False if the request did
        not name the resource, for example when they filter a list of topics.
        """
        ...

    def is_allowed_somewhere(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Return whether a principal may perform an operation on at least one resource of the type,
        as Kafka's `authorizeByResourceType` does."""
        ...


class AllowAll:
    """Authorizer of a cluster without a configured authorizer. It allows every operation."""

    is_active = False
    logs_allowed = False

    def is_allowed(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        is_logged: bool = True,
    ) -> bool:
        """Return True, because every operation is allowed."""
        return True

    def is_allowed_somewhere(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Return True, because every operation is allowed."""
        return True


def authorized_operations(
    authorizer: Authorizer, principal: str, host: str, resource_type: ResourceType, name: str
) -> int:
    """Return the operations that a principal may perform on a resource, as the bit field
    `authorizedOperations` of responses."""
    return sum(
        1 << operation
        for operation in OPERATIONS[resource_type]
        if authorizer.is_allowed(principal, host, operation, resource_type, name, is_logged=False)
    )
