"""Finds the handler of a request: (api key, version) → decoded body → handler → answer.

Pure.  A handler is called inline and returns one of three things:

* a response message: the answer leaves now;
* None: the handler has completed `context.slot`, or keeps it and completes it later (purgatory);
* a coroutine, or steps (see `steps.py`): it runs in the server's nursery and ends with either of
  the above; nothing more of the connection is taken up until the request is answered.

A request with many elements is decoded apart from the loop first (`Apart`), and served by the
API's handler in steps where it has one.

Take-up goes on past an unanswered request only when it is a Produce whose handler (or whose
coroutine) has returned None: its append is done, only the wait for the high watermark is open; an
OffsetCommit that is decided and waits to be committed in that order; or a PushTelemetry, whose
content is taken in elsewhere while the client's real work goes on.
The records of a request are views into the connection's buffer: they are valid until the handler
returns, and for a coroutine until it ends.
"""

from collections.abc import Callable, Coroutine, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Protocol, TypeAlias

from ottla.broker.network.guard import ConnectionGuard
from ottla.broker.network.loop_clock import LoopClock
from ottla.broker.network.ready_answers import ANYONE, Asker, Door, ReadyAnswers
from ottla.broker.network.request_times import RequestTimes, Times
from ottla.broker.network.request_traces import RequestTraces
from ottla.broker.network.response_queue import ResponseSlot
from ottla.broker.network.steps import Answer, Apart
from ottla.broker.network.turn_end import TurnEnd
from ottla.model.acls import ANONYMOUS_USER, AclOperation, ResourceType
from ottla.model.errors import ProtocolError
from ottla.model.limits import KIB, MIB
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.wire.apis import API, API_VERSIONS, request_class, response_class
from ottla.wire.codec import decode, decode_prefix, encode
from ottla.wire.codec_decoder import COST_FREE_BYTES, COST_PER_BYTE
from ottla.wire.codec_types import Message
from ottla.wire.headers import RequestHeader, trace_context_of

INLINE_ELEMENTS_BYTES_MAX = 128 * KIB
"""What the elements of a request's arrays may take for it to be decoded on the loop: some hundred
partitions.  Higher holds the loop for longer, lower sends honest requests to a thread."""

APART_FROM_BYTES = INLINE_ELEMENTS_BYTES_MAX // 64
"""Size of a frame whose elements may take more than that: their memory is at most some fifty times
their bytes.  A smaller one that cannot be decoded is malformed."""

ELEMENTS_BYTES_MAX = 64 * MIB
"""What they may take at all.  No honest request comes near; a frame of 100 MiB could take a GiB."""

HandlerResult: TypeAlias = (
    "Message | Coroutine[Any, Any, Message | None] | Answer | Apart[Any] | None"
)
"""What the handler has for its caller: see the top of the file."""

Handler: TypeAlias = Callable[["RequestContext", Any], HandlerResult]
"""Serves one API: `handler(context, request) -> response | None | coroutine`."""

FrameHandler: TypeAlias = Callable[["RequestContext", memoryview], bool]
"""Serves the usual requests of an API from their frames; returns False where nothing was done."""


class MalformedRequestError(ProtocolError):
    """A request that was decoded apart is none; its connection is closed."""


def decoded_apart(
    context: "RequestContext", frame: memoryview, kind: type[Message], handler: Handler
) -> Apart[Message]:
    """Return a request that is too large to be decoded on the loop, and what serves it then.

    The work raises MalformedRequestError, also where the elements are too many.
    """
    header = context.header

    def decode() -> Message:
        bound = min(COST_FREE_BYTES + len(frame) * COST_PER_BYTE, ELEMENTS_BYTES_MAX)
        try:
            return decode_prefix(kind, header.api_version, frame, header.body_at, bound)[0]
        except ProtocolError as error:
            raise MalformedRequestError(error.where) from error

    return Apart(decode, lambda request: handler(context, request))


UNKNOWN_SOFTWARE = "unknown"
"""What a client is called that has not said what it is, as Kafka calls it."""


@lru_cache(maxsize=1_024)
def principal_of(user: str) -> str:
    """Return a user as Kafka writes a principal."""
    return f"User:{user}"


