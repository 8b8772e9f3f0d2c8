"""Permissions of a connection's client: decisions of the authorizer, cached for the connection.
Pure.

Allowed operations are cached for the connection. Denied operations are decided and logged once for
each request, even if many elements need the same operation. All caches are valid for one version of
the ACLs. With the next version, every operation is decided again, on open connections and for
waiting requests.
"""

from collections import defaultdict
from collections.abc import Set as AbstractSet
from typing import TypeAlias

from ottla.model.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from ottla.model.security.authorizer import AllowAll, Authorizer, authorized_operations
from ottla.node.network.dispatch import Peer
from ottla.node.network.response_cache import ClientKey
from ottla.wire.api import Need

KEPT_MAX = 128
"""Maximum number of resource names for which one connection caches allowed operations, at some 200
bytes each. With a smaller number, clients of many topics cause more calls of the authorizer, at a
microsecond for each call. A larger number takes more memory for every connection."""

NAME_CHARS_KEPT_MAX = 256
"""Maximum length in characters of a resource name whose permissions are cached. A topic name has at
most 249 characters; a group id may have 32 KiB."""

Granted: TypeAlias = "tuple[AclOperation, ResourceType]"
"""Pair of an ACL operation and a resource type. A cache stores the names of the resources on which
the operation is allowed, by this pair."""

WRITE_TOPIC: Granted = (AclOperation.WRITE, ResourceType.TOPIC)


class PermissionCache:
    """Cache of the operations that a connection's client is allowed to perform, valid for one
    version of the ACLs."""

    __slots__ = ("_count", "client_key", "is_keeping", "names", "version", "writable_topics")

    def __init__(self, version: int, *, is_keeping: bool) -> None:
        self.version = version
        """Version of the ACLs for which the cached permissions are valid."""
        self.names: defaultdict[Granted, set[str]] = defaultdict(set)
        """Names of the resources on which the client is allowed an operation, by operation and
        resource type."""
        self.writable_topics = self.names[WRITE_TOPIC]
        """Names of the topics to which the client may write, as far as they are cached. Each
        Produce request looks up its topics in this set."""
        self.is_keeping = is_keeping
        """True if allowed operations may be cached. False if each decision of the authorizer must
        be logged."""
        self.client_key: ClientKey | None = None
        """Key of the client in the caches of responses, valid for this version of the ACLs. None
        until the key is first needed."""
        self._count = 0

    def keep(self, granted: Granted, name: str) -> bool:
        """Cache an allowed operation on the resource `name`. Returns False if the operation is not
        cached, for example because the name is too long."""
        if not self.is_keeping or len(name) > NAME_CHARS_KEPT_MAX:
            return False
        if self._count >= KEPT_MAX:
            self._count = 0
            for names in self.names.values():
                names.clear()
        self._count += 1
        self.names[granted].add(name)
        return True


class CurrentAuthorizer:
    """Holder of the broker's current authorizer and of the version of its ACLs. The authorizer may
    be replaced at any time."""

    __slots__ = ("authorizer", "version")

    def __init__(self) -> None:
        self.authorizer: Authorizer = AllowAll()
        self.version = 0
        """Version of the ACLs, incremented whenever the allowed operations may have changed."""

    def use(self, authorizer: Authorizer) -> None:
        """Replace the broker's current authorizer."""
        self.authorizer = authorizer
        self.note_change()

    def note_change(self) -> None:
        """Increment the version of the ACLs, since decisions may have changed."""
        self.version += 1

    def permissions_of(self, peer: Peer) -> "ClientPermissions":
        """Return the permissions of a connection's client for its next request, under the current
        ACLs."""
        before: ClientPermissions | None = peer.permissions
        allowed = None
        if before is not None and before.user is peer.user:
            allowed = before.allowed
        if allowed is None or allowed.version != self.version:
            allowed = self.nothing_allowed()
        found = peer.permissions = ClientPermissions(self, peer, allowed)
        return found

    def nothing_allowed(self) -> PermissionCache:
        """Return an empty cache of allowed operations, for the current version of the ACLs.

        The cache stays empty if each decision must be logged.
        """
        return PermissionCache(self.version, is_keeping=not self.authorizer.logs_allowed)


