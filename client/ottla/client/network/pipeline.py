"""A connection to a broker with several requests in flight. Responses arrive in the order of the
requests.

No separate task reads from the connection. The first task that waits for a response also reads the
responses of other tasks. After its own response has arrived, the next waiting task continues
reading. A response for which no task waits is dropped. Invariants:
- OneAnswerPerRequest: each response belongs to one request.
- OrderKept: responses arrive in the order of their requests.
- BrokenStaysBroken: nothing is sent after a truncated request or response.
"""

from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

import trio

from ottla.client.network.background import acquire
from ottla.client.network.broker_versions import ExpectedNode
from ottla.client.network.connection import (
    LENGTH_BYTES,
    BrokerConnection,
    ConnectionLostError,
    open_stream,
)
from ottla.client.network.tls import TlsDialer
from ottla.client.telemetry.measures import MeasuredValues
from ottla.model.errors import ProtocolError
from ottla.model.seams import ByteStream
from ottla.wire import codec, headers
from ottla.wire.codec_types import Chunk, Message

if TYPE_CHECKING:
    from ottla.model.settings.security.sasl import SaslLogin

R = TypeVar("R", bound=Message)


class ExpectedResponse:
    """The response to a request in flight. `frame` contains the response's bytes, or None before it
    has arrived."""

    __slots__ = ("api_key", "correlation_id", "frame", "sent_s", "version")

    def __init__(
        self, api_key: int, version: int, correlation_id: int, sent_s: float = 0.0
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.frame: memoryview | None = None
        self.sent_s = sent_s
        """Time on the event loop's clock, in seconds, at which the request was sent. Set only if
        latencies are measured."""


class RequestInFlight(Generic[R]):
    """A request in flight. Awaiting its `answer()` returns the response."""

    __slots__ = ("_due", "_pipeline", "_response")

    def __init__(self, pipeline: "Pipeline", due: ExpectedResponse, response: type[R]) -> None:
        self._pipeline = pipeline
        self._due = due
        self._response = response

    async def answer(self) -> R:
        """Wait for the response and return it.  Raises ConnectionLostError if the connection is
        lost first."""
        body = await self._pipeline.finish(self._due)
        return codec.decode(self._response, self._due.version, body)


class Pipeline(BrokerConnection):
    """An open connection to a broker that several tasks may use at the same time."""

    def __init__(self, stream: ByteStream, address: str, client_id: str) -> None:
        super().__init__(stream, address, client_id)
        self._reading = trio.Lock()
        self._due: deque[ExpectedResponse] = deque()
        self._failure: str | None = None
        self.latencies_s: MeasuredValues | None = None
        """Collector of request latencies, in seconds, or None if latencies are not measured."""

    @property
    def in_flight_count(self) -> int:
        """Number of requests on this connection whose response has not arrived yet."""
        return len(self._due)

    async def submit(
        self,
        message: Message,
        response: type[R],
        version: int | None = None,
        trace_context: bytes | None = None,
    ) -> RequestInFlight[R]:
        """Send one request, after all requests that were submitted earlier. Returns before the
        response arrives.

        `trace_context` is the `traceparent` of the request's OpenTelemetry span.
        """
        if version is None:
            version = self.version_of(message.API_KEY)
        body = codec.encode_chunks(message, version)
        due = await self._begin(message.API_KEY, version, body, trace_context)
        return RequestInFlight(self, due, response)

    async def finish(self, due: ExpectedResponse) -> memoryview:
        """Wait for a response and return its body. Earlier responses that have not arrived yet are
        read first, for the tasks that wait for them."""
        while due.frame is None:
            # Waiting tasks acquire the lock in order; most find that their response was read
            # meanwhile.
            await acquire(self._reading)
            try:
                while due.frame is None:
                    await self._take_one()
            finally:
                self._reading.release()
        found, body_at = headers.decode_response_header(due.api_key, due.version, due.frame)
        if found != due.correlation_id:
            self._failure = f"{self.address} answers out of turn"
            raise ProtocolError(f"correlation id {found} where {due.correlation_id} was due")
        return due.frame[body_at:]

    async def _exchange(self, api_key: int, version: int, body: list[Chunk]) -> memoryview:
        return await self.finish(await self._begin(api_key, version, body))

    async def _exchange_in_turn(self, api_key: int, version: int, body: list[Chunk]) -> memoryview:
        return await self.finish(await self._begin_in_turn(api_key, version, body))

    async def _begin(
        self, api_key: int, version: int, body: list[Chunk], trace_context: bytes | None = None
    ) -> ExpectedResponse:
        await acquire(self._lock)
        try:
            self._check()
            if self._logs_in_again_at is not None:
                await self._renew()
            return await self._begin_in_turn(api_key, version, body, trace_context)
        finally:
            self._lock.release()

    async def _begin_in_turn(
        self, api_key: int, version: int, body: list[Chunk], trace_context: bytes | None = None
    ) -> ExpectedResponse:
        self._check()
        try:
            correlation_id = await self._send(api_key, version, body, trace_context)
            sent_s = 0.0 if self.latencies_s is None else trio.current_time()
            due = ExpectedResponse(api_key, version, correlation_id, sent_s)
        except BaseException:
            self._failure = f"a request to {self.address} was cut short"
            raise
        self._due.append(due)
        return due

    async def _take_one(self) -> None:
        self._check()
        # A task that is cancelled here has consumed nothing; the next one continues reading.
        while len(self._received) < LENGTH_BYTES:
            await self._receive_more()
        try:
            frame = await self._receive_frame()
        except BaseException:
            self._failure = f"an answer of {self.address} was cut short"
            raise
        if not self._due:
            raise ProtocolError("a response arrived without a request")
        due = self._due.popleft()
        due.frame = frame
        latencies_s = self.latencies_s
        if latencies_s is not None and due.sent_s:
            latencies_s.note(trio.current_time() - due.sent_s)

    def abort(self, reason: str) -> None:
        """Close the connection at once. Requests in flight, and later requests, raise
        ConnectionLostError."""
        self._failure = self._failure or reason
        self._stream.abort()

    def _check(self) -> None:
        if self._failure is not None:
            raise ConnectionLostError(self._failure)


async def open_pipeline(
    host: str,
    port: int,
    *,
    client_id: str,
    timeout_s: float,
    login: "SaslLogin | None" = None,
    tls: TlsDialer | None = None,
    expected: ExpectedNode | None = None,
) -> Pipeline:
    """Open a connection with TLS, negotiate API versions, log in, and return the connection.  The
    caller has to close it.

    Raises MisroutedConnectionError if the peer is another broker than `expected`.
    """
    return await open_stream(
        Pipeline,
        host,
        port,
        client_id=client_id,
        timeout_s=timeout_s,
        login=login,
        tls=tls,
        expected=expected,
    )
