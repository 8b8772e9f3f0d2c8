"""The endpoints of a quorum member, and the one among them that works."""

import pytest

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NO_OFFSET, ZERO_UUID, Epoch, NodeId, Offset
from ottla.raft.messages import FetchRequest, FetchResponse, Request
from ottla.raft.voters import VoterEndpoint
from ottla.rpc.quorum_client import QuorumClient, quorum_handlers
from ottla.rpc.rpc_driver import RpcRuntime, open_rpc_runtime

FETCH = FetchRequest(
    cluster_id="cluster",
    replica_id=NodeId(1),
    replica_directory_id=ZERO_UUID,
    current_leader_epoch=Epoch(1),
    fetch_offset=Offset(0),
    last_fetched_epoch=Epoch(0),
    high_watermark=NO_OFFSET,
    wait_ms_max=0,
    bytes_max=1,
)
DEAD = VoterEndpoint("CONTROLLER", "127.0.0.1", 1)


async def serve(runtime: RpcRuntime, error: ErrorCode) -> VoterEndpoint:
    async def answer(_request: Request) -> FetchResponse:
        return FetchResponse(error=error, leader_id=NodeId(2), leader_epoch=Epoch(1))

    port = await runtime.serve("127.0.0.1", 0, quorum_handlers(answer))
    return VoterEndpoint("CONTROLLER", "127.0.0.1", port)


async def test_after_a_dead_endpoint_the_next_one_is_used_and_kept() -> None:
    async with open_rpc_runtime() as runtime:
        live = await serve(runtime, ErrorCode.NONE)
        client = QuorumClient(runtime)
        with pytest.raises(RefusedError):
            await client.ask((DEAD, live), FETCH, timeout_ms=60_000)
        for _ in range(2):
            response = await client.ask((DEAD, live), FETCH, timeout_ms=60_000)
            assert response.error is ErrorCode.NONE


async def test_an_endpoint_that_another_member_has_got_is_left() -> None:
    """Two controllers may exchange their addresses, while the voter set has the old ones."""
    async with open_rpc_runtime() as runtime:
        other = await serve(runtime, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        right = await serve(runtime, ErrorCode.NONE)
        client = QuorumClient(runtime)
        errors = [
            (await client.ask((other, right), FETCH, timeout_ms=60_000)).error for _ in range(3)
        ]
        assert errors == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE, ErrorCode.NONE]
