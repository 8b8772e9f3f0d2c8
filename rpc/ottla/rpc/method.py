"""What one remote procedure is: its name on the wire, its request and its response.

Pure.  A table of `MethodHandler` is all that a server needs to know of a service.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, Generic, TypeVar

from google.protobuf.message import DecodeError, Message

from ottla.model.errors import ErrorCode, ProtocolError, RefusedError
from ottla.model.limits import KIB
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.model.values import frozen
from ottla.rpc.caller import UNKNOWN_CALLER, Caller

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


REQUEST_BYTES_MAX = 64 * KIB
"""Of a request among nodes, where its method does not say more: all of them are short.  More is
memory that a stranger fills."""

CALLS_MAX = 1_024
"""Less refuses the long polls of a large cluster's brokers."""


@frozen
class RpcMethod(Generic[Request, Response]):
    """A remote procedure: `path` is gRPC's, `/package.Service/Name`."""

    path: str
    request_class: type[Request]
    response_class: type[Response]
    request_bytes_max: int = REQUEST_BYTES_MAX
    calls_max: int = CALLS_MAX
    """Calls that a server answers at once; one more is refused, and its caller tries again."""

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


Admit = Callable[[str, Message, Caller], None]
"""Refuses a request, `admit(path, request, caller)`, by raising RefusedError."""


@frozen
class MethodHandler(Generic[Request, Response]):
    """A remote procedure with the trio function that answers it."""

    method: RpcMethod[Request, Response]
    answer: Callable[[Request], Awaitable[Response]]
    errors: UnexpectedErrors | None = None
    """Where an error nobody foresaw is noted; None lets it through, for tests."""
    admit: Admit | None = None
    """What decides if the caller may send the request; None admits every caller."""

    async def answer_bytes(self, data: bytes, caller: Caller = UNKNOWN_CALLER) -> bytes:
        """Answer an encoded request with an encoded response.

        Raises RefusedError where the caller is not admitted.
        Raises RefusedError with MESSAGE_TOO_LARGE for a request above its method's bound.
        Raises RefusedError with UNKNOWN_SERVER_ERROR where the answer ends by an error nobody
        foresaw: such an error ends the request alone.
        """
        if len(data) > self.method.request_bytes_max:
            raise RefusedError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"A request of {self.method.path} has at most {self.method.request_bytes_max}"
                f" bytes, not {len(data)}",
            )
        try:
            request = self.method.decode_request(data)
            if self.admit is not None:
                self.admit(self.method.path, request, caller)
            response = await self.answer(request)
            return response.SerializeToString()
        except (RefusedError, ProtocolError):
            raise
        except Exception as error:
            if self.errors is None:
                raise
            self.errors.note("request", self.method.path, error)
            raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, UNFORESEEN) from error


UNFORESEEN = "The request met an unexpected error; the controller's log has its traceback."


def guarded(
    handlers: Iterable[MethodHandler[Any, Any]], errors: UnexpectedErrors
) -> list[MethodHandler[Any, Any]]:
    """Return the handlers with an edge: an unexpected error of one is noted and ends no other."""
    return [replace(handler, errors=errors) for handler in handlers]


def admitted(
    handlers: Iterable[MethodHandler[Any, Any]], admit: Admit
) -> list[MethodHandler[Any, Any]]:
    """Return the handlers behind a rule of who may call them."""
    return [replace(handler, admit=admit) for handler in handlers]