class ClientPermissions:
    """Permissions of a client for one request. They are reused for the client's later requests
    until an operation is denied."""

    __slots__ = (
        "_decided",
        "_decided_version",
        "_in_force",
        "allowed",
        "host",
        "principal",
        "serves",
        "user",
        "was_denied",
    )

    def __init__(self, in_force: CurrentAuthorizer, peer: Peer, allowed: PermissionCache) -> None:
        self._in_force = in_force
        self.allowed = allowed
        """Cache of the operations allowed to the client, for the version of the ACLs that was last
        checked."""
        self.user = peer.user
        self.principal = peer.principal
        self.host = peer.peer_host
        self.serves: str | None = peer.user
        """User whose next request can be served with these permissions. None if the permissions
        contain decisions that apply to one request only."""
        self.was_denied = False
        """True if an operation on a resource that the request names was denied. The permissions are
        then not reused for another request."""
        self._decided: dict[tuple[Granted, str], bool] = {}
        self._decided_version = -1

    @property
    def version(self) -> int:
        """Version of the ACLs. It changes whenever the operations allowed to the client may have
        changed."""
        return self._in_force.version

    def make_client_key(self) -> ClientKey | None:
        """Return the key under which responses to this client are cached: version of the ACLs,
        principal and host. Returns None if no cached response may be used."""
        allowed = self.allowed
        if allowed.client_key is None and allowed.is_keeping:
            allowed.client_key = allowed.version, self.principal, self.host
        return allowed.client_key

    def allowed_before(self, granted: Granted) -> AbstractSet[str]:
        """Return the names of the resources on which the client is known to be allowed the
        operation `granted` (a pair of operation and resource type). For other resources the caller
        must call `allows`.

        The result is valid until the caller yields to other tasks.
        """
        allowed = self.allowed
        if allowed.version != self._in_force.version:
            allowed = self.allowed = self._in_force.nothing_allowed()
        return allowed.names[granted]

    def allows(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        is_logged: bool = True,
    ) -> bool:
        """Return whether the client may perform an ACL operation on a resource now."""
        granted = operation, resource_type
        allowed = self.allowed
        if name in allowed.names[granted] and allowed.version == self._in_force.version:
            return True
        return self._decide(granted, name, is_logged=is_logged)

    def _decide(self, granted: Granted, name: str, *, is_logged: bool) -> bool:
        in_force = self._in_force
        if self.allowed.version != in_force.version:
            self.allowed = in_force.nothing_allowed()
        if self._decided_version != in_force.version:
            self._decided_version = in_force.version
            self._decided.clear()
        question = granted, name
        decision = self._decided.get(question)
        if decision is None:
            decision = in_force.authorizer.is_allowed(
                self.principal, self.host, *granted, name, is_logged=is_logged
            )
            if not (decision and self.allowed.keep(granted, name)):
                self._decided[question] = decision
                self.serves = None
        if is_logged and not decision:
            self.was_denied = True
        return decision

    def may(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Return whether the client may perform an ACL operation on a resource now, as `allows`
        does, but without caching or logging the decision. Used for checks that are repeated after
        the request has ended."""
        return self._in_force.authorizer.is_allowed(
            self.principal, self.host, operation, resource_type, name, is_logged=False
        )

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """Return the ACL operations that the client may perform on a resource, as a bit field in
        the format of responses."""
        return authorized_operations(
            self._in_force.authorizer, self.principal, self.host, resource_type, name
        )

    def has(self, need: Need, name: str, *, is_logged: bool = True) -> bool:
        """Return whether the client is allowed an operation that an API declares as needed, on the
        resource `name`."""
        resource = need.resource
        if resource is ResourceType.CLUSTER:
            name = CLUSTER_NAME
        if not need.is_somewhere:
            return self.allows(need.operation, resource, name, is_logged=is_logged)
        return self._in_force.authorizer.is_allowed_somewhere(
            self.principal, self.host, need.operation, resource
        )
