"""The authorizer interface: decides whether an operation of a request is allowed. Pure.

A broker's handlers and a controller's decisions call an `Authorizer`. The authorizer that evaluates
ACLs belongs to the metadata image, so that a revoked entry loses its effect with the image that
contains the change. `AllowAll` is used if `authorizer.class.name` is empty.
"""

from typing import Protocol

from ottla.model.security.acls import OPERATIONS, AclOperation, ResourceType


class Authorizer(Protocol):
    """Authorizer, which decides the operations that a principal at a host may perform. All methods
    are pure and never wait.

    `principal` is as Kafka writes it (`User:alice`); `host` is the client's address as text.
    """

    @property
    def is_active(self) -> bool:
        """True if operations can be denied. Hot paths check this first."""
        ...

    @property
    def logs_allowed(self) -> bool:
        """True if allowed operations are also logged, so that each operation must be checked."""
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
        """Return whether the operation on one resource is allowed.

        A denial is written to the audit log if `is_logged`. Pass False if the request did not name
        the resource (a list that is filtered).
        """
        ...

    def is_allowed_somewhere(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Return whether the operation is allowed on at least one resource of the type, as Kafka's
        `authorizeByResourceType` does.
        """
        ...


class AllowAll:
    """The authorizer of a cluster in which none is configured. It allows every operation."""

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
    """Return the allowed operations as the bit field `authorizedOperations` of responses."""
    return sum(
        1 << operation
        for operation in OPERATIONS[resource_type]
        if authorizer.is_allowed(principal, host, operation, resource_type, name, is_logged=False)
    )
