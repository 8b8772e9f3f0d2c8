"""A connection with several requests in flight: they leave in order, their answers come in order.

No task of its own reads: whoever waits for an answer first reads for all who wait, and hands over
to the next when its own has come.  An answer nobody waits for any more is dropped.  Invariants:
OneAnswerPerRequest, OrderKept, BrokenStaysBroken (after a request or an answer that was cut short
nothing more is sent).
"""

from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

import trio

from ottla.client.network.background import acquire
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
from ottla.wire.codec_types import Message

if TYPE_CHECKING:
    from ottla.model.settings.sasl import SaslLogin

R = TypeVar("R", bound=Message)


class Due:
    """An answer that is due; `frame` once it is there."""

    __slots__ = ("api_key", "correlation_id", "frame", "sent_s", "version")

    def __init__(
        self, api_key: int, version: int, correlation_id: int, sent_s: float = 0.0
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.frame: memoryview | None = None
        self.sent_s = sent_s
        """Time at which it was sent, if latencies are measured."""


class Submitted(Generic[R]):
    """A request that has left; await `answer` for what comes back."""

    __slots__ = ("_due", "_pipeline", "_response")

    def __init__(self, pipeline: "Pipeline", due: Due, response: type[R]) -> None:
        self._pipeline = pipeline
        self._due = due
        self._response = response

    async def answer(self) -> R:
        """Wait for the answer; ConnectionLostError says that it will never be known."""
        body = await self._pipeline.finish(self._due)
        return codec.decode(self._response, self._due.version, body)


class Pipeline(BrokerConnection):
    """An open connection that several tasks use at once."""

    def __init__(self, stream: ByteStream, address: str, client_id: str) -> None:
        super().__init__(stream, address, client_id)
        self._reading = trio.Lock()
        self._due: deque[Due] = deque()
        self._failure: str | None = None
        self.latencies_s: MeasuredValues | None = None
        """Times from requests to their answers, where somebody wants them."""

    @property
    def in_flight_count(self) -> int:
        """Return how many answers are due."""
        return len(self._due)

    async def submit(
        self,
        message: Message,
        response: type[R],
        version: int | None = None,
        trace_context: bytes | None = None,
    ) -> Submitted[R]:
        """Send one request after all that were submitted before; return while its answer is due.

        `trace_context` is the `traceparent` of the span that the request belongs to.
        """
        if version is None:
            version = self.version_of(message.API_KEY)
        body = codec.encode(message, version)
        due = await self._begin(message.API_KEY, version, body, trace_context)
        return Submitted(self, due, response)

    async def finish(self, due: Due) -> memoryview:
        """Return an answer's body, reading what comes before it for whoever waits for that."""
        while due.frame is None:
            # Tasks that wait get the lock in turn; most find their answer there when they do.
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

    async def _exchange(self, api_key: int, version: int, body: bytes) -> memoryview:
        return await self.finish(await self._begin(api_key, version, body))

    async def _exchange_in_turn(self, api_key: int, version: int, body: bytes) -> memoryview:
        return await self.finish(await self._begin_in_turn(api_key, version, body))

    async def _begin(
        self, api_key: int, version: int, body: bytes, trace_context: bytes | None = None
    ) -> Due:
        await acquire(self._turn)
        try:
            self._check()
            if self._logs_in_again_at is not None:
                await self._renew()
            return await self._begin_in_turn(api_key, version, body, trace_context)
        finally:
            self._turn.release()

    async def _begin_in_turn(
        self, api_key: int, version: int, body: bytes, trace_context: bytes | None = None
    ) -> Due:
        self._check()
        try:
            correlation_id = await self._send(api_key, version, body, trace_context)
            sent_s = 0.0 if self.latencies_s is None else trio.current_time()
            due = Due(api_key, version, correlation_id, sent_s)
        except BaseException:
            self._failure = f"a request to {self.address} was cut short"
            raise
        self._due.append(due)
        return due

    async def _take_one(self) -> None:
        self._check()
        # A task cancelled here has taken nothing; the next one reads on.
        while len(self._received) < LENGTH_BYTES:
            await self._receive_more()
        try:
            frame = await self._receive_frame()
        except BaseException:
            self._failure = f"an answer of {self.address} was cut short"
            raise
        if not self._due:
            raise ProtocolError("an answer came that nobody asked for")
        due = self._due.popleft()
        due.frame = frame
        latencies_s = self.latencies_s
        if latencies_s is not None and due.sent_s:
            latencies_s.note(trio.current_time() - due.sent_s)

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
) -> Pipeline:
    """Connect, encrypt, settle versions and log in; the caller closes."""
    return await open_stream(
        Pipeline, host, port, client_id=client_id, timeout_s=timeout_s, login=login, tls=tls
    )
