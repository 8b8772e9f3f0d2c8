"""The client behind a request that a broker forwards, and what it may do.  Pure.

A broker has authenticated the client and passes on its principal and its address; the controller
decides by its own image what that client may do, whatever the broker thinks.  A request without a
principal is the broker's own, which may do everything.
"""

from ottla.model.acls import CLUSTER_NAME, AclOperation, ResourceType
from ottla.model.authorizer import Authorizer
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.values import frozen


@frozen
class Requester:
    """Who asked, as far as a decision needs to know."""

    principal: str = ""
    """As Kafka writes it; empty for a broker."""
    host: str = ""
    authorizer: Authorizer | None = None
    """None where everything is allowed."""
    is_token: bool = False
    """Whether it logged in by a delegation token."""

    def allows(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        is_logged: bool = True,
    ) -> bool:
        """Return whether the operation on a resource is allowed."""
        if self.authorizer is None or not self.principal:
            return True
        return self.authorizer.is_allowed(
            self.principal, self.host, operation, resource_type, name, is_logged=is_logged
        )

    def allows_on_cluster(self, operation: AclOperation, *, is_logged: bool = True) -> bool:
        """Return whether the operation on the cluster is allowed."""
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME, is_logged=is_logged)

    def check_topic(self, operation: AclOperation, name: str) -> None:
        """Raise RefusedError if the operation on a topic is not allowed."""
        if not self.allows(operation, ResourceType.TOPIC, name):
            raise RefusedError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def check_cluster(self, operation: AclOperation) -> None:
        """Raise RefusedError if the operation on the cluster is not allowed."""
        if not self.allows_on_cluster(operation):
            raise RefusedError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


A_BROKER = Requester()
"""A broker that asks for itself."""
