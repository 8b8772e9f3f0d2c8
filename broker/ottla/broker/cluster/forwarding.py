"""How a broker passes a client's admin request to the active controller.

The request and its answer travel in Kafka's own encoding, so no request exists twice.
"""

from typing import Protocol, TypeVar

from ottla.broker.network.dispatch import RequestContext
from ottla.model.ids import Offset
from ottla.proto import controller_pb2 as pb
from ottla.wire.apis import response_class
from ottla.wire.codec import decode, encode
from ottla.wire.codec_types import Message

R = TypeVar("R", bound=Message)


class ControllerDoor(Protocol):
    """What is needed of the controller client."""

    async def forward(self, request: pb.ForwardRequest, *, deadline_ms: int) -> pb.ForwardResponse:
        """Pass a client's request on; RefusedError when the whole of it is refused."""
        ...


async def forward(
    controller: ControllerDoor,
    context: RequestContext,
    request: Message,
    *,
    version: int,
    timeout_ms: int,
    is_own: bool = False,
) -> tuple[Message, Offset]:
    """Let the active controller decide; RefusedError with its code, or when none is reached.

    Return with the answer the metadata offset that has all it says, 0 when it changed nothing.
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
    controller: ControllerDoor,
    context: RequestContext,
    request: Message,
    body: bytes,
    *,
    version: int,
    timeout_ms: int,
    is_own: bool = False,
) -> pb.ForwardResponse:
    """Let the active controller decide a request that is encoded; the answer is encoded too.

    A broker's own request has no principal, and no client's quota is charged for it.
    Raises RefusedError with the controller's code, or if none is reached.
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
    controller: ControllerDoor,
    context: RequestContext,
    request: Message,
    *,
    version: int,
    timeout_ms: int,
    is_own: bool = False,
) -> R:
    """Forward a request of our own making, whose answer's class is known."""
    answer, _ = await forward(
        controller, context, request, version=version, timeout_ms=timeout_ms, is_own=is_own
    )
    assert isinstance(answer, kind)
    return answer
