"""What the client of a request may do.  Pure.

What is allowed is kept for the connection, so that its next request need not have it decided
again; what is refused is decided, and logged, once for each request, however often its parts name
it.  Both rest on one state of the entries: with the next one everything is decided again, on open
connections and for requests that wait.
"""

from collections import defaultdict
from collections.abc import Set as AbstractSet
from typing import TypeAlias

from ottla.broker.network.dispatch import Peer
from ottla.broker.network.ready_answers import Asker
from ottla.model.acls import CLUSTER_NAME, AclOperation, ResourceType
from ottla.model.authorizer import AllowAll, Authorizer, authorized_operations
from ottla.wire.api_permissions import Need

KEPT_MAX = 128
"""Names kept for one connection, at some 200 bytes each.  With fewer, clients of more topics ask
the authorizer more often, for a microsecond each; more cost memory on every connection."""

NAME_CHARS_KEPT_MAX = 256
"""Length of the longest name that is kept: a topic's has 249 at most, a group's may have 32 KiB."""

Granted: TypeAlias = "tuple[AclOperation, ResourceType]"
"""An operation on resources of a type."""

WRITE_TOPIC: Granted = (AclOperation.WRITE, ResourceType.TOPIC)


class AllowedBefore:
    """What the client of a connection was allowed by one state of the entries."""

    __slots__ = ("_count", "asker", "is_keeping", "names", "version", "writable_topics")

    def __init__(self, version: int, *, is_keeping: bool) -> None:
        self.version = version
        """The state of the entries."""
        self.names: defaultdict[Granted, set[str]] = defaultdict(set)
        """The resources, by what was allowed on them."""
        self.writable_topics = self.names[WRITE_TOPIC]
        """What each Produce looks at."""
        self.is_keeping = is_keeping
        """Whether anything that was decided may be used again."""
        self.asker: Asker | None = None
        """Whom answers of this state are for, once it has been asked."""
        self._count = 0

    def keep(self, granted: Granted, name: str) -> bool:
        """Keep what is allowed; return False for what is not to be kept."""
        if not self.is_keeping or len(name) > NAME_CHARS_KEPT_MAX:
            return False
        if self._count >= KEPT_MAX:
            self._count = 0
            for names in self.names.values():
                names.clear()
        self._count += 1
        self.names[granted].add(name)
        return True


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

    def permissions_of(self, peer: Peer) -> "ClientPermissions":
        """Return what serves the next request of a connection, by the entries of now."""
        before: ClientPermissions | None = peer.permissions
        allowed = None
        if before is not None and before.user is peer.user:
            allowed = before.allowed
        if allowed is None or allowed.version != self.version:
            allowed = self.nothing_allowed()
        found = peer.permissions = ClientPermissions(self, peer, allowed)
        return found

    def nothing_allowed(self) -> AllowedBefore:
        """Return what is known before anything is decided by the entries of now.

        Where each decision is logged, none is kept.
        """
        return AllowedBefore(self.version, is_keeping=not self.authorizer.logs_allowed)


class ClientPermissions:
    """Serves as the `Permissions` of a request, and of the next ones while nothing is refused."""

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

    def __init__(self, in_force: AuthorizerInForce, peer: Peer, allowed: AllowedBefore) -> None:
        self._in_force = in_force
        self.allowed = allowed
        """What was allowed before, by the entries that were asked last."""
        self.user = peer.user
        self.principal = peer.principal
        self.host = peer.peer_host
        self.serves: str | None = peer.user
        """The user whose next request it serves too; None where it knows decisions that the next
        request must not have from it."""
        self.was_denied = False
        """Whether something was denied that the request names; it serves no other one then."""
        self._decided: dict[tuple[Granted, str], bool] = {}
        self._decided_version = -1

    @property
    def version(self) -> int:
        """A number that changes whenever something else may be allowed."""
        return self._in_force.version

    def make_asker(self) -> Asker | None:
        """Return the version, principal and host of kept answers that serve; None: none does."""
        allowed = self.allowed
        if allowed.asker is None and allowed.is_keeping:
            allowed.asker = allowed.version, self.principal, self.host
        return allowed.asker

    def allowed_before(self, granted: Granted) -> AbstractSet[str]:
        """Return resources on which an operation was allowed: what is not there is to be asked.

        Holds until the caller next lets others run.
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
        """Return whether an operation on a resource is allowed now."""
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
