"""One connection to one broker, on which one task at a time sends a request and receives its
response.

Opening a connection negotiates API versions (ApiVersions). Errors:
- `ConnectionLostError`: the peer has disconnected or does not respond.
- `MisroutedConnectionError`: the peer is another broker than the expected one.
- `ProtocolError`: the response is malformed.
- `RefusedError(UNSUPPORTED_VERSION)`: the broker does not support the request.
"""

import errno
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, TypeVar, cast

import trio

from ottla.client.network.arguments import check_text
from ottla.client.network.broker_versions import (
    BrokerVersions,
    ExpectedNode,
    first_version,
    read_versions,
    versions_request,
)
from ottla.client.network.login import LOGIN, log_in
from ottla.client.network.tls import TLS, TlsDialer, TlsError
from ottla.client.network.transport import TRANSPORT, send_chunks
from ottla.model.errors import ErrorCode, OttlaError, ProtocolError, RefusedError
from ottla.model.limits import MIB
from ottla.model.seams import ByteStream
from ottla.wire import codec, headers
from ottla.wire.apis import API_VERSIONS
from ottla.wire.codec_types import Chunk, Message

if TYPE_CHECKING:
    from ottla.model.settings.security.sasl import SaslLogin

RESPONSE_BYTES_MAX = 128 << 20
"""Maximum size of an accepted response in bytes. A larger response is rejected before memory is
allocated for it."""

LENGTH_BYTES = 4
RECEIVE_BYTES = 65_536
"""Number of bytes that the client requests from the socket at a time for small responses."""
RECEIVE_BYTES_MAX = MIB + RECEIVE_BYTES
"""Maximum number of bytes that the client requests from the socket at a time for a large response:
the default of `max.partition.fetch.bytes` plus the other fields of the response.

A peer that announces a larger response than it sends occupies at most this much memory.
"""
FREED_BYTES = 4 * RECEIVE_BYTES_MAX
"""Size, in bytes, of the block that `keep_freed_memory` allocates and frees once, without writing
to the block.

Afterwards, glibc keeps up to twice this amount of freed memory. This suffices for an arriving
response, two unread responses, and the values of the response that the application is reading.
"""
LARGE_REQUEST_BYTES = 16_384
"""Size in bytes from which a request is sent as the chunks that it consists of. A smaller request
is joined, which costs less than a system call with several chunks."""
SMALL_PIECE_BYTES = 16_384
"""Size in bytes below which pieces of a response are joined as they arrive. Each separate piece
costs 100 bytes of additional memory."""


class ConnectionLostError(OttlaError):
    """Error if the broker is unreachable, has disconnected, or did not respond in time. Another
    broker may still respond."""


class MisroutedConnectionError(ConnectionLostError):
    """Error if an address leads to another broker or another cluster than the client expects
    (KIP-1242). The client's metadata is then wrong."""


R = TypeVar("R", bound=Message)
C = TypeVar("C", bound="BrokerConnection")


