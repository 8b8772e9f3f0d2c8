"""Dispatches requests: (api key, version) → decoded body → handler → response.

Pure. A handler is called inline and returns one of three results:

* a response message, which is sent now;
* None: the handler has completed `context`, or stores it and completes it later (purgatory);
* a coroutine, or steps (see `steps.py`), which runs in the server's nursery and ends with one of
  the first two results. No further request of the connection is started until this one is answered.

A request with many elements is first decoded off the event loop (`ThreadWork`). If the API has a
`large_handler`, this handler then serves the request in steps.

The next request is started before the response in three cases only. A Produce whose handler (or
coroutine) has returned None has been appended, and waits only for the high watermark. A decided
OffsetCommit waits to be committed in the order of decisions. A PushTelemetry is processed in
another thread while the client's other requests continue.

The records of a request are views into the connection's buffer. They are valid until the handler
returns, and for a coroutine until it ends.
"""

from collections.abc import Callable, Coroutine, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Protocol, TypeAlias

from ottla.model.compiled import mypyc_attr
from ottla.model.errors import ProtocolError
from ottla.model.limits import KIB, MIB
from ottla.model.security.acls import ANONYMOUS_USER, AclOperation, ResourceType
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.network.guard import ConnectionGuard
from ottla.node.network.loop_clock import LoopClock
from ottla.node.network.request_times import RequestTimes, Times
from ottla.node.network.request_traces import RequestTraces
from ottla.node.network.response_cache import ANYONE, ClientKey, ListenerKey, ResponseCache
from ottla.node.network.response_queue import ResponseSlot, SlotOwner
from ottla.node.network.steps import Answer, ThreadWork
from ottla.node.network.turn_end import TurnEnd
from ottla.wire.apis import API, API_VERSIONS, request_class, response_class
from ottla.wire.codec import decode, decode_prefix, encode
from ottla.wire.codec_types import Message
from ottla.wire.codec_writers.codec_decoder import COST_FREE_BYTES, COST_PER_BYTE
from ottla.wire.headers import RequestHeader, trace_context_of

INLINE_ELEMENTS_BYTES_MAX = 128 * KIB
"""Maximum memory, in bytes, of the array elements of a request that is decoded on the event loop:
some hundred partitions. With a larger value, the event loop is blocked longer. With a smaller one,
ordinary requests are decoded in a thread.
"""

APART_FROM_BYTES = INLINE_ELEMENTS_BYTES_MAX // 64
"""Size in bytes above which a frame is decoded in a thread, because its array elements may take
more memory than INLINE_ELEMENTS_BYTES_MAX. Elements take at most some fifty times their encoded
size, so a smaller frame stays below this limit or is malformed."""

ELEMENTS_BYTES_MAX = 64 * MIB
"""Maximum memory, in bytes, of the decoded array elements of a request. Ordinary requests need far
less; a frame of 100 MiB could take a GiB."""

HandlerResult: TypeAlias = (
    "Message | Coroutine[Any, Any, Message | None] | Answer | ThreadWork[Any] | None"
)
"""Result of a request handler: a response, None, or pending work, as described in the module
docstring."""

Handler: TypeAlias = Callable[["RequestContext", Any], HandlerResult]
"""Function that handles the requests of one API: `handler(context, request) -> response | None |
coroutine`."""

FlatReader: TypeAlias = Callable[[memoryview, int, int], Any]
"""Function that reads a common request straight from its bytes: `reader(frame, body_at, version)`.
Returns None if the generated codec must read it."""


class MalformedRequestError(ProtocolError):
    """Raised for a malformed request that was decoded off the event loop. The client's connection
    is then closed."""


def decoded_in_thread(
    context: "RequestContext", frame: memoryview, kind: type[Message], handler: Handler
) -> ThreadWork[Message]:
    """Return work that decodes a large request in a thread, and then calls the request's handler on
    the event loop.

    The work raises MalformedRequestError if the request is malformed or has too many elements.
    """
    header = context.header

    def decode() -> Message:
        bound = min(COST_FREE_BYTES + len(frame) * COST_PER_BYTE, ELEMENTS_BYTES_MAX)
        try:
            return decode_prefix(kind, header.api_version, frame, header.body_at, bound)[0]
        except ProtocolError as error:
            raise MalformedRequestError(error.where) from error

    return ThreadWork(decode, lambda request: handler(context, request))


