"""Descriptors of remote procedures: path, request, response, handler.

Pure. A server needs only a table of the `MethodHandler` objects of a service.
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
"""Default maximum size in bytes of a request between nodes. Requests of methods without another
limit are short. With a larger limit, an unauthenticated peer could occupy more memory."""

CALLS_MAX = 1_024
"""Default maximum number of concurrent calls of one gRPC method. With a smaller limit, long polls
of the brokers of a large cluster would be refused."""


@frozen
class RpcMethod(Generic[Request, Response]):
    """A remote procedure, with its request and response types. `path` is its gRPC path,
    `/package.Service/Name`."""

    path: str
    request_class: type[Request]
    response_class: type[Response]
    request_bytes_max: int = REQUEST_BYTES_MAX
    calls_max: int = CALLS_MAX
    """Maximum number of concurrent calls of this method that a server processes. Further calls are
    refused, and their callers retry."""

    def decode_request(self, data: bytes) -> Request:
        """Decode a request of this method. Raises ProtocolError if the bytes are malformed."""
        try:
            return self.request_class.FromString(data)
        except DecodeError as error:
            raise ProtocolError(f"request of {self.path}") from error

    def decode_response(self, data: bytes) -> Response:
        """Decode a response of this method. Raises ProtocolError if the bytes are malformed."""
        try:
            return self.response_class.FromString(data)
        except DecodeError as error:
            raise ProtocolError(f"response of {self.path}") from error


Admit = Callable[[str, Message, Caller], None]
"""Function that authorizes a call, `admit(path, request, caller)`. Raises RefusedError to reject
the call."""


@frozen
class MethodHandler(Generic[Request, Response]):
    """A remote procedure, and the trio function that processes its requests."""

    method: RpcMethod[Request, Response]
    answer: Callable[[Request], Awaitable[Response]]
    errors: UnexpectedErrors | None = None
    """Counter of unexpected exceptions in the handler. If it is None, such exceptions propagate,
    which is useful in tests."""
    admit: Admit | None = None
    """Function that authorizes the caller of the method. If it is None, every caller is
    admitted."""

    async def answer_bytes(self, data: bytes, caller: Caller = UNKNOWN_CALLER) -> bytes:
        """Process an encoded request of the method, and return the encoded response.

        Raises RefusedError if the caller is not admitted, with MESSAGE_TOO_LARGE if the request
        exceeds the limit of its method, and with UNKNOWN_SERVER_ERROR if the handler fails
        unexpectedly. Such a failure affects only this request.
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
    """Return copies of the handlers that report unexpected exceptions to `errors`. An unexpected
    exception then fails only the request that caused it."""
    return [replace(handler, errors=errors) for handler in handlers]


def admitted(
    handlers: Iterable[MethodHandler[Any, Any]], admit: Admit
) -> list[MethodHandler[Any, Any]]:
    """Return copies of the handlers that authorize their callers with `admit`."""
    return [replace(handler, admit=admit) for handler in handlers]
