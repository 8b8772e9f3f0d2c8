"""Calls of a broker or controller to the active controller. The client finds the active controller
itself.

The client first calls the leader that the local quorum member knows, then the voters in turn. It
skips nodes that are unreachable or not the active controller, and retries with back-off until the
deadline. It also repeats a request whose response was lost. As in Kafka, a repeated request may
then fail because of its own effect, such as a topic that exists already.

A forwarded client request is untrusted: it may itself be the reason why a controller crashed or
does not respond. Such a request is not repeated if the connection broke during the call. After a
timeout it is sent to at most one more controller. The client then gets an error that does not
reveal whether the request took effect.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import trio

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId
from ottla.proto import controller_pb2 as pb
from ottla.raft.voters import QuorumIdentity
from ottla.rpc import controller_methods as methods
from ottla.rpc.method import Request, Response, RpcMethod
from ottla.rpc.quorum_codec import error_code_of
from ottla.rpc.rpc_seam import Rpc, join_address
from ottla.rpc.status import LostCallError

RETRY_BACKOFF_MS_FIRST = 10
RETRY_BACKOFF_MS_MAX = 100
"""Maximum delay in ms before the next attempt of a call to the active controller. With a smaller
delay, a new leader is found sooner. With a larger delay, fewer requests are sent to a quorum during
an election."""

ATTEMPT_TIMEOUT_MS = 5_000
"""Timeout in ms of one attempt to call the active controller. After a timeout, the next node is
called."""


LEADER_CHECK_MS = 100
"""Interval in ms at which a call in progress checks whether there is a new leader. A shorter
interval costs more event-loop iterations."""


class VoterAddress(Protocol):
    """Interface of a voter with its gRPC address. `Voter` in the settings implements it."""

    @property
    def id(self) -> NodeId:
        """Node id of the voter."""
        ...

    @property
    def host(self) -> str:
        """Host name or address of the voter."""
        ...

    @property
    def port(self) -> int:
        """Port of the voter's gRPC listener."""
        ...


def addresses_of(identity: QuorumIdentity) -> dict[NodeId, tuple[str, ...]]:
    """Return the addresses of each voter by node id, in the order in which they are tried. Voters
    without an address are left out."""
    found = ((voter.id, identity.addresses_of(voter)) for voter in identity.voters)
    return {
        node_id: tuple(join_address(one.host, one.port) for one in endpoints)
        for node_id, endpoints in found
        if endpoints
    }