UNKNOWN_SOFTWARE = "unknown"
"""Kafka's name for the software of a client that did not report its name."""


@lru_cache(maxsize=1_024)
def principal_of(user: str) -> str:
    """Return the principal of a user in Kafka's notation, such as `User:alice`."""
    return f"User:{user}"


@dataclass(slots=True, kw_only=True, eq=False)
class Peer:
    """Remote peer (client) of a connection, and the listener that accepted the connection."""

    connection_id: int
    listener_name: str
    peer_host: str
    peer_port: int
    local_host: str
    local_port: int
    user: str = ANONYMOUS_USER
    """Authenticated user of the client; ANONYMOUS_USER if the client has not authenticated."""
    is_token_authenticated: bool = False
    """True if the client authenticated with a delegation token."""
    credential: tuple[str, str] | None = None
    """Name of the metadata credential with which the client logged in; None if the client used no
    such credential. The client is disconnected if the credential is revoked; see
    `authentication/revocations`."""
    disconnect: Callable[[str], None] | None = None
    """Function that closes the client's connection and logs the reason passed to it. None once the
    connection has closed."""
    software_name: str = UNKNOWN_SOFTWARE
    """Name of the client's software, from the client's ApiVersions request."""
    software_version: str = UNKNOWN_SOFTWARE
    was_offered_telemetry: bool = False
    """True if the ApiVersions response on this connection listed client telemetry."""
    permissions: Any = None
    """Cached permissions of the client (`node/authorization`); None without an authorizer."""

    @property
    def principal(self) -> str:
        """Principal of the client's user in Kafka's notation."""
        return principal_of(self.user)

    @property
    def listener_key(self) -> ListenerKey:
        """Listener that accepted the client, together with the local address of the connection."""
        return self.listener_name, self.local_host, self.local_port

    @property
    def label(self) -> str:
        """Name of the client's connection in log messages."""
        return f"{self.connection_id} of {self.peer_host}:{self.peer_port}"


