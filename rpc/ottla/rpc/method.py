"""What one remote procedure is: its name on the wire, its request and its response.

Pure.  A table of `MethodHandler` is all that a server needs to know of a service.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import DecodeError, Message

from ottla.model.errors import ProtocolError

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


@dataclass(frozen=True, slots=True)
class RpcMethod(Generic[Request, Response]):
    """A remote procedure: `path` is gRPC's, `/package.Service/Name`."""

    path: str
    request_class: type[Request]
    response_class: type[Response]

    def decode_request(self, data: bytes) -> Request:
        """Read a request's bytes; ProtocolError when they are none."""
        try:
            return self.request_class.FromString(data)
        except DecodeError as error:
            raise ProtocolError(f"request of {self.path}") from error

    def decode_response(self, data: bytes) -> Response:
        """Read a response's bytes; ProtocolError when they are none."""
        try:
            return self.response_class.FromString(data)
        except DecodeError as error:
            raise ProtocolError(f"response of {self.path}") from error


@dataclass(frozen=True, slots=True)
class MethodHandler(Generic[Request, Response]):
    """A remote procedure with the trio function that answers it."""

    method: RpcMethod[Request, Response]
    answer: Callable[[Request], Awaitable[Response]]

    async def answer_bytes(self, data: bytes) -> bytes:
        """Answer an encoded request with an encoded response."""
        response = await self.answer(self.method.decode_request(data))
        return response.SerializeToString()
