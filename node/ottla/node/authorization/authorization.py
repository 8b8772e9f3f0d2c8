"""Authorizer of a broker, and the check of each client request before its handler. Pure.

Without an authorizer, the only cost of a request is the check of `is_active`. A broker's requests
to itself are not checked.
"""

from typing import Any

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY, MetadataImage
from ottla.metadata.standard_authorizer import StandardAuthorizer
from ottla.model.security.authorizer import Authorizer
from ottla.node.authorization.gates import Gate, NoteRefusal, TopicName
from ottla.node.authorization.permissions import ClientPermissions, CurrentAuthorizer
from ottla.node.authorization.produce_gate import ProduceGate
from ottla.node.network.dispatch import Handler, HandlerResult, Peer, RequestContext
from ottla.node.network.response_cache import ClientKey
from ottla.wire.apis import API, PRODUCE


class Authorization:
    """Authorization of client requests before their handlers, by ACLs. Implements the dispatcher's
    interface `Gates`."""

    def __init__(
        self, name_of: TopicName, note: NoteRefusal, by_acls: StandardAuthorizer | None = None
    ) -> None:
        """Create the authorization. `name_of` returns a topic's name by its id; `note` counts each
        refused element of a request.

        `by_acls` is the authorizer that decides from the first request on, or None if ACLs are not
        used. Before the first metadata image, this authorizer knows only the super users.
        """
        self.is_active = False
        """True if any request can be refused. Every request must then be authorized."""
        self._in_force = CurrentAuthorizer()
        self._by_acls = by_acls
        self._acls = EMPTY.acls
        if by_acls is not None:
            self.use(by_acls)
        gates = {
            key: (ProduceGate if key == PRODUCE else Gate)(row, name_of, note)
            for key, row in API.items()
        }
        self._gates = {key: None if gate.is_open else gate for key, gate in gates.items()}

    @property
    def name(self) -> str:
        """Name of this metadata publisher in fault reports."""
        return "authorization"

    @property
    def by_acls(self) -> StandardAuthorizer | None:
        """Authorizer over the ACLs in the metadata image; None if ACLs are not used."""
        return self._by_acls

    @property
    def version(self) -> int:
        """Number of the current set of ACLs. It increases whenever the allowed operations may have
        changed."""
        return self._in_force.version

    def use(self, authorizer: Authorizer) -> None:
        """Replace the authorizer of this broker. Requests that are waiting also use the new one."""
        self._in_force.use(authorizer)
        self.is_active = authorizer.is_active

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply the ACLs in a newer metadata image. They also apply to open connections."""
        if image.acls is not self._acls and self._by_acls is not None:
            self._acls = image.acls
            self._by_acls.take(image.acls)
            self._in_force.note_change()

    def client_key_of(self, peer: Peer) -> ClientKey | None:
        """Return the key under which responses to this client are cached: version of the ACLs,
        principal and host. Returns None if no cached response may be used."""
        permissions: ClientPermissions | None = peer.permissions
        if (
            permissions is None
            or permissions.serves is not peer.user
            or permissions.allowed.version != self._in_force.version
        ):
            permissions = self._in_force.permissions_of(peer)
        return permissions.allowed.client_key or permissions.make_client_key()

    def decide_again(self) -> None:
        """Drop the cached decisions of the authorizer, because ACLs or the logging of decisions
        have changed."""
        self._in_force.note_change()

    def serve(self, context: RequestContext, request: Any, handler: Handler) -> HandlerResult:
        """Check a request and pass it to its handler. Elements that the client may not access are
        first removed, and their errors are added to the response."""
        peer = context.peer
        permissions: ClientPermissions | None = peer.permissions
        if (
            permissions is None
            or permissions.serves is not peer.user
            or permissions.allowed.version != self._in_force.version
        ):
            permissions = self._in_force.permissions_of(peer)
        context.permissions = permissions
        gate = self._gates[context.header.api_key]
        if gate is None:
            return handler(context, request)
        return gate.serve(context, request, permissions, handler)
