"""What the client of one request may do.  Pure.

Each operation on a resource is decided once for a request, however often its parts name it.  A
request that waits for long is decided again when the authorizer has changed meanwhile.
"""

from ottla.broker.network.dispatch import Peer
from ottla.model.acls import CLUSTER_NAME, AclOperation, ResourceType
from ottla.model.authorizer import AllowAll, Authorizer, authorized_operations
from ottla.wire.api_permissions import Need


class AuthorizerInForce:
    """The authorizer that decides at the moment; another one takes its place with an image."""

    __slots__ = ("authorizer", "version")

    def __init__(self) -> None:
        self.authorizer: Authorizer = AllowAll()
        self.version = 0
        """Rises whenever something else may be allowed."""

    def use(self, authorizer: Authorizer) -> None:
        """Have an authorizer decide from now on."""
        self.authorizer = authorizer
        self.note_change()

    def note_change(self) -> None:
        """Note that the authorizer decides otherwise than before."""
        self.version += 1


class RequestPermissions:
    """Serves as the `Permissions` of one request."""

    __slots__ = ("_decided", "_in_force", "_version", "has_refused", "host", "principal")

    def __init__(self, in_force: AuthorizerInForce, peer: Peer) -> None:
        self._in_force = in_force
        self._version = in_force.version
        self._decided: dict[tuple[AclOperation, ResourceType, str], bool] = {}
        self.principal = peer.principal
        self.host = peer.peer_host
        self.has_refused = False
        """Whether parts of the request were taken out of it."""

    @property
    def version(self) -> int:
        """A number that changes whenever something else may be allowed."""
        return self._in_force.version

    def allows(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        is_logged: bool = True,
    ) -> bool:
        """Return whether an operation on a resource is allowed now."""
        in_force = self._in_force
        if self._version != in_force.version:
            self._version = in_force.version
            self._decided.clear()
        key = operation, resource_type, name
        decision = self._decided.get(key)
        if decision is None:
            decision = self._decided[key] = in_force.authorizer.is_allowed(
                self.principal, self.host, operation, resource_type, name, is_logged=is_logged
            )
        return decision

    def may(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Return as `allows`, and neither keep nor log it: for what outlives the request."""
        return self._in_force.authorizer.is_allowed(
            self.principal, self.host, operation, resource_type, name, is_logged=False
        )

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """Return the allowed operations, as answers have them: one bit each."""
        return authorized_operations(
            self._in_force.authorizer, self.principal, self.host, resource_type, name
        )

    def has(self, need: Need, name: str, *, is_logged: bool = True) -> bool:
        """Return whether what a row of the table needs is allowed on a resource."""
        resource = need.resource
        if resource is ResourceType.CLUSTER:
            name = CLUSTER_NAME
        if not need.is_somewhere:
            return self.allows(need.operation, resource, name, is_logged=is_logged)
        return self._in_force.authorizer.is_allowed_somewhere(
            self.principal, self.host, need.operation, resource
        )
