"""A broker's calls to the active controller, wherever it is at the moment.

The leader that the local quorum member knows is asked first, else the voters in turn.  A node that
is not the active controller, or cannot be reached, is passed over, with back-off, until the
deadline.  A request whose answer was lost is sent again too: it may then meet its own effect (a
topic that exists already), as with Kafka.

A client's request is another matter: it is a stranger's, and may be why a controller ended or does
not answer.  One that was under way when the connection broke is not sent again, and one that was
not answered in time goes to one more controller at most; its client hears that the outcome is not
known.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import trio

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId
from ottla.proto import controller_pb2 as pb
from ottla.rpc import controller_methods as methods
from ottla.rpc.method import Request, Response, RpcMethod
from ottla.rpc.quorum_codec import error_code_of
from ottla.rpc.rpc_seam import Rpc, join_address
from ottla.rpc.status import LostCallError

RETRY_BACKOFF_MS_FIRST = 10
RETRY_BACKOFF_MS_MAX = 100
"""Lower finds a new leader sooner; higher spares a quorum that is electing one."""

ATTEMPT_TIMEOUT_MS = 5_000
"""How long one node may take to answer before the next is tried."""


LEADER_CHECK_MS = 100
"""How often a call looks whether another node leads by now; lower costs turns of the loop."""


class VoterAddress(Protocol):
    """A voter and where its gRPC listens (the settings' `Voter`)."""

    @property
    def id(self) -> NodeId:
        """Return the voter's id."""
        ...

    @property
    def host(self) -> str:
        """Return its host."""
        ...

    @property
    def port(self) -> int:
        """Return its port."""
        ...


class ControllerClient:
    """Calls the active controller; every method raises RefusedError with the answer's code."""

    def __init__(
        self,
        runtime: Rpc,
        voters: Sequence[VoterAddress],
        leader_id: Callable[[], NodeId | None],
    ) -> None:
        assert voters
        self._runtime = runtime
        self._addresses = {voter.id: join_address(voter.host, voter.port) for voter in voters}
        self._leader_id = leader_id
        self._last_answered: NodeId | None = None

    async def register(
        self, request: pb.RegisterRequest, *, deadline_ms: int
    ) -> pb.RegisterResponse:
        """Register this broker; the answer holds its epoch."""
        return await self._call(methods.REGISTER, request, deadline_ms)

    async def heartbeat(
        self, request: pb.HeartbeatRequest, *, deadline_ms: int
    ) -> pb.HeartbeatResponse:
        """Say that this broker lives, and learn whether it may serve."""
        return await self._call(methods.HEARTBEAT, request, deadline_ms)

    @property
    def leader_id(self) -> NodeId | None:
        """The controller that is known to lead, if any is."""
        node_id = self._leader_id()
        return node_id if node_id in self._addresses else None

    async def attend(self, request: pb.AttendRequest, *, at: NodeId) -> None:
        """Keep a call open at one controller, until it ends it."""
        channel = await self._runtime.channel(self._addresses[at])
        await channel.call(methods.ATTEND, request, deadline_ms=2 * methods.ATTEND_MS)

    async def alter_partition(
        self, request: pb.AlterPartitionRequest, *, deadline_ms: int
    ) -> pb.AlterPartitionResponse:
        """Propose new in-sync replicas of partitions this broker leads."""
        return await self._call(methods.ALTER_PARTITION, request, deadline_ms)

    async def allocate_producer_ids(
        self, request: pb.AllocateProducerIdsRequest, *, deadline_ms: int
    ) -> pb.AllocateProducerIdsResponse:
        """Take a block of producer ids."""
        return await self._call(methods.ALLOCATE_PRODUCER_IDS, request, deadline_ms)

    async def assign_replicas_to_dirs(
        self, request: pb.AssignReplicasToDirsRequest, *, deadline_ms: int
    ) -> pb.AssignReplicasToDirsResponse:
        """Say in which directories this broker's replicas lie."""
        return await self._call(methods.ASSIGN_REPLICAS_TO_DIRS, request, deadline_ms)

    async def unregister(
        self, request: pb.UnregisterRequest, *, deadline_ms: int
    ) -> pb.UnregisterResponse:
        """Forget a broker."""
        return await self._call(methods.UNREGISTER, request, deadline_ms)

    async def forward(self, request: pb.ForwardRequest, *, deadline_ms: int) -> pb.ForwardResponse:
        """Pass a client's request on, in Kafka's encoding.

        Raises RefusedError with UNKNOWN_SERVER_ERROR if it may have cost a controller.
        """
        losses = Losses()
        return await self._call(methods.FORWARD, request, deadline_ms, losses)

    async def _call(
        self,
        method: RpcMethod[Request, Response],
        request: Request,
        deadline_ms: int,
        losses: "Losses | None" = None,
    ) -> Response:
        ends_at = trio.current_time() + deadline_ms / 1000
        backoff_ms = RETRY_BACKOFF_MS_FIRST
        tried: set[NodeId] = set()
        known = self._leader_id()
        while True:
            if self._leader_id() != known:
                known = self._leader_id()
                tried.clear()  # whoever was asked too early may lead by now
            node_id = self._next_node(tried)
            left_ms = int((ends_at - trio.current_time()) * 1000)
            try:
                return await self._attempt_while_it_leads(method, request, node_id, left_ms)
            except RefusedError as refusal:
                if refusal.code not in TRY_ANOTHER:
                    raise
                if losses is not None:
                    losses.note(refusal)
                if trio.current_time() + backoff_ms / 1000 >= ends_at:
                    raise _timed_out(refusal, deadline_ms) from refusal
            self._last_answered = None
            tried.add(node_id)
            await trio.sleep(backoff_ms / 1000)
            backoff_ms = min(2 * backoff_ms, RETRY_BACKOFF_MS_MAX)

    async def _attempt_while_it_leads(
        self,
        method: RpcMethod[Request, Response],
        request: Request,
        node_id: NodeId,
        left_ms: int,
    ) -> Response:
        """Ask one node, and leave it as soon as another is known to lead: it may be paused."""
        answer: Response | None = None
        refusal = RefusedError(ErrorCode.REQUEST_TIMED_OUT, "another controller leads by now")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._leave_when_another_leads, node_id, nursery.cancel_scope)
            try:
                answer = await self._attempt(method, request, node_id, left_ms)
            except RefusedError as error:
                refusal = error
            nursery.cancel_scope.cancel()
        if answer is None:
            raise refusal
        self._last_answered = node_id
        return answer

    async def _leave_when_another_leads(self, node_id: NodeId, scope: trio.CancelScope) -> None:
        known = self._leader_id()
        while self._leader_id() in (None, node_id, known):
            await trio.sleep(LEADER_CHECK_MS / 1000)
        scope.cancel()

    async def _attempt(
        self,
        method: RpcMethod[Request, Response],
        request: Request,
        node_id: NodeId,
        left_ms: int,
    ) -> Response:
        channel = await self._runtime.channel(self._addresses[node_id])
        timeout_ms = max(1, min(left_ms, ATTEMPT_TIMEOUT_MS))
        response = await channel.call(method, request, deadline_ms=timeout_ms)
        code = error_code_of(getattr(response, "error_code", 0))
        if code is not ErrorCode.NONE:
            raise RefusedError(code, getattr(response, "error_message", "") or None)
        return response

    def _next_node(self, tried: set[NodeId]) -> NodeId:
        """Return whom to ask: the known leader, whoever answered last, else each voter in turn."""
        for node_id in (self._leader_id(), self._last_answered):
            if node_id in self._addresses and node_id not in tried:
                return node_id
        if tried.issuperset(self._addresses):
            tried.clear()
        return next(node_id for node_id in self._addresses if node_id not in tried)


