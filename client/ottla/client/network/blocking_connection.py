"""A connection to one broker on a blocking socket, for a command that sends one request.

The connection has no TLS, no login and no retries. It does not use trio, because importing trio
takes longer than the rest of such a command. After any error, the caller sends the request again
through `Cluster`, which retries it or reports the error. This module therefore raises errors
unchanged, as OSError, ProtocolError or RefusedError.
"""

import socket
from types import TracebackType
from typing import TypeVar

from ottla.client.network.address_check import check_address
from ottla.client.network.broker_versions import (
    BrokerVersions,
    first_version,
    read_versions,
    versions_request,
)
from ottla.model.errors import ProtocolError
from ottla.wire import codec, headers
from ottla.wire.apis import API_VERSIONS
from ottla.wire.codec_types import Message

RESPONSE_BYTES_MAX = 16 << 20
"""Maximum size of an accepted response in bytes. A request with a larger response is sent again
through `Cluster`."""

RECEIVE_BYTES_MAX = 1 << 16
"""Maximum number of bytes for which memory is allocated before the bytes have arrived."""

LENGTH_BYTES = 4

R = TypeVar("R", bound=Message)


class BlockingConnection:
    """An open connection to one broker on a blocking socket. Each wait for the socket lasts at most
    `timeout_s`."""

    def __init__(self, host: str, port: int, *, client_id: str, timeout_s: float) -> None:
        """Connect to the broker and negotiate API versions."""
        self.address = f"{host}:{port}"
        self._client_id = client_id
        self._correlation_id = 0
        self._versions = BrokerVersions()
        check_address(host, port)
        self._socket = socket.create_connection((host, port), timeout_s)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            found: BrokerVersions | int = first_version(None)
            while isinstance(found, int):
                body = self._exchange(API_VERSIONS, found, versions_request(found))
                found = read_versions(found, body)
            self._versions = found
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> "BlockingConnection":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._socket.close()

    def request(self, message: Message, response: type[R]) -> R:
        """Send one request and return its response, decoded as `response`."""
        version = self._versions.version_of(message.API_KEY, self.address)
        body = self._exchange(message.API_KEY, version, codec.encode(message, version))
        return codec.decode(response, version, body)

    def _exchange(self, api_key: int, version: int, body: bytes) -> memoryview:
        self._correlation_id += 1
        header = headers.encode_request_header(
            api_key, version, self._correlation_id, self._client_id, None
        )
        length = len(header) + len(body)
        self._socket.sendall(length.to_bytes(LENGTH_BYTES, "big") + header + body)
        length = int.from_bytes(self._received(LENGTH_BYTES), "big", signed=True)
        if not 0 <= length <= RESPONSE_BYTES_MAX:
            raise ProtocolError(f"answer length {length}")
        frame = memoryview(self._received(length))
        found, body_at = headers.decode_response_header(api_key, version, frame)
        if found != self._correlation_id:
            raise ProtocolError(f"correlation id {found} where {self._correlation_id} was due")
        return frame[body_at:]

    def _received(self, count: int) -> bytearray:
        """Receive and return exactly `count` bytes.

        Memory is allocated only as bytes arrive. A peer that announces more bytes than it sends
        therefore cannot make the client allocate memory for them.
        """
        frame = bytearray()
        while len(frame) < count:
            piece = self._socket.recv(min(count - len(frame), RECEIVE_BYTES_MAX))
            if not piece:
                raise ProtocolError(f"{self.address} hung up")
            frame += piece
        return frame