class BrokerConnection:
    """An open connection to one broker, with its socket."""

    def __init__(self, stream: ByteStream, address: str, client_id: str) -> None:
        self.address = address
        self.expected: ExpectedNode | None = None
        """Broker that the client expects at the address. None if the client does not know the
        broker's id."""
        self._stream = stream
        self._client_id = client_id
        self._lock = trio.Lock()
        self._correlation_id = 0
        self._received: bytes | bytearray = b""
        """Received bytes that are not consumed yet.  The type is `bytes` if they arrived in one
        piece."""
        self._asked_bytes = RECEIVE_BYTES
        """Number of bytes to request from the socket for the next response.

        After large responses, this is the size of the largest response, so that the next response
        arrives in one piece and needs no copy.
        """
        self._spoken = BrokerVersions()
        self._login: SaslLogin | None = None
        self._logs_in_again_at: float | None = None
        """Time on trio's clock, in seconds, at which the SASL session is renewed. None if the
        session is not renewed."""

    async def negotiate(self) -> None:
        """Request the API versions of the broker. If the broker does not support the requested
        version of ApiVersions, request a version that it lists.

        Raises MisroutedConnectionError if the peer is another broker than the expected one.
        """
        version = first_version(self.expected)
        while True:
            body = await self._exchange(
                API_VERSIONS, version, [versions_request(version, self.expected)]
            )
            try:
                found = read_versions(version, body)
            except RefusedError as refusal:
                raise self._named(refusal) from None
            if isinstance(found, BrokerVersions):
                self._spoken = found
                return
            version = found

    def _named(self, refusal: RefusedError) -> OttlaError:
        """Return the error for a refused ApiVersions request."""
        expected = self.expected
        if refusal.code is ErrorCode.REBOOTSTRAP_REQUIRED and expected is not None:
            return MisroutedConnectionError(
                f"{self.address} is not broker {expected.node_id} of cluster "
                f"{expected.cluster_id}, as the metadata says"
            )
        return RefusedError(refusal.code, f"{self.address} refused ApiVersions: {refusal.message}")

    async def log_in(self, login: "SaslLogin") -> None:
        """Authenticate by SASL.  Raises RefusedError if the broker rejects the login."""
        async with self._lock:
            self._login = login
            await self._log_in()

    async def _log_in(self) -> None:
        """Authenticate the connection. The caller holds the lock `_lock`."""
        assert self._login is not None
        try:
            renew_after_s = await log_in(self._login, self._ask_in_turn, self.address)
        except BaseException:
            # A connection with an unfinished login cannot be used for requests.
            self._stream.abort()
            raise
        self._logs_in_again_at = (
            None if renew_after_s is None else trio.current_time() + renew_after_s
        )

    async def _renew(self) -> None:
        """Authenticate again if the SASL session of the connection is about to expire. The caller
        holds the lock `_lock`."""
        if self._logs_in_again_at is not None and trio.current_time() >= self._logs_in_again_at:
            await self._log_in()

    async def _ask_in_turn(self, message: Message, response: type[R], version: int | None) -> R:
        api_key = message.API_KEY
        highest = self.version_of(api_key)
        version = highest if version is None else min(version, highest)
        body = await self._exchange_in_turn(api_key, version, codec.encode_chunks(message, version))
        return codec.decode(response, version, body)

    def version_of(self, api_key: int) -> int:
        """Return the highest version of an API that both this client and the broker support.

        Raises RefusedError if they have no version in common, and ConnectionLostError if the peer
        is a controller.
        """
        if self._spoken.is_of_controller(api_key):
            raise ConnectionLostError(
                f"{self.address} does not answer as a broker; is it a controller's address?"
            )
        return self._spoken.version_of(api_key, self.address)

    def feature_level(self, name: str) -> int:
        """Return the finalized level of a feature, or 0 if the broker does not report the
        feature."""
        return self._spoken.feature_level(name)

    @property
    def reads_trace_contexts(self) -> bool:
        """True if the broker accepts a `traceparent` in request headers."""
        return self._spoken.reads_trace_contexts

    async def request(self, message: Message, response: type[R], version: int | None = None) -> R:
        """Send one request and return its response, decoded as `response`."""
        api_key = message.API_KEY
        if version is None:
            version = self.version_of(api_key)
        body = await self._exchange(api_key, version, codec.encode_chunks(message, version))
        return codec.decode(response, version, body)

    async def send(
        self, message: Message, version: int, trace_context: bytes | None = None
    ) -> None:
        """Send a request that has no response, such as Produce with acks=0."""
        async with self._lock:
            await self._renew()
            body = codec.encode_chunks(message, version)
            await self._send(message.API_KEY, version, body, trace_context)
        # Nothing above waits, so a task that sends in a loop would otherwise never yield.
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def aclose(self) -> None:
        """Close the connection to the broker, and its socket."""
        await self._stream.aclose()

    async def _exchange(self, api_key: int, version: int, body: list[Chunk]) -> memoryview:
        async with self._lock:
            await self._renew()
            return await self._exchange_in_turn(api_key, version, body)

    async def _exchange_in_turn(self, api_key: int, version: int, body: list[Chunk]) -> memoryview:
        is_answered = False
        try:
            correlation_id = await self._send(api_key, version, body)
            frame = await self._receive_frame()
            is_answered = True
        finally:
            if not is_answered:
                # The response may still arrive; it must not be taken for that of the next request.
                self._stream.abort()
        found, body_at = headers.decode_response_header(api_key, version, frame)
        if found != correlation_id:
            raise ProtocolError(f"correlation id {found} where {correlation_id} was due")
        return frame[body_at:]

    async def _send(
        self, api_key: int, version: int, body: list[Chunk], trace_context: bytes | None = None
    ) -> int:
        """Send one request. `body` contains the chunks of the encoded message, as `encode_chunks`
        returns them. Returns the correlation id."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = headers.encode_request_header(
            api_key, version, self._correlation_id, self._client_id, trace_context
        )
        length = len(header) + sum(map(len, body))
        # A client's records are never a slice of a file.
        chunks = cast("list[bytes]", [length.to_bytes(4, "big") + header, *body])
        try:
            if length < LARGE_REQUEST_BYTES:
                await self._stream.send_all(b"".join(chunks))
            else:
                await send_chunks(self._stream, chunks)
        except (trio.BrokenResourceError, trio.ClosedResourceError, TlsError) as error:
            raise lost(self.address, error) from error
        return self._correlation_id

    async def _receive_frame(self) -> memoryview:
        """Receive one response, and return it without its length prefix, as a view of `bytes`."""
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
        """Receive the `missing` bytes of a partly received response, and return the whole
        response."""
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
        """Append available bytes of the socket to `_received`.  Waits for at least one byte."""
        data = await self._receive_some(self._asked_bytes)
        self._received = bytearray(self._received) + data if self._received else data

    async def _receive_some(self, count: int) -> bytes | bytearray:
        """Return available bytes of the socket.  Waits for at least one byte."""
        try:
            data = await self._stream.receive_some(count)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            raise lost(self.address, error) from error
        if not data:
            raise ConnectionLostError(f"{self.address} hung up")
        return data


@asynccontextmanager
async def open_connection(
    host: str,
    port: int,
    *,
    client_id: str = "ottla",
    timeout_s: float = 10.0,
    expected: ExpectedNode | None = None,
) -> AsyncIterator[BrokerConnection]:
    """Open a connection to a broker, negotiate API versions, and yield the connection.

    The end of the block closes it. Raises ConnectionLostError if the connection or the negotiation
    fails, and MisroutedConnectionError if the peer is another broker than `expected`.
    """
    connection = await connect(
        host, port, client_id=client_id, timeout_s=timeout_s, expected=expected
    )
    try:
        yield connection
    finally:
        await connection.aclose()


async def connect(
    host: str,
    port: int,
    *,
    client_id: str,
    timeout_s: float,
    expected: ExpectedNode | None = None,
) -> BrokerConnection:
    """Open a connection, negotiate API versions, log in, and return the connection. The caller must
    close it.

    Raises ValueError if UTF-8 cannot encode the client id, and MisroutedConnectionError if the peer
    is another broker than `expected`.
    """
    check_text("client_id", client_id)
    return await open_stream(
        BrokerConnection,
        host,
        port,
        client_id=client_id,
        timeout_s=timeout_s,
        expected=expected,
    )


async def open_stream(
    kind: type[C],
    host: str,
    port: int,
    *,
    client_id: str,
    timeout_s: float,
    login: "SaslLogin | None" = None,
    tls: TlsDialer | None = None,
    expected: ExpectedNode | None = None,
) -> C:
    """Open and return a connection of the class `kind`, with TLS and login.

    If `login` or `tls` is None, the value that is set for the calling task applies (`LOGIN`,
    `TLS`). Raises RefusedError if the broker rejects the login, ConnectionLostError if the broker
    cannot be reached, and MisroutedConnectionError if the peer is another broker than `expected`.
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
            connection.expected = expected
            try:
                await connection.negotiate()
            except BaseException as error:
                stream.abort()
                is_explained = isinstance(error, MisroutedConnectionError)
                if is_explained or isinstance(error.__cause__, TlsError):
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
    """Configure the C library so that the freed memory of a response is reused for the next
    response.

    Otherwise glibc returns the memory to the kernel after every response, and the kernel provides
    it again page by page, which takes a sixth of the time spent on reading. glibc keeps twice the
    size of the largest block that was freed.
    """
    bytes(FREED_BYTES)


def lost(address: str, error: BaseException) -> ConnectionLostError:
    """Return the ConnectionLostError for a connection whose stream has failed."""
    if isinstance(error, TlsError):
        return ConnectionLostError(f"{address}: {error.sentence}")
    return ConnectionLostError(f"{address} hung up")


def _why(host: str, error: OSError) -> str:
    """Return the reason why a connection could not be opened."""
    if isinstance(error, TlsError):
        return error.sentence
    if isinstance(error, socket.gaierror):
        said = (error.strerror or "no address").lower()
        return f"the host name {host} is not found ({said})"
    # If several addresses of a host failed, the error contains one error for each address and has
    # no reason itself.
    reasons = {one.strerror for one in _causes(error) if one.errno != errno.ECONNREFUSED}
    said = ", ".join(sorted(reason.lower() for reason in reasons if reason))
    return said or "no process listens there"


def _causes(error: BaseException) -> list[OSError]:
    if isinstance(error, BaseExceptionGroup):
        return [cause for one in error.exceptions for cause in _causes(one)]
    if isinstance(error, OSError):
        return [error] if error.__cause__ is None else _causes(error.__cause__)
    return []