UNANSWERED_MAX = 2
"""Controllers that a stranger's request may find and not be answered by: one may be paused or cut
off, which the next leader makes good; with more, one request stops all controllers in turn."""


class Losses:
    """What a stranger's request may have cost so far."""

    __slots__ = ("_unanswered_count",)

    def __init__(self) -> None:
        self._unanswered_count = 0

    def note(self, refusal: RefusedError) -> None:
        """Note a try that failed.  Raises RefusedError if the request must not be sent again."""
        if isinstance(refusal, LostCallError):
            self._unanswered_count = UNANSWERED_MAX
        elif refusal.code is ErrorCode.REQUEST_TIMED_OUT:
            self._unanswered_count += 1
        if self._unanswered_count >= UNANSWERED_MAX:
            raise RefusedError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                "The controller went away, or fell silent, while it had this request; whether it "
                f"was carried out is not known ({refusal.message}).",
            ) from refusal


def _timed_out(last: RefusedError, deadline_ms: int) -> RefusedError:
    """Return the refusal of a deadline that passed: without a majority no controller is active."""
    return RefusedError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"no controller was active within {deadline_ms} ms; is a majority of the controllers"
        f" running? (the last one asked: {last.message})",
    )


TRY_ANOTHER = frozenset(
    {ErrorCode.NOT_CONTROLLER, ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT}
)
