"""One connection to one broker: a request goes out, its answer comes back.

The versions both sides speak are settled by ApiVersions when it opens.  Requests of several tasks
take turns.  Errors: `ConnectionLostError` when the peer is gone or silent, `ProtocolError` when
it answers with something else than the protocol, `RefusedError(UNSUPPORTED_VERSION)` when it does
not know the request at all.
"""

import errno
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, TypeVar

import trio

from ottla.client.network.arguments import check_text
from ottla.client.network.login import LOGIN, log_in
from ottla.client.network.spoken_versions import (
    VERSIONS_ASKED,
    SpokenVersions,
    read_versions,
    versions_request,
)
from ottla.client.network.tls import TLS, TlsDialer, TlsError
from ottla.client.network.transport import TRANSPORT
from ottla.model.errors import OttlaError, ProtocolError
from ottla.model.limits import MIB
from ottla.model.seams import ByteStream
from ottla.wire import codec, headers
from ottla.wire.apis import API_VERSIONS
from ottla.wire.codec_types import Message

if TYPE_CHECKING:
    from ottla.model.settings.sasl import SaslLogin

RESPONSE_BYTES_MAX = 128 << 20
"""A longer answer is refused before memory is taken for it."""

LENGTH_BYTES = 4
RECEIVE_BYTES = 65_536
"""What is asked of the socket at a time, for small answers."""
RECEIVE_BYTES_MAX = MIB + RECEIVE_BYTES
"""What is asked of it at a time for a large answer, such as the default `max.partition.fetch.bytes`
and what goes around it: a peer that announces more than it sends takes this much memory at most."""
FREED_BYTES = 4 * RECEIVE_BYTES_MAX
"""Of a block that is taken and freed once, untouched: twice as much covers an answer that arrives,
two that are not read yet, and the values of one that is."""
SMALL_PIECE_BYTES = 16_384
"""Smaller pieces of an answer are put together as they arrive: each alone costs 100 bytes more."""


class ConnectionLostError(OttlaError):
    """The broker cannot be reached, hung up, or did not answer in time; another may."""


R = TypeVar("R", bound=Message)
C = TypeVar("C", bound="BrokerConnection")