class Permissions(Protocol):
    """Interface of the permissions of the client that sent a request; see `node/authorization`."""

    def allows(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        is_logged: bool = True,
    ) -> bool:
        """Return whether the client may perform an operation on a resource now, and log the
        authorizer's decision.

        `is_logged` is False if the client did not name the resource.
        """
        ...

    def may(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Return whether the client may perform an operation on a resource now, as `allows` does,
        but without caching or logging the decision. Used for checks that are repeated after the
        request has ended."""
        ...

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """Return the ACL operations that the client may perform on a resource, as a bit field in
        the format of responses."""
        ...

    principal: str
    """Principal of the client in Kafka's notation."""

    was_denied: bool
    """True if the client was denied an operation on a resource that its request names. Denials are
    logged for each request."""

    @property
    def version(self) -> int:
        """Version of the ACLs. It changes whenever the operations allowed to this client may have
        changed."""
        ...

    def allowed_before(self, granted: tuple[AclOperation, ResourceType]) -> AbstractSet[str]:
        """Return the names of the resources on which the client is known to be allowed the
        operation `granted` (a pair of operation and resource type). For other resources the caller
        must call `allows`.

        The result is valid until the caller yields to other tasks.
        """
        ...


@mypyc_attr(allow_interpreted_subclasses=True)
class RequestContext(ResponseSlot):
    """Context of a request for its handler: all properties of the request except its body, and the
    slot for its response, which the handler completes if it does not return the response.

    `arrived_ms` is the monotonic arrival time in milliseconds. `permissions` is None if everything
    is allowed: without an authorizer, and for a broker's own requests.
    """

    __slots__ = ("arrived_ms", "peer", "permissions")

    def __init__(
        self,
        owner: SlotOwner,
        header: RequestHeader,
        correlation_id: int,
        started_ns: int,
        peer: Peer,
        arrived_ms: int,
    ) -> None:
        ResponseSlot.__init__(self, owner, header, correlation_id, started_ns)
        self.peer = peer
        self.arrived_ms = arrived_ms
        self.permissions: Permissions | None = None

    @property
    def api_version(self) -> int:
        """Version of the API in which the request is encoded. The response must be encoded in the
        same version."""
        return self.header.api_version

    @property
    def has_refused_parts(self) -> bool:
        """True if authorization removed elements from the request, because the client may not
        access them."""
        return self.amend is not None

    @property
    def client_id(self) -> str | None:
        """Client id in the header of the request; None if the header has no client id."""
        return self.header.client_id

    def close_connection(self) -> None:
        """Close the client's connection after the responses to earlier requests. With acks=0, the
        close is the only sign of an error."""
        self.complete_and_close()


class Route:
    """Entry of the dispatcher for one API that this broker serves: its versions and handlers."""

    __slots__ = (
        "cache", "handler", "highest", "large_handler", "lowest", "read_flat",
        "request_type",
    )  # fmt: skip

    def __init__(
        self,
        handler: Handler,
        lowest: int,
        highest: int,
        large_handler: Handler,
        cache: ResponseCache | None,
        read_flat: FlatReader | None,
    ) -> None:
        self.handler = handler
        self.lowest = lowest
        self.highest = highest
        self.large_handler = large_handler
        """Handler of the API's requests with many elements, which serves them in steps. None if the
        API has no such handler."""
        self.cache = cache
        """Cache of the API's encoded responses, for requests repeated with the same bytes. None if
        responses are not cached. A response is cached only if it denies no requested resource and
        is no error as a whole."""
        self.read_flat = read_flat
        """Faster decoder of the API's common requests, tried before the generated codec if the
        request is not traced. None if the API has no such decoder."""
        self.request_type: type[Message] | None = None
        """Class of the API's requests; None until the first request. The class is imported at the
        first request, so that the broker starts faster."""


class Quotas(Protocol):
    """Interface of client quotas and the throttling of clients; see `node/quotas`."""

    is_active: bool
    """True if a quota is set for any client."""

    def charge(self, context: RequestContext, frame_bytes: int) -> None:
        """Start charging a received request to its client's quotas. The charge is stored in
        `context`."""
        ...


class Gates(Protocol):
    """Interface of the authorization of requests before their handlers; see
    `node/authorization`."""

    is_active: bool
    """True if any request can be refused. Every request must then be authorized."""

    def serve(self, context: RequestContext, request: Any, handler: Handler) -> HandlerResult:
        """Check a request and pass it to its handler. Elements that the client may not access are
        first removed, and their errors are added to the response."""
        ...

    def client_key_of(self, peer: Peer) -> ClientKey | None:
        """Return the key under which responses to this client are cached: version of the ACLs,
        principal and host. Returns None if no cached response may be used."""
        ...

    def decide_again(self) -> None:
        """Drop the authorizer's cached decisions, because ACLs or the logging of decisions have
        changed."""
        ...


class NotServedYetError(ProtocolError):
    """Raised if a client sends a request before this broker is ready. The client's connection is
    closed, and the client reconnects."""


class Dispatcher:
    """Table of request handlers by API key.

    Handlers may be registered late, because the listener opens before logs are recovered. A request
    for an API without a handler closes its connection, both for an unknown API and for one that is
    listed in `coming`. `on_unsupported_api_versions` serves an ApiVersions request of an unknown
    version. For every other API, an unknown version is an error.
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler] | None = None,
        *,
        errors: UnexpectedErrors | None = None,
    ) -> None:
        self.errors = errors or UnexpectedErrors()
        """Counter of the unexpected errors in this process."""
        self.on_file_error: Callable[[str, OSError], None] = lambda path, error: None
        """Function that is called with the path and the error of each file that could not be read
        for a response."""
        self._routes: dict[int, Route] = {}
        self._versions: dict[int, tuple[Route, Times]] = {}
        """Routes of the versions that were requested, with the counters of their durations, by
        `RequestHeader.kind`. One look-up for each request."""
        self.on_unsupported_api_versions: Handler | None = None
        self.state_of_answers: Callable[[], object] | None = None
        """Function that returns the immutable object from which cached responses are derived; None
        disables caching. A response is reused only while the function returns the same object."""
        self.coming: frozenset[int] = frozenset()
        """Keys of the APIs whose handlers will be registered when this broker is ready."""
        self.on_closed: list[Callable[[Peer], None]] = []
        """Functions that are called with the peer (client) of each connection that has closed."""
        self.guards: Mapping[str, Callable[[Peer], ConnectionGuard]] = {}
        """Factories of guards by listener name. A guard receives a connection's frames until the
        client has logged in; see `guard.py`."""
        self.clock = LoopClock()
        self.turn_end = TurnEnd()
        """Work that handlers schedule for the end of an event-loop iteration. It is done once for
        all requests of the iteration."""
        self.times = RequestTimes()
        """Counters of request durations, by API and version."""
        self.quotas: Quotas | None = None
        """Client quotas; None if requests are charged to no quota."""
        self.gates: Gates | None = None
        """Authorization of client requests; None if nothing is authorized."""
        self.traces: RequestTraces | None = None
        """Traces of sampled requests; None if tracing is off."""
        for api_key, handler in (handlers or {}).items():
            self.register(api_key, handler)

    def register(
        self,
        api_key: int,
        handler: Handler,
        *,
        large_handler: Handler | None = None,
        read_flat: FlatReader | None = None,
    ) -> None:
        """Register the handler of an API, for every version that `wire/apis` declares.

        `large_handler` serves requests with many elements if `handler` does not do so in steps.
        Responses that `handler` returns at once are cached if the API's declaration allows it.
        `read_flat` decodes common requests faster, straight from their bytes, for the same handler.
        """
        api, state, cache = API[api_key], self.state_of_answers, None
        if api.is_answer_kept and state is not None:
            cache = ResponseCache(state)
        self._routes[api_key] = Route(
            handler, api.lowest, api.latest_stable, large_handler or handler, cache,
            read_flat,
        )  # fmt: skip
        self._versions.clear()

    def wrap(self, api_key: int, around: Callable[[Handler], Handler]) -> None:
        """Replace the handler of each registered API by the result of `around(handler)`."""
        route = self._routes[api_key]
        self.register(api_key, around(route.handler), large_handler=around(route.large_handler))

    @property
    def api_keys(self) -> frozenset[int]:
        """Keys of the APIs for which a handler is registered now."""
        return frozenset(self._routes)

    def decide_again(self) -> None:
        """Drop the authorizer's cached decisions, because ACLs or the logging of decisions have
        changed."""
        if self.gates is not None:
            self.gates.decide_again()

    def closed(self, peer: Peer) -> None:
        """Call the functions in `on_closed` with the peer of a connection that has closed."""
        for notify in self.on_closed:
            try:
                notify(peer)
            except Exception as fault:
                self.errors.note("connection", peer.label, fault)

    def dispatch(self, context: RequestContext, frame: memoryview) -> HandlerResult:
        """Decode the request in `frame`, call its handler and return the handler's result.

        Raises ProtocolError for an unknown API, a version out of range, or a malformed body.
        """
        header = context.header
        found = self._versions.get(header.kind) or self._find(header)
        if found is None:
            assert self.on_unsupported_api_versions is not None
            return self.on_unsupported_api_versions(context, None)
        route, times = found
        context.times = times
        if self.traces is not None:
            context.trace = self.traces.begin(
                header,
                context.peer,
                context=trace_context_of(frame, header.body_at),
                received_ns=self.clock.turn_ns,
                taken_ns=context.started_ns,
            )
        if self.quotas is not None and self.quotas.is_active:
            self.quotas.charge(context, len(frame))
        if route.cache is not None:
            return self._serve_from_cache(route.cache, route, context, frame)
        if (
            route.read_flat is not None
            and context.trace is None
            and (request := route.read_flat(frame, header.body_at, header.api_version)) is not None
        ):
            if self.gates is not None and self.gates.is_active:
                return self.gates.serve(context, request, route.handler)
            return route.handler(context, request)
        return self._serve_frame(route, context, frame)

    def _find(self, header: RequestHeader) -> tuple[Route, Times] | None:
        """Return the route of an API's version, and the counters of its durations. Returns None for
        an unsupported version of ApiVersions, which has its own handler.

        Raises ProtocolError for an unknown API or a version out of range.
        """
        api_key, version = header.api_key, header.api_version
        route = self._routes.get(api_key)
        if route is None:
            if api_key in self.coming:
                raise NotServedYetError(f"{API[api_key].name} is not served yet")
            raise ProtocolError(f"{API[api_key].name} is not served")
        if not route.lowest <= version <= route.highest:
            if api_key == API_VERSIONS and self.on_unsupported_api_versions is not None:
                return None
            raise ProtocolError(f"version {version} of api key {api_key}")
        found = self._versions[header.kind] = route, self.times.of(api_key, version)
        return found

    def _serve_from_cache(
        self, cache: ResponseCache, route: Route, context: RequestContext, frame: memoryview
    ) -> HandlerResult:
        """Answer a request from the cache of responses, or call the handler and cache its response.

        If the client is denied a resource that the request names, the denial is decided and logged
        for each request.
        """
        client_key: ClientKey | None = ANYONE
        if self.gates is not None and self.gates.is_active:
            client_key = self.gates.client_key_of(context.peer)
        key = None
        if client_key is not None:
            key = cache.key(context.header, context.peer.listener_key, frame, client_key)
        body = None if key is None else cache.find(key)
        if body is not None:
            _complete_encoded(context, body)
            return None
        state = cache.state
        result = self._serve_frame(route, context, frame)
        if key is None or not isinstance(result, Message):
            return result
        permissions = context.permissions
        error_code: int = getattr(result, "error_code", 0)
        if error_code or context.has_refused_parts:
            return result
        if permissions is not None and permissions.was_denied:
            return result
        cache.keep(key, state, body := encode(result, context.api_version))
        _complete_encoded(context, body)
        return None

    def _serve_frame(
        self, route: Route, context: RequestContext, frame: memoryview
    ) -> HandlerResult:
        """Decode the request in a frame, and return the result of its handler."""
        header = context.header
        request_type = route.request_type
        if request_type is None:
            request_type = route.request_type = request_class(header.api_key)
        # Bytes after the body are ignored, as in Kafka.  librdkafka's Metadata request for all
        # topics has three of them.
        try:
            request, _ = decode_prefix(
                request_type, header.api_version, frame, header.body_at, INLINE_ELEMENTS_BYTES_MAX
            )
        except ProtocolError:
            if len(frame) < APART_FROM_BYTES:
                raise
            serve_large = partial(self._serve, route.large_handler)
            return decoded_in_thread(context, frame, request_type, serve_large)
        if self.gates is not None and self.gates.is_active:
            return self.gates.serve(context, request, route.handler)
        return route.handler(context, request)

    def serve_own(self, context: RequestContext, request: Message) -> HandlerResult:
        """Call the handler of a request that this broker sends to itself, without authorization.
        Returns the handler's result.

        Raises NotServedYetError if the handler is not registered yet.
        """
        route = self._routes.get(context.header.api_key)
        if route is None:
            raise NotServedYetError(f"{API[context.header.api_key].name} is not served yet")
        return route.handler(context, request)

    def _serve(self, handler: Handler, context: RequestContext, request: Any) -> HandlerResult:
        if self.gates is not None and self.gates.is_active:
            return self.gates.serve(context, request, handler)
        return handler(context, request)


def _complete_encoded(context: RequestContext, body: bytes) -> None:
    """Complete a request with a cached response body. A throttled client gets
    a copy that contains its throttle time."""
    header = context.header
    throttle_ms = context.settle_charge()
    if throttle_ms:
        response: Any = decode(response_class(header.api_key), header.api_version, body)
        if hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = throttle_ms
            body = encode(response, header.api_version)
    context.complete_body(body)
