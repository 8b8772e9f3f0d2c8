"""The quorum's requests over gRPC, in raft's own values."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from google.protobuf.message import Message

from ottla.model.errors import ErrorCode, RefusedError
from ottla.raft.messages import Request, Response
from ottla.raft.voters import VoterEndpoint
from ottla.rpc.method import MethodHandler
from ottla.rpc.quorum_codec import CONVERSATIONS, Conversation
from ottla.rpc.rpc_seam import Rpc, join_address


class QuorumClient:
    """Sends raft's requests to the addresses raft names."""

    def __init__(self, runtime: Rpc) -> None:
        self._runtime = runtime

    async def ask(
        self, endpoints: Sequence[VoterEndpoint], request: Request, *, timeout_ms: int
    ) -> Response:
        """Send a request and return its answer; RefusedError when there was none."""
        if not endpoints:
            raise RefusedError(ErrorCode.NETWORK_EXCEPTION, "no address is known")
        conversation = CONVERSATIONS[type(request)]
        channel = await self._runtime.channel(join_address(endpoints[0].host, endpoints[0].port))
        answer = await channel.call(
            conversation.method, conversation.write_request(request), deadline_ms=timeout_ms
        )
        response: Response = conversation.read_response(answer)
        return response


def quorum_handlers(
    answer: Callable[[Request], Awaitable[Response]],
) -> list[MethodHandler[Any, Any]]:
    """Return the server's side of the five conversations, all answered by one function."""
    return [_handler(conversation, answer) for conversation in CONVERSATIONS.values()]


def _handler(
    conversation: Conversation[Any, Any], answer: Callable[[Request], Awaitable[Response]]
) -> MethodHandler[Any, Any]:
    async def answer_message(message: Message) -> Message:
        return conversation.write_response(await answer(conversation.read_request(message)))

    return MethodHandler(conversation.method, answer_message)