class BrokerConnection:
    """An open connection; owns its socket."""

    def __init__(self, stream: ByteStream, address: str, client_id: str) -> None:
        self.address = address
        self._stream = stream
        self._client_id = client_id
        self._turn = trio.Lock()
        self._correlation_id = 0
        self._received: bytes | bytearray = b""
        """What has arrived and is not given out yet; bytes where that is one piece."""
        self._asked_bytes = RECEIVE_BYTES
        """What is asked of the socket for the next answer: behind large ones as much as the largest
        of them, so that it arrives in one piece, which need not be copied."""
        self._spoken = SpokenVersions()
        self._login: SaslLogin | None = None
        self._logs_in_again_at: float | None = None
        """When (trio's clock) the session is to be renewed."""

    async def negotiate(self) -> None:
        """Ask which versions the broker speaks; fall back where it does not know our own."""
        for version in VERSIONS_ASKED:
            body = await self._exchange(API_VERSIONS, version, versions_request(version))
            found = read_versions(version, body)
            if found is not None:
                self._spoken = found
                return

    async def log_in(self, login: "SaslLogin") -> None:
        """Tell the broker who we are; RefusedError where it does not believe that."""
        async with self._turn:
            self._login = login
            await self._log_in()

    async def _log_in(self) -> None:
        """Log in, with the connection's turn held."""
        assert self._login is not None
        try:
            renew_after_s = await log_in(self._login, self._ask_in_turn, self.address)
        except BaseException:
            # Half a login is of no use to the next request.
            self._stream.abort()
            raise
        self._logs_in_again_at = (
            None if renew_after_s is None else trio.current_time() + renew_after_s
        )

    async def _renew(self) -> None:
        """Log in again where the session is about to end; the turn is held."""
        if self._logs_in_again_at is not None and trio.current_time() >= self._logs_in_again_at:
            await self._log_in()

    async def _ask_in_turn(self, message: Message, response: type[R], version: int | None) -> R:
        api_key = message.API_KEY
        highest = self.version_of(api_key)
        version = highest if version is None else min(version, highest)
        body = await self._exchange_in_turn(api_key, version, codec.encode(message, version))
        return codec.decode(response, version, body)

    def version_of(self, api_key: int) -> int:
        """Return the highest version of an API both sides speak; refuse if there is none."""
        return self._spoken.version_of(api_key, self.address)

    def feature_level(self, name: str) -> int:
        """Return the finalised level of a feature; 0 for one that the broker does not show."""
        return self._spoken.feature_level(name)

    @property
    def reads_trace_contexts(self) -> bool:
        """Whether the broker has a use for a `traceparent` with requests."""
        return self._spoken.reads_trace_contexts

    async def request(self, message: Message, response: type[R], version: int | None = None) -> R:
        """Send one request and return its answer, decoded as `response`."""
        api_key = message.API_KEY
        if version is None:
            version = self.version_of(api_key)
        body = await self._exchange(api_key, version, codec.encode(message, version))
        return codec.decode(response, version, body)

    async def send(
        self, message: Message, version: int, trace_context: bytes | None = None
    ) -> None:
        """Send a request that has no answer (Produce with acks=0)."""
        async with self._turn:
            await self._renew()
            body = codec.encode(message, version)
            await self._send(message.API_KEY, version, body, trace_context)
        # Nothing is waited for here: who sends one after the other lets others run.
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def aclose(self) -> None:
        """Close the socket."""
        await self._stream.aclose()

    async def _exchange(self, api_key: int, version: int, body: bytes) -> memoryview:
        async with self._turn:
            await self._renew()
            return await self._exchange_in_turn(api_key, version, body)

    async def _exchange_in_turn(self, api_key: int, version: int, body: bytes) -> memoryview:
        is_answered = False
        try:
            correlation_id = await self._send(api_key, version, body)
            frame = await self._receive_frame()
            is_answered = True
        finally:
            if not is_answered:
                # The answer may still come; nobody must take it for that to another request.
                self._stream.abort()
        found, body_at = headers.decode_response_header(api_key, version, frame)
        if found != correlation_id:
            raise ProtocolError(f"correlation id {found} where {correlation_id} was due")
        return frame[body_at:]

    async def _send(
        self, api_key: int, version: int, body: bytes, trace_context: bytes | None = None
    ) -> int:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = headers.encode_request_header(
            api_key, version, self._correlation_id, self._client_id, trace_context
        )
        length = len(header) + len(body)
        try:
            await self._stream.send_all(length.to_bytes(4, "big") + header + body)
        except (trio.BrokenResourceError, trio.ClosedResourceError, TlsError) as error:
            raise lost(self.address, error) from error
        return self._correlation_id

    async def _receive_frame(self) -> memoryview:
        """Receive one answer, without its length; what it views is bytes."""
        while len(self._received) < LENGTH_BYTES:
            await self._receive_more()
        received = self._received
        length = int.from_bytes(received[:LENGTH_BYTES], "big", signed=True)
        if not 0 <= length <= RESPONSE_BYTES_MAX:
            raise ProtocolError(f"answer length {length}")
        end = LENGTH_BYTES + length
        is_large = end > RECEIVE_BYTES
        if is_large:
            keep_freed_memory()
        self._asked_bytes = (
            min(max(end, self._asked_bytes), RECEIVE_BYTES_MAX) if is_large else RECEIVE_BYTES
        )
        if len(received) < end:
            return memoryview(await self._receive_rest(end - len(received)))
        if len(received) == end and type(received) is bytes:
            self._received = b""
            return memoryview(received)[LENGTH_BYTES:]
        frame = bytes(received[LENGTH_BYTES:end])
        behind = self._received = received if type(received) is bytearray else bytearray(received)
        del behind[:end]
        return memoryview(frame)

    async def _receive_rest(self, missing: int) -> bytes:
        """Receive what is missing of an answer that has begun, and return all of it."""
        received, self._received = self._received, b""
        pieces: list[bytes | bytearray | memoryview] = []
        if len(received) > LENGTH_BYTES:
            pieces.append(memoryview(received)[LENGTH_BYTES:])
        while True:
            data = await self._receive_some(min(max(missing, RECEIVE_BYTES), RECEIVE_BYTES_MAX))
            if len(data) > missing:
                self._received = data[missing:]
                data = data[:missing]
            missing -= len(data)
            if not missing and not pieces and type(data) is bytes:
                return data
            last = pieces[-1] if pieces else None
            if len(data) >= SMALL_PIECE_BYTES:
                pieces.append(data)
            elif type(last) is bytearray and len(last) < SMALL_PIECE_BYTES:
                last += data
            else:
                pieces.append(bytearray(data))
            if not missing:
                return b"".join(pieces)

    async def _receive_more(self) -> None:
        """Take what the socket has into `_received`, waiting for at least one byte."""
        data = await self._receive_some(self._asked_bytes)
        self._received = bytearray(self._received) + data if self._received else data

    async def _receive_some(self, count: int) -> bytes | bytearray:
        """Return what the socket has, waiting for at least one byte."""
        try:
            data = await self._stream.receive_some(count)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            raise lost(self.address, error) from error
        if not data:
            raise ConnectionLostError(f"{self.address} hung up")
        return data


