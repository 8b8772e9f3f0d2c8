"""The search for the active controller among all controllers."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest
import trio

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import ZERO_UUID, NodeId
from ottla.proto import controller_pb2 as pb
from ottla.raft.voters import QuorumIdentity, Voter, VoterEndpoint, VoterSet
from ottla.rpc import controller_client
from ottla.rpc import controller_methods as methods
from ottla.rpc.controller_client import ControllerClient, addresses_of
from ottla.rpc.method import MethodHandler
from ottla.rpc.rpc_driver import RpcRuntime, open_rpc_runtime
from ottla.rpc.status import LostCallError

DEAD_PORT = 1


class Address(NamedTuple):
    id: NodeId
    host: str
    port: int


async def serve(
    runtime: RpcRuntime, node_id: int, code_of: Callable[[], ErrorCode], asked: list[int]
) -> Address:
    async def heartbeat(_request: pb.HeartbeatRequest) -> pb.HeartbeatResponse:
        asked.append(node_id)
        code = code_of()
        if code is not ErrorCode.NONE:
            raise RefusedError(code)
        return pb.HeartbeatResponse(is_caught_up=True)

    port = await runtime.serve("127.0.0.1", 0, [MethodHandler(methods.HEARTBEAT, heartbeat)])
    return Address(NodeId(node_id), "127.0.0.1", port)


async def test_the_leader_that_is_known_is_asked_first() -> None:
    asked: list[int] = []
    async with open_rpc_runtime() as runtime:
        voters = [
            await serve(runtime, node_id, lambda: ErrorCode.NONE, asked) for node_id in (1, 2, 3)
        ]
        client = ControllerClient(runtime, voters, lambda: NodeId(3))
        await client.heartbeat(pb.HeartbeatRequest(), deadline_ms=60_000)
    assert asked == [3]


async def test_a_dead_or_inactive_controller_is_passed_over_and_then_left_alone() -> None:
    asked: list[int] = []
    async with open_rpc_runtime() as runtime:
        voters = [
            Address(NodeId(1), "127.0.0.1", DEAD_PORT),
            await serve(runtime, 2, lambda: ErrorCode.NOT_CONTROLLER, asked),
            await serve(runtime, 3, lambda: ErrorCode.NONE, asked),
        ]
        client = ControllerClient(runtime, voters, lambda: None)
        for _ in range(2):
            answer = await client.heartbeat(pb.HeartbeatRequest(), deadline_ms=60_000)
            assert answer.is_caught_up
    assert asked == [2, 3, 3]


async def test_a_dead_address_of_a_voter_gives_way_to_its_next_one() -> None:
    asked: list[int] = []
    async with open_rpc_runtime() as runtime:
        real = await serve(runtime, 1, lambda: ErrorCode.NONE, asked)
        client = ControllerClient(
            runtime,
            [Address(NodeId(1), "127.0.0.1", DEAD_PORT)],
            lambda: NodeId(1),
            lambda: {NodeId(1): (f"127.0.0.1:{DEAD_PORT}", f"127.0.0.1:{real.port}")},
        )
        for _ in range(2):
            await client.heartbeat(pb.HeartbeatRequest(), deadline_ms=60_000)
    assert asked == [1, 1]


async def test_a_controller_that_only_the_voters_name_is_asked() -> None:
    asked: list[int] = []
    async with open_rpc_runtime() as runtime:
        old = await serve(runtime, 1, lambda: ErrorCode.NOT_CONTROLLER, asked)
        new = await serve(runtime, 2, lambda: ErrorCode.NONE, asked)
        client = ControllerClient(
            runtime, [old], lambda: NodeId(2), lambda: {NodeId(2): (f"127.0.0.1:{new.port}",)}
        )
        await client.heartbeat(pb.HeartbeatRequest(), deadline_ms=60_000)
    assert asked == [2]


async def test_the_address_of_a_voter_is_used_before_the_one_in_the_settings() -> None:
    asked: list[int] = []
    async with open_rpc_runtime() as runtime:
        old = await serve(runtime, 1, lambda: ErrorCode.NONE, asked)
        new = await serve(runtime, 2, lambda: ErrorCode.NONE, asked)
        client = ControllerClient(
            runtime, [old], lambda: NodeId(1), lambda: {NodeId(1): (f"127.0.0.1:{new.port}",)}
        )
        await client.heartbeat(pb.HeartbeatRequest(), deadline_ms=60_000)
    assert asked == [2]


def test_a_voter_has_its_addresses_in_the_voter_set_before_those_in_the_settings() -> None:
    at = VoterEndpoint("CONTROLLER", "log", 1)
    in_settings = VoterEndpoint("CONTROLLER", "::1", 2)
    voters = VoterSet((Voter(id=NodeId(1), endpoints=(at,)), Voter(id=NodeId(2))))
    identity = QuorumIdentity(
        node_id=NodeId(5),
        directory_id=ZERO_UUID,
        cluster_id="cluster",
        voters=voters,
        configured=(Voter(id=NodeId(1), endpoints=(in_settings,)),),
    )
    assert addresses_of(identity) == {NodeId(1): ("log:1", "[::1]:2")}


async def test_a_controller_that_becomes_active_is_found_in_time() -> None:
    asked: list[int] = []
    async with open_rpc_runtime() as runtime:

        def code() -> ErrorCode:
            return ErrorCode.NONE if len(asked) > 3 else ErrorCode.NOT_CONTROLLER

        client = ControllerClient(runtime, [await serve(runtime, 1, code, asked)], lambda: None)
        with trio.fail_after(60):
            await client.heartbeat(pb.HeartbeatRequest(), deadline_ms=60_000)
    assert len(asked) == 4


async def test_a_node_that_was_asked_too_early_is_asked_first_once_it_is_known_to_lead() -> None:
    asked: list[int] = []
    leader: list[NodeId] = []

    def code_of_3() -> ErrorCode:
        if not leader:
            leader.append(NodeId(3))
            return ErrorCode.NOT_CONTROLLER
        return ErrorCode.NONE

    async with open_rpc_runtime() as runtime:
        voters = [
            await serve(runtime, 3, code_of_3, asked),
            await serve(runtime, 2, lambda: ErrorCode.NOT_CONTROLLER, asked),
            await serve(runtime, 1, lambda: ErrorCode.NOT_CONTROLLER, asked),
        ]
        client = ControllerClient(runtime, voters, lambda: leader[0] if leader else None)
        await client.heartbeat(pb.HeartbeatRequest(), deadline_ms=60_000)

    assert asked == [3, 3]


async def test_a_refusal_is_not_asked_for_twice() -> None:
    asked: list[int] = []
    async with open_rpc_runtime() as runtime:
        voter = await serve(runtime, 1, lambda: ErrorCode.STALE_BROKER_EPOCH, asked)
        client = ControllerClient(runtime, [voter], lambda: None)
        with pytest.raises(RefusedError) as caught:
            await client.heartbeat(pb.HeartbeatRequest(), deadline_ms=60_000)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
    assert asked == [1]


async def test_without_a_controller_the_deadline_brings_one_clear_sentence() -> None:
    async with open_rpc_runtime() as runtime:
        dead = Address(NodeId(1), "127.0.0.1", DEAD_PORT)
        client = ControllerClient(runtime, [dead], lambda: None)
        with trio.fail_after(60), pytest.raises(RefusedError) as caught:
            await client.heartbeat(pb.HeartbeatRequest(), deadline_ms=100)
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert "no controller was active within 100 ms" in caught.value.message


async def test_a_controller_that_hangs_is_left_as_soon_as_another_is_known_to_lead() -> None:
    """A paused process keeps its connections; its requests would wait for their whole deadline."""
    leader = NodeId(1)
    is_asked = trio.Event()

    async def hang(_request: pb.HeartbeatRequest) -> pb.HeartbeatResponse:
        is_asked.set()
        await trio.sleep_forever()
        raise AssertionError

    async with open_rpc_runtime() as runtime:
        port = await runtime.serve("127.0.0.1", 0, [MethodHandler(methods.HEARTBEAT, hang)])
        voters = [
            Address(NodeId(1), "127.0.0.1", port),
            await serve(runtime, 2, lambda: ErrorCode.NONE, []),
        ]
        client = ControllerClient(runtime, voters, lambda: leader)
        answers: list[pb.HeartbeatResponse] = []

        async def call() -> None:
            answers.append(await client.heartbeat(pb.HeartbeatRequest(), deadline_ms=240_000))

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(call)
                await is_asked.wait()
                leader = NodeId(2)
    assert answers[0].is_caught_up


async def forwarder(
    runtime: RpcRuntime, node_id: int, asked: list[int], answer: Callable[[], Awaitable[None]]
) -> Address:
    async def forward(_request: pb.ForwardRequest) -> pb.ForwardResponse:
        asked.append(node_id)
        await answer()
        return pb.ForwardResponse(body=b"done")

    port = await runtime.serve("127.0.0.1", 0, [MethodHandler(methods.FORWARD, forward)])
    return Address(NodeId(node_id), "127.0.0.1", port)


async def test_a_clients_request_that_cost_a_controller_goes_to_no_other() -> None:
    asked: list[int] = []

    async def refuse() -> None:
        raise RefusedError(ErrorCode.NOT_CONTROLLER)

    async def end_the_process() -> None:
        raise LostCallError(ErrorCode.NETWORK_EXCEPTION, "Socket closed")

    async def done() -> None:
        pass

    class Peers:
        """The runtime, except that a handler's failure reaches the caller as a broken
        connection."""

        def __init__(self, runtime: RpcRuntime) -> None:
            self._runtime = runtime

        async def channel(self, address: str) -> "Peers":
            self._channel = await self._runtime.channel(address)
            return self

        async def call(self, *arguments: Any, **named: Any) -> Any:
            try:
                return await self._channel.call(*arguments, **named)
            except RefusedError as refusal:
                if refusal.message == "Socket closed":
                    raise LostCallError(refusal.code, refusal.message) from None
                raise

    async with open_rpc_runtime() as runtime:
        voters = [
            Address(NodeId(1), "127.0.0.1", DEAD_PORT),
            await forwarder(runtime, 2, asked, refuse),
            await forwarder(runtime, 3, asked, end_the_process),
            await forwarder(runtime, 4, asked, done),
        ]
        peers: Any = Peers(runtime)
        client = ControllerClient(peers, voters, lambda: None)
        with pytest.raises(RefusedError) as caught:
            await client.forward(pb.ForwardRequest(), deadline_ms=60_000)
    assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert asked == [2, 3]


async def test_a_clients_request_is_left_unanswered_by_two_controllers_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controller_client, "ATTEMPT_TIMEOUT_MS", 50)
    asked: list[int] = []
    async with open_rpc_runtime() as runtime:
        voters = [
            await forwarder(runtime, node_id, asked, trio.sleep_forever) for node_id in (1, 2, 3)
        ]
        client = ControllerClient(runtime, voters, lambda: None)
        with pytest.raises(RefusedError) as caught:
            await client.forward(pb.ForwardRequest(), deadline_ms=60_000)
    assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert asked == [1, 2]
