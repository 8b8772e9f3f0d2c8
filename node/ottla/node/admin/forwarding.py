"""Forwards admin requests of clients to the active controller.

The request and its response are forwarded in Kafka's encoding, so no second definition of each
request is needed.
"""

from typing import Protocol, TypeVar

from ottla.model.ids import Offset
from ottla.node.network.dispatch import RequestContext
from ottla.proto import controller_pb2 as pb
from ottla.wire.apis import response_class
from ottla.wire.codec import decode, encode
from ottla.wire.codec_types import Message

R = TypeVar("R", bound=Message)


class ForwardingPort(Protocol):
    """Interface of the controller client, reduced to the method that forwards requests."""

    async def forward(self, request: pb.ForwardRequest, *, deadline_ms: int) -> pb.ForwardResponse:
        """Forward a client's request to the active controller, and return the controller's
        response. Raises RefusedError if the whole request is refused."""
        ...


async def forward(
    controller: ForwardingPort,
    context: RequestContext,
    request: Message,
    *,
    version: int,
    timeout_ms: int,
    is_own: bool = False,
) -> tuple[Message, Offset]:
    """Forward a client's request to the active controller. Returns the response, and the offset of
    the last metadata record that the request has written (0 if it has written no record).

    Raises RefusedError with the controller's code, or if no controller is reachable.
    """
    answer = await forward_bytes(
        controller,
        context,
        request,
        encode(request, version),
        version=version,
        timeout_ms=timeout_ms,
        is_own=is_own,
    )
    decoded = decode(response_class(request.API_KEY), version, answer.body)
    return decoded, Offset(answer.metadata_offset)


async def forward_bytes(
    controller: ForwardingPort,
    context: RequestContext,
    request: Message,
    body: bytes,
    *,
    version: int,
    timeout_ms: int,
    is_own: bool = False,
) -> pb.ForwardResponse:
    """Forward an encoded request to the active controller, and return the encoded response.

    A broker's own request has no principal, and is charged to no client's quota. Raises
    RefusedError with the controller's code, or if no controller is reachable.
    """
    return await controller.forward(
        pb.ForwardRequest(
            api_key=request.API_KEY,
            api_version=version,
            principal="" if is_own else context.peer.principal,
            client_id=context.client_id,
            client_address=context.peer.peer_host,
            body=body,
            is_token_authenticated=not is_own and context.peer.is_token_authenticated,
        ),
        deadline_ms=timeout_ms,
    )


async def forward_as(
    kind: type[R],
    controller: ForwardingPort,
    context: RequestContext,
    request: Message,
    *,
    version: int,
    timeout_ms: int,
    is_own: bool = False,
) -> R:
    """Forward a request of this broker to the active controller. Returns the response as an object
    of class `kind`."""
    answer, _ = await forward(
        controller, context, request, version=version, timeout_ms=timeout_ms, is_own=is_own
    )
    assert isinstance(answer, kind)
    return answer


async def forward_own(
    kind: type[R],
    controller: ForwardingPort,
    request: Message,
    *,
    client_id: str,
    version: int,
    timeout_ms: int,
) -> R:
    """Send a request on this broker's own behalf to the active controller. Returns the response as
    an object of class `kind`.

    The request has no principal, and is charged to no client's quota. Raises RefusedError with the
    controller's code, or if no controller is reachable.
    """
    answer = await controller.forward(
        pb.ForwardRequest(
            api_key=request.API_KEY,
            api_version=version,
            client_id=client_id,
            body=encode(request, version),
        ),
        deadline_ms=timeout_ms,
    )
    return decode(kind, version, answer.body)
