"""The seam between the server of a request and the decision if it may be served.  Pure.

A broker's handlers and a controller's decisions ask an `Authorizer`; the one that reads ACLs
belongs to the metadata image, so that an entry that is revoked stops counting with the image that
brings the change.  `AllowAll` stands where `authorizer.class.name` is empty.
"""

from typing import Protocol

from ottla.model.acls import OPERATIONS, AclOperation, ResourceType


class Authorizer(Protocol):
    """Decides what a principal at a host may do.  Every method is pure and waits for nothing.

    `principal` is as Kafka writes it (`User:alice`); `host` is the client's address in text.
    """

    @property
    def is_active(self) -> bool:
        """Whether anything can be refused at all; hot paths look here first."""
        ...

    @property
    def logs_allowed(self) -> bool:
        """Whether what is allowed is logged too: then it must be asked each time."""
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

        A denial is written to the audit log where `is_logged`; pass False where the resource was
        not asked for by name (a list that is filtered).
        """
        ...

    def is_allowed_somewhere(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Return whether the operation is allowed on at least one resource of the type.

        Kafka's `authorizeByResourceType`.
        """
        ...


class AllowAll:
    """The authorizer of a cluster that has none."""

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
        """Return True."""
        return True

    def is_allowed_somewhere(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Return True."""
        return True


def authorized_operations(
    authorizer: Authorizer, principal: str, host: str, resource_type: ResourceType, name: str
) -> int:
    """Return the allowed operations as the bit field of `authorizedOperations` in answers."""
    return sum(
        1 << operation
        for operation in OPERATIONS[resource_type]
        if authorizer.is_allowed(principal, host, operation, resource_type, name, is_logged=False)
    )
