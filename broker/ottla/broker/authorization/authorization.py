"""The authorizer of a broker, and the way of each client's request past it.  Pure.

`is_active` is all that a request looks at where no authorizer is set.  A broker's requests to
itself do not come by here.
"""

from typing import Any

from ottla.broker.authorization.gates import Gate, NoteRefusal, TopicName
from ottla.broker.authorization.permissions import AuthorizerInForce, ClientPermissions
from ottla.broker.authorization.produce_gate import ProduceGate
from ottla.broker.network.dispatch import Handler, HandlerResult, Peer, RequestContext
from ottla.broker.network.ready_answers import Asker
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY, MetadataImage
from ottla.metadata.standard_authorizer import StandardAuthorizer
from ottla.model.authorizer import Authorizer
from ottla.wire.api_permissions import PERMISSIONS
from ottla.wire.apis import PRODUCE


class Authorization:
    """Stands in front of every handler; serves as the dispatcher's `Gates`."""

    def __init__(
        self, name_of: TopicName, note: NoteRefusal, by_acls: StandardAuthorizer | None = None
    ) -> None:
        """`name_of` returns a topic's name by its id; `note` counts refused parts of requests.

        `by_acls` decides from the first request on; before there is an image it knows only who is a
        super user.
        """
        self.is_active = False
        """Whether anything can be refused."""
        self._in_force = AuthorizerInForce()
        self._by_acls = by_acls
        self._acls = EMPTY.acls
        if by_acls is not None:
            self.use(by_acls)
        gates = {
            key: (ProduceGate if key == PRODUCE else Gate)(row, name_of, note)
            for key, row in PERMISSIONS.items()
        }
        self._gates = {key: None if gate.is_open else gate for key, gate in gates.items()}

    @property
    def name(self) -> str:
        """The name of this publisher in reports of faults."""
        return "authorization"

    @property
    def by_acls(self) -> StandardAuthorizer | None:
        """What decides by the entries of the image, where they are on."""
        return self._by_acls

    @property
    def version(self) -> int:
        """A number that rises whenever something else may be allowed."""
        return self._in_force.version

    def use(self, authorizer: Authorizer) -> None:
        """Have an authorizer decide from now on, also of requests that wait."""
        self._in_force.use(authorizer)
        self.is_active = authorizer.is_active

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Decide by the entries of a newer image, also for connections that are open."""
        if image.acls is not self._acls and self._by_acls is not None:
            self._acls = image.acls
            self._by_acls.take(image.acls)
            self._in_force.note_change()

    def asker_of(self, peer: Peer) -> Asker | None:
        """Return the version, principal and host of kept answers that serve; None: none does."""
        permissions: ClientPermissions | None = peer.permissions
        if (
            permissions is None
            or permissions.serves is not peer.user
            or permissions.allowed.version != self._in_force.version
        ):
            permissions = self._in_force.permissions_of(peer)
        return permissions.allowed.asker or permissions.make_asker()

    def decide_again(self) -> None:
        """Keep nothing that was decided: it is decided, or logged, otherwise from now on."""
        self._in_force.note_change()

    def serve(self, context: RequestContext, request: Any, handler: Handler) -> HandlerResult:
        """Refuse what the client may not do, and have the rest served by the handler."""
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