class ControllerClient:
    """Client of the active controller. All methods raise RefusedError, with the error code of the
    response, if the request is refused."""

    def __init__(
        self,
        runtime: Rpc,
        voters: Sequence[VoterAddress],
        leader_id: Callable[[], NodeId | None],
        quorum_addresses: Callable[[], Mapping[NodeId, Sequence[str]]] = dict,
    ) -> None:
        assert voters
        self._runtime = runtime
        self._configured = {voter.id: join_address(voter.host, voter.port) for voter in voters}
        self._quorum_addresses = quorum_addresses
        self._failures: dict[NodeId, int] = {}
        """Number of calls to each controller that failed without a refusal, by node id. Each
        failure makes the next call use the controller's next address."""
        self._leader_id = leader_id
        self._last_answered: NodeId | None = None

    async def register(
        self, request: pb.RegisterRequest, *, deadline_ms: int
    ) -> pb.RegisterResponse:
        """Register this broker at the active controller, and return the response with its broker
        epoch."""
        return await self._call(methods.REGISTER, request, deadline_ms)

    async def heartbeat(
        self, request: pb.HeartbeatRequest, *, deadline_ms: int
    ) -> pb.HeartbeatResponse:
        """Report to the active controller that this broker is alive. The response states whether
        the broker is unfenced."""
        return await self._call(methods.HEARTBEAT, request, deadline_ms)

    @property
    def _addresses(self) -> dict[NodeId, str]:
        """Address for the next call to each controller, by node id. If the voter is in the metadata
        log, it is one of the voter's endpoints there, otherwise the address in the settings."""
        voters = self._quorum_addresses()
        found = {id_: each[self._failures.get(id_, 0) % len(each)] for id_, each in voters.items()}
        return {**found, **self._configured, **found}

    @property
    def leader_id(self) -> NodeId | None:
        """Node id of the leader that the local quorum member knows, or None if the leader or its
        address is unknown."""
        node_id = self._leader_id()
        return node_id if node_id in self._addresses else None

    async def attend(self, request: pb.AttendRequest, *, at: NodeId) -> None:
        """Make an Attend call to the controller `at`, and wait until the call ends. The controller
        keeps the call open to detect the end of this process."""
        channel = await self._runtime.channel(self._addresses[at])
        await channel.call(methods.ATTEND, request, deadline_ms=2 * methods.ATTEND_MS)

    async def alter_partition(
        self, request: pb.AlterPartitionRequest, *, deadline_ms: int
    ) -> pb.AlterPartitionResponse:
        """Propose new in-sync replicas to the active controller, for partitions that this broker
        leads. Returns the controller's decision on each partition."""
        return await self._call(methods.ALTER_PARTITION, request, deadline_ms)

    async def allocate_producer_ids(
        self, request: pb.AllocateProducerIdsRequest, *, deadline_ms: int
    ) -> pb.AllocateProducerIdsResponse:
        """Allocate and return a block of producer ids for this broker."""
        return await self._call(methods.ALLOCATE_PRODUCER_IDS, request, deadline_ms)

    async def assign_replicas_to_dirs(
        self, request: pb.AssignReplicasToDirsRequest, *, deadline_ms: int
    ) -> pb.AssignReplicasToDirsResponse:
        """Report the log directories of this broker's replicas to the controller. Returns the
        controller's response."""
        return await self._call(methods.ASSIGN_REPLICAS_TO_DIRS, request, deadline_ms)

    async def unregister(
        self, request: pb.UnregisterRequest, *, deadline_ms: int
    ) -> pb.UnregisterResponse:
        """Request the deletion of a broker's registration from the active controller. Returns the
        controller's response."""
        return await self._call(methods.UNREGISTER, request, deadline_ms)

    async def register_controller(
        self, request: pb.RegisterControllerRequest, *, deadline_ms: int
    ) -> pb.RegisterControllerResponse:
        """Register this controller at the active controller. Returns its response."""
        return await self._call(methods.REGISTER_CONTROLLER, request, deadline_ms)

    async def forward(self, request: pb.ForwardRequest, *, deadline_ms: int) -> pb.ForwardResponse:
        """Forward a client's request in Kafka's encoding, and return the response.

        Raises RefusedError with UNKNOWN_SERVER_ERROR if the request itself may have crashed a
        controller.
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
                tried.clear()  # a voter that was called during the election may be the leader now
            node_id = self._next_node(tried)
            left_ms = int((ends_at - trio.current_time()) * 1000)
            try:
                return await self._attempt_while_it_leads(method, request, node_id, left_ms)
            except RefusedError as refusal:
                if refusal.code not in TRY_ANOTHER:
                    raise
                if refusal.code is not ErrorCode.NOT_CONTROLLER:
                    self._failures[node_id] = self._failures.get(node_id, 0) + 1
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
        """Call one node and return its response. Ends the attempt when another node becomes the
        known leader, because the called node may be paused. `left_ms` is the time in milliseconds
        until the deadline."""
        answer: Response | None = None
        refusal = RefusedError(ErrorCode.REQUEST_TIMED_OUT, "another controller leads by now")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._end_on_leader_change, node_id, nursery.cancel_scope)
            try:
                answer = await self._attempt(method, request, node_id, left_ms)
            except RefusedError as error:
                refusal = error
            nursery.cancel_scope.cancel()
        if answer is None:
            raise refusal
        self._last_answered = node_id
        return answer

    async def _end_on_leader_change(self, node_id: NodeId, scope: trio.CancelScope) -> None:
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
        """Return the id of the node to call next: the known leader. If no leader is known, return
        the last node that responded, or otherwise one voter after another. Nodes in `tried` are
        skipped.
        """
        addresses = self._addresses
        for node_id in (self._leader_id(), self._last_answered):
            if node_id in addresses and node_id not in tried:
                return node_id
        if tried.issuperset(addresses):
            tried.clear()
        return next(node_id for node_id in addresses if node_id not in tried)


UNANSWERED_MAX = 2
"""Maximum number of controllers that may fail to respond to one forwarded request. It is above one
because a controller may be paused or partitioned, and the next leader then responds. With a larger
number, one request could crash all controllers in turn."""


class Losses:
    """Attempts to forward one request that got no response. In each attempt, the request may have
    crashed or blocked a controller."""

    __slots__ = ("_unanswered_count",)

    def __init__(self) -> None:
        self._unanswered_count = 0

    def note(self, refusal: RefusedError) -> None:
        """Record a failed attempt to forward the request. Raises RefusedError if the request must
        not be sent again."""
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
    """Return the error for a request to the controller whose deadline has passed. The message
    advises the operator to check whether a majority of the controllers is running."""
    return RefusedError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"no controller was active within {deadline_ms} ms; is a majority of the controllers"
        f" running? (the last one asked: {last.message})",
    )


TRY_ANOTHER = frozenset(
    {ErrorCode.NOT_CONTROLLER, ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT}
)
