"""A blocking gRPC client, for tools that run outside any event loop."""

import contextlib
from collections.abc import Iterator
from typing import Any

import grpc

from ottla.rpc.method import Request, Response, RpcMethod
from ottla.rpc.rpc_driver import CHANNEL_OPTIONS
from ottla.rpc.status import ERROR_CODE_KEY, refusal_of


class BlockingChannel:
    """A gRPC connection to one address. Each call blocks the calling thread until the response
    arrives."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)

    def close(self) -> None:
        """Close the gRPC connection to the server."""
        self._channel.close()

    def call_bytes(self, path: str, data: bytes, *, timeout_s: float) -> bytes:
        """Call the method at `path` with an encoded request, and return the encoded response.
        Raises RefusedError if the peer refuses, or does not respond in time."""
        method: Any = self._channel.unary_unary(path)
        try:
            answer: bytes = method(data, timeout=timeout_s, wait_for_ready=True)
        except grpc.RpcError as error:
            failed: Any = error
            trailing = dict(failed.trailing_metadata() or ())
            raise refusal_of(
                failed.code().name, failed.details(), trailing.get(ERROR_CODE_KEY)
            ) from None
        return answer

    def call(
        self, method: RpcMethod[Request, Response], request: Request, *, timeout_s: float
    ) -> Response:
        """Call a method of the peer with a request object, and return the response object. Raises
        RefusedError if the peer refuses, or does not respond in time."""
        data = self.call_bytes(method.path, request.SerializeToString(), timeout_s=timeout_s)
        return method.decode_response(data)


@contextlib.contextmanager
def open_blocking_channel(address: str) -> Iterator[BlockingChannel]:
    """Open and yield a gRPC connection to an address. The end of the `with` block closes it."""
    channel = BlockingChannel(address)
    try:
        yield channel
    finally:
        channel.close()