@dataclass(slots=True, kw_only=True, eq=False)
class Peer:
    """Who is at the other end of a connection, and by which of our doors it came in."""

    connection_id: int
    listener_name: str
    peer_host: str
    peer_port: int
    local_host: str
    local_port: int
    user: str = ANONYMOUS_USER
    """Who the client is, as far as it has been authenticated."""
    is_token_authenticated: bool = False
    """Whether that was by a delegation token."""
    credential: tuple[str, str] | None = None
    """By which entry of the metadata the client logged in; see `authentication/revocations`."""
    hang_up: Callable[[str], None] | None = None
    """Closes the connection, for a reason that the log is told."""
    software_name: str = UNKNOWN_SOFTWARE
    """What the client is and of which version, as it said in ApiVersions."""
    software_version: str = UNKNOWN_SOFTWARE
    was_offered_telemetry: bool = False
    """Whether ApiVersions listed client telemetry on this connection."""
    permissions: Any = None
    """What `broker/authorization` knows of the client, where an authorizer decides."""

    @property
    def principal(self) -> str:
        """The user as Kafka writes a principal."""
        return principal_of(self.user)

    @property
    def door(self) -> Door:
        """The listener that the client came in by, and where."""
        return self.listener_name, self.local_host, self.local_port

    @property
    def label(self) -> str:
        """How the log calls the connection."""
        return f"{self.connection_id} of {self.peer_host}:{self.peer_port}"