@asynccontextmanager
async def open_connection(
    host: str, port: int, *, client_id: str = "ottla", timeout_s: float = 10.0
) -> AsyncIterator[BrokerConnection]:
    """Connect, settle versions, and close at the end; raise ConnectionLostError if it fails."""
    connection = await connect(host, port, client_id=client_id, timeout_s=timeout_s)
    try:
        yield connection
    finally:
        await connection.aclose()


async def connect(host: str, port: int, *, client_id: str, timeout_s: float) -> BrokerConnection:
    """Connect, settle versions and log in; the caller closes.

    Raises ValueError for a client id that UTF-8 cannot encode.
    """
    check_text("client_id", client_id)
    return await open_stream(BrokerConnection, host, port, client_id=client_id, timeout_s=timeout_s)


async def open_stream(
    kind: type[C],
    host: str,
    port: int,
    *,
    client_id: str,
    timeout_s: float,
    login: "SaslLogin | None" = None,
    tls: TlsDialer | None = None,
) -> C:
    """Connect, as this kind of connection, encrypt and log in: as told here, else as the task does.

    Raises RefusedError where the broker does not take the login.
    """
    address = f"{host}:{port}"
    login = login or LOGIN.get()
    tls = tls or TLS.get()
    try:
        with trio.fail_after(timeout_s):
            stream = await TRANSPORT.get().connect(host, port)
            if tls is not None:
                stream = await tls.encrypted(stream, host)
            connection = kind(stream, address, client_id)
            try:
                await connection.negotiate()
            except BaseException as error:
                stream.abort()
                if isinstance(error.__cause__, TlsError):
                    raise
                if isinstance(error, ConnectionLostError | ProtocolError):
                    also = "" if tls else ", or does it ask for TLS (security.protocol)"
                    raise ConnectionLostError(
                        f"{address} does not answer as a broker ({error}); "
                        f"is it a controller's address, or another program's{also}?"
                    ) from error
                raise
            try:
                if login is not None:
                    await connection.log_in(login)
            except BaseException:
                stream.abort()
                raise
    except trio.TooSlowError:
        raise ConnectionLostError(f"{address} did not answer in {timeout_s:g} s") from None
    except OSError as error:
        raise ConnectionLostError(f"cannot connect to {address}: {_why(host, error)}") from None
    return connection


@cache
def keep_freed_memory() -> None:
    """Have the C library keep the memory that one answer leaves for the next one.

    glibc would give it back to the kernel at every answer and take it again page by page, which is
    a sixth of what reading costs.  It keeps twice the largest block that was freed.
    """
    bytes(FREED_BYTES)


def lost(address: str, error: BaseException) -> ConnectionLostError:
    """Return the error for a connection whose stream broke."""
    if isinstance(error, TlsError):
        return ConnectionLostError(f"{address}: {error.sentence}")
    return ConnectionLostError(f"{address} hung up")


def _why(host: str, error: OSError) -> str:
    """Return why a connection could not be opened, in the words of its one real cause."""
    if isinstance(error, TlsError):
        return error.sentence
    if isinstance(error, socket.gaierror):
        said = (error.strerror or "no address").lower()
        return f"the host name {host} is not found ({said})"
    # Several addresses tried in vain come as one error that names no reason itself.
    reasons = {one.strerror for one in _causes(error) if one.errno != errno.ECONNREFUSED}
    said = ", ".join(sorted(reason.lower() for reason in reasons if reason))
    return said or "nobody listens there"


def _causes(error: BaseException) -> list[OSError]:
    if isinstance(error, BaseExceptionGroup):
        return [cause for one in error.exceptions for cause in _causes(one)]
    if isinstance(error, OSError):
        return [error] if error.__cause__ is None else _causes(error.__cause__)
    return []
