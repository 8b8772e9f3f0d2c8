"""Client and handlers of the quorum's gRPC requests. Callers use the message classes of
`ottla.raft`, not protobuf."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from google.protobuf.message import Message

from ottla.model.errors import ErrorCode, RefusedError
from ottla.raft.messages import Request, Response
from ottla.raft.voters import VoterEndpoint
from ottla.rpc.method import MethodHandler
from ottla.rpc.quorum_codec import QUORUM_METHODS, QuorumMethod
from ottla.rpc.rpc_seam import Rpc, join_address

MEMBERS_MAX = 1_000
"""Maximum number of quorum members for which the last working endpoint is remembered."""

OF_ANOTHER_MEMBER = frozenset((ErrorCode.INVALID_VOTER_KEY, ErrorCode.NOT_LEADER_OR_FOLLOWER))
"""Error codes that indicate that another quorum member now has the called member's address. A
leader that has just resigned also responds with these codes. Its other endpoints are then called
unnecessarily."""


class QuorumClient:
    """Sender of raft's requests to the endpoints of other quorum members."""

    def __init__(self, runtime: Rpc) -> None:
        self._runtime = runtime
        self._working: dict[tuple[VoterEndpoint, ...], int] = {}
        """Index of the endpoint for the next request to each quorum member. The key is the tuple of
        the member's endpoints, if it has several."""

    async def ask(
        self, endpoints: Sequence[VoterEndpoint], request: Request, *, timeout_ms: int
    ) -> Response:
        """Send a request of raft to one of a quorum member's endpoints, and return the response.
        Raises RefusedError if the member has no endpoint or does not respond.

        The endpoint that last answered is used first. After a failure, the next request uses the
        next endpoint. A response from another member at that endpoint also counts as a failure.
        """
        if not endpoints:
            raise RefusedError(ErrorCode.NETWORK_EXCEPTION, "no address is known")
        method = QUORUM_METHODS[type(request)]
        known = tuple(endpoints)
        at = self._working.get(known, 0)
        channel = await self._runtime.channel(join_address(known[at].host, known[at].port))
        try:
            answer = await channel.call(
                method.method, method.write_request(request), deadline_ms=timeout_ms
            )
        except RefusedError:
            self._leave(known, at)
            raise
        response: Response = method.read_response(answer)
        if response.error in OF_ANOTHER_MEMBER:
            self._leave(known, at)
        return response

    def _leave(self, endpoints: tuple[VoterEndpoint, ...], at: int) -> None:
        """Switch to the next endpoint of a quorum member, if the member has several."""
        if len(endpoints) > 1:
            if len(self._working) >= MEMBERS_MAX:
                self._working.clear()
            self._working[endpoints] = (at + 1) % len(endpoints)


def quorum_handlers(
    answer: Callable[[Request], Awaitable[Response]],
) -> list[MethodHandler[Any, Any]]:
    """Return the gRPC handlers of the quorum's methods. All of them pass their requests to
    `answer`."""
    return [_handler(method, answer) for method in QUORUM_METHODS.values()]


def _handler(
    method: QuorumMethod[Any, Any], answer: Callable[[Request], Awaitable[Response]]
) -> MethodHandler[Any, Any]:
    async def answer_message(message: Message) -> Message:
        return method.write_response(await answer(method.read_request(message)))

    return MethodHandler(method.method, answer_message)
