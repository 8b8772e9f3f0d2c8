"""Client whose request a broker has forwarded, and the client's permissions. Pure.

The broker has authenticated the client, and forwards its principal and address. The controller
always authorizes the client again, by its own metadata image. A request without a principal was
sent by the broker itself, and is always allowed.
"""

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from ottla.model.security.authorizer import Authorizer
from ottla.model.values import frozen


@frozen
class Requester:
    """The sender of a request, with the properties that a decision may depend on."""

    principal: str = ""
    """Principal of the client in Kafka's form, such as `User:alice`. Empty for a broker's own
    request."""
    host: str = ""
    authorizer: Authorizer | None = None
    """Authorizer of the client's requests. None if every operation is allowed."""
    is_token: bool = False
    """True if the client authenticated with a delegation token."""

    def allows(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        is_logged: bool = True,
    ) -> bool:
        """Return whether the client may perform an ACL operation on a resource."""
        if self.authorizer is None or not self.principal:
            return True
        return self.authorizer.is_allowed(
            self.principal, self.host, operation, resource_type, name, is_logged=is_logged
        )

    def allows_on_cluster(self, operation: AclOperation, *, is_logged: bool = True) -> bool:
        """Return whether the client may perform an ACL operation on the cluster."""
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME, is_logged=is_logged)

    def check_topic(self, operation: AclOperation, name: str) -> None:
        """Raise RefusedError if the client may not perform an ACL operation on a topic."""
        if not self.allows(operation, ResourceType.TOPIC, name):
            raise RefusedError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def check_cluster(self, operation: AclOperation) -> None:
        """Raise RefusedError if the client may not perform an ACL operation on the cluster."""
        if not self.allows_on_cluster(operation):
            raise RefusedError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


A_BROKER = Requester()
"""Requester of requests that a broker sends on its own behalf. Every operation is allowed."""