class Permissions(Protocol):
    """What the client of one request may do; see `broker/authorization`."""

    def allows(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        is_logged: bool = True,
    ) -> bool:
        """Return whether an operation on a resource is allowed now.

        `is_logged` is False where the client did not ask for the resource by name.
        """
        ...

    def may(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Return as `allows`, and neither keep nor log it: for what outlives the request."""
        ...

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """Return the allowed operations, as answers have them: one bit each."""
        ...

    principal: str
    """The client, as Kafka writes it."""

    was_denied: bool
    """Whether something that the request names was denied, which is logged for each request."""

    @property
    def version(self) -> int:
        """A number that changes whenever something else may be allowed."""
        ...

    def allowed_before(self, granted: tuple[AclOperation, ResourceType]) -> AbstractSet[str]:
        """Return resources on which an operation was allowed: what is not there is to be asked.

        Holds until the caller next lets others run.
        """
        ...


class RequestContext:
    """What a handler knows of a request besides its body.

    `arrived_ms` is on the monotonic clock.  `slot` takes the answer when the handler does not
    return it.  `permissions` is None where everything is allowed: without an authorizer, and for a
    broker's own requests.
    """

    __slots__ = ("arrived_ms", "header", "peer", "permissions", "slot")

    def __init__(
        self, header: RequestHeader, peer: Peer, slot: ResponseSlot, arrived_ms: int
    ) -> None:
        self.header = header
        self.peer = peer
        self.slot = slot
        self.arrived_ms = arrived_ms
        self.permissions: Permissions | None = None

    @property
    def api_version(self) -> int:
        """The version of the request, in which the answer is encoded too."""
        return self.header.api_version

    @property
    def has_refused_parts(self) -> bool:
        """Whether parts that are not allowed were taken out of the request."""
        return self.slot.amend is not None

    @property
    def client_id(self) -> str | None:
        """The client's name for itself."""
        return self.header.client_id

    def close_connection(self) -> None:
        """Close once the answers before this one have left: how acks=0 is told of an error."""
        self.slot.complete_and_close()


class Route:
    """One API this broker serves: the versions it reads, and who answers."""

    __slots__ = (
        "frame_handler", "handler", "highest", "large_handler", "lowest", "ready", "request_type",
        "times",
    )  # fmt: skip

    def __init__(
        self,
        handler: Handler,
        lowest: int,
        highest: int,
        large_handler: Handler,
        ready: ReadyAnswers | None,
        frame_handler: FrameHandler | None,
    ) -> None:
        self.handler = handler
        self.lowest = lowest
        self.highest = highest
        self.large_handler = large_handler
        """Serves requests with many elements, in steps."""
        self.ready = ready
        """Answers kept for requests that are asked again, where there are any.  Kept are those in
        which nothing that was asked for is denied, and that are no refusal as a whole."""
        self.frame_handler = frame_handler
        """Is asked first where a request is not guarded or traced; it settles its charge."""
        self.request_type: type[Message] | None = None
        """The class of its requests, imported when the first one comes: start-up stays light."""
        self.times: dict[int, Times] = {}
        """Where the times of each version are counted, as far as it was asked for."""


class Quotas(Protocol):
    """What clients may use, and what becomes of those that use more; see `broker/quotas`."""

    is_active: bool
    """Whether anyone is limited in anything."""

    def charge(self, context: RequestContext, frame_bytes: int) -> None:
        """Begin to charge a request that has arrived."""
        ...


class Gates(Protocol):
    """What is asked of the authorizer before a handler is; see `broker/authorization`."""

    is_active: bool
    """Whether anything can be refused."""

    def serve(self, context: RequestContext, request: Any, handler: Handler) -> HandlerResult:
        """Refuse what the client may not do, and have the rest served by the handler."""
        ...

    def asker_of(self, peer: Peer) -> Asker | None:
        """Return the version, principal and host of kept answers that serve; None: none does."""
        ...

    def decide_again(self) -> None:
        """Keep nothing that was decided: it is decided, or logged, otherwise from now on."""
        ...


class NotServedYetError(ProtocolError):
    """A client came before this broker was ready; its connection is closed and it comes again."""


class Dispatcher:
    """The table of handlers.

    Handlers may be registered late (the listener opens before recovery): an API without one is
    unknown, or still `coming`, and its connection is closed.  `on_unsupported_api_versions` takes
    an ApiVersions request of a version we do not know: the one request that may be of such.
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler] | None = None,
        *,
        errors: UnexpectedErrors | None = None,
    ) -> None:
        self.errors = errors or UnexpectedErrors()
        """What nobody foresaw, of the whole process."""
        self.on_file_error: Callable[[str, OSError], None] = lambda path, error: None
        """Told of each file that could not be read for an answer."""
        self._routes: dict[int, Route] = {}
        self.on_unsupported_api_versions: Handler | None = None
        self.coming: frozenset[int] = frozenset()
        """The APIs that will be registered when this broker is ready."""
        self.on_closed: list[Callable[[Peer], None]] = []
        """Who hears of each connection that has closed."""
        self.guards: Mapping[str, Callable[[Peer], ConnectionGuard]] = {}
        """What asks the clients of a listener who they are, by its name; see `guard.py`."""
        self.clock = LoopClock()
        self.turn_end = TurnEnd()
        """What handlers have done once for all requests of a turn."""
        self.times = RequestTimes()
        """How long requests take."""
        self.quotas: Quotas | None = None
        """What clients may use, where that is bounded."""
        self.gates: Gates | None = None
        """What clients may do, where that is bounded."""
        self.traces: RequestTraces | None = None
        """Which of them are traced, if any."""
        for api_key, handler in (handlers or {}).items():
            self.register(api_key, handler)

    def register(
        self,
        api_key: int,
        handler: Handler,
        *,
        large_handler: Handler | None = None,
        ready: ReadyAnswers | None = None,
        frame_handler: FrameHandler | None = None,
    ) -> None:
        """Serve an API, in every version of its table row, with `handler`.

        `large_handler` serves requests with many elements where `handler` does not do so in steps.
        An answer that `handler` gives at once is kept in `ready`, and given again while it holds.
        `frame_handler` serves what it can without a decoded request.
        """
        api = API[api_key]
        self._routes[api_key] = Route(
            handler, api.lowest, api.latest_stable, large_handler or handler, ready, frame_handler
        )

    def wrap(self, api_key: int, around: Callable[[Handler], Handler]) -> None:
        """Put something before the handlers of an API that is served."""
        route = self._routes[api_key]
        self.register(api_key, around(route.handler), large_handler=around(route.large_handler))

    @property
    def api_keys(self) -> frozenset[int]:
        """The APIs served now."""
        return frozenset(self._routes)

    def decide_again(self) -> None:
        """Have what clients may do decided again: it is decided, or logged, otherwise now."""
        if self.gates is not None:
            self.gates.decide_again()

    def closed(self, peer: Peer) -> None:
        """Tell who wants to hear of it that a connection has closed, once."""
        for tell in self.on_closed:
            try:
                tell(peer)
            except Exception as fault:
                self.errors.note("connection", peer.label, fault)

    def dispatch(self, context: RequestContext, frame: memoryview) -> HandlerResult:
        """Decode the request of `frame` and call its handler.

        Raises ProtocolError for an unknown API, a version out of range, or a malformed body.
        """
        header = context.header
        api_key = header.api_key
        route = self._routes.get(api_key)
        if route is None:
            if api_key in self.coming:
                raise NotServedYetError(f"{API[api_key].name} is not served yet")
            raise ProtocolError(f"{API[api_key].name} is not served")
        version = header.api_version
        if not route.lowest <= version <= route.highest:
            if api_key == API_VERSIONS and self.on_unsupported_api_versions is not None:
                return self.on_unsupported_api_versions(context, None)
            raise ProtocolError(f"version {version} of api key {api_key}")
        slot = context.slot
        times = route.times.get(version)
        if times is None:
            times = route.times[version] = self.times.of(api_key, version)
        slot.times = times
        times.queued.observe(slot.started_ns - self.clock.turn_ns)
        if self.traces is not None:
            slot.trace = self.traces.begin(
                header,
                context.peer,
                context=trace_context_of(frame, header.body_at),
                received_ns=self.clock.turn_ns,
                taken_ns=slot.started_ns,
            )
        if self.quotas is not None and self.quotas.is_active:
            self.quotas.charge(context, len(frame))
        if route.ready is not None:
            return self._serve_ready(route.ready, route, context, frame)
        if (
            route.frame_handler is not None
            and slot.trace is None
            and (self.gates is None or not self.gates.is_active)
            and route.frame_handler(context, frame)
        ):
            return None
        return self._serve_frame(route, context, frame)

    def _serve_ready(
        self, ready: ReadyAnswers, route: Route, context: RequestContext, frame: memoryview
    ) -> HandlerResult:
        """Give an answer that is kept, or the handler's, and keep that.

        Whatever is denied by name is decided, and logged, for each request.
        """
        asker: Asker | None = ANYONE
        if self.gates is not None and self.gates.is_active:
            asker = self.gates.asker_of(context.peer)
        key = None
        if asker is not None:
            key = ready.key(context.header, context.peer.door, frame, asker)
        body = None if key is None else ready.find(key)
        if body is not None:
            _complete_ready(context, body)
            return None
        state = ready.state
        result = self._serve_frame(route, context, frame)
        if key is None or not isinstance(result, Message):
            return result
        permissions = context.permissions
        error_code: int = getattr(result, "error_code", 0)
        if error_code or context.has_refused_parts:
            return result
        if permissions is not None and permissions.was_denied:
            return result
        ready.keep(key, state, body := encode(result, context.api_version))
        _complete_ready(context, body)
        return None

    def _serve_frame(
        self, route: Route, context: RequestContext, frame: memoryview
    ) -> HandlerResult:
        """Decode a request and have it served."""
        header = context.header
        request_type = route.request_type
        if request_type is None:
            request_type = route.request_type = request_class(header.api_key)
        # Bytes after the body are passed over, as Kafka does: librdkafka's request for the metadata
        # of all topics has three of them.
        try:
            request, _ = decode_prefix(
                request_type, header.api_version, frame, header.body_at, INLINE_ELEMENTS_BYTES_MAX
            )
        except ProtocolError:
            if len(frame) < APART_FROM_BYTES:
                raise
            serve_large = partial(self._serve, route.large_handler)
            return decoded_apart(context, frame, request_type, serve_large)
        if self.gates is not None and self.gates.is_active:
            return self.gates.serve(context, request, route.handler)
        return route.handler(context, request)

    def serve_own(self, context: RequestContext, request: Message) -> HandlerResult:
        """Call the handler of a request that this broker made itself, which may do everything.

        Raises NotServedYetError if there is none yet.
        """
        route = self._routes.get(context.header.api_key)
        if route is None:
            raise NotServedYetError(f"{API[context.header.api_key].name} is not served yet")
        return route.handler(context, request)

    def _serve(self, handler: Handler, context: RequestContext, request: Any) -> HandlerResult:
        if self.gates is not None and self.gates.is_active:
            return self.gates.serve(context, request, handler)
        return handler(context, request)


def _complete_ready(context: RequestContext, body: bytes) -> None:
    """Answer with a body that is kept; a throttled client is told so in a copy of it."""
    slot, header = context.slot, context.header
    throttle_ms = slot.settle_charge()
    if throttle_ms:
        response: Any = decode(response_class(header.api_key), header.api_version, body)
        if hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = throttle_ms
            body = encode(response, header.api_version)
    slot.complete_body(body)
