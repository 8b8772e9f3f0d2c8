"""Remote procedures: gRPC's and the world's pass the same contract."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from google.protobuf.wrappers_pb2 import StringValue
from trio.testing import MockClock

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.trace import Trace
from ottla.jepsen.world.whole.net.network import SimulatedNetwork
from ottla.jepsen.world.whole.net.rpc import MachineRpc, RpcExchange, open_machine_rpc
from ottla.model.errors import ErrorCode, RefusedError
from ottla.node.local.local_nodes_driver import free_port
from ottla.rpc.method import MethodHandler
from ottla.rpc.rpc_driver import open_rpc_runtime
from tests.jepsen.world.rpc_conformance import CHECKS, ECHO, Check, Pair


@asynccontextmanager
async def two_machines() -> AsyncIterator[tuple[SimulatedNetwork, MachineRpc, MachineRpc]]:
    """Open two machines' procedures; `a` listens."""
    network = SimulatedNetwork(Chance(1), Trace(), RareStates())
    exchange = RpcExchange()
    for name in "ab":
        network.on_start(network.host(name))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(network.run)
        async with (
            open_machine_rpc(network, exchange, network.host("a")) as server,
            open_machine_rpc(network, exchange, network.host("b")) as client,
        ):
            yield network, server, client
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_grpc_keeps(check: Check) -> None:
    async with open_rpc_runtime() as server, open_rpc_runtime() as client:
        await check(Pair(server, client, "127.0.0.1", free_port()))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_world_keeps(check: Check, autojump_clock: MockClock) -> None:
    async with two_machines() as (_, server, client):
        await check(Pair(server, client, "a", 1))


async def test_a_call_over_a_cut_link_waits_for_its_end(autojump_clock: MockClock) -> None:
    async def echo(request: StringValue) -> StringValue:
        return request

    async with two_machines() as (network, server, client):
        port = await server.serve("a", 0, [MethodHandler(ECHO, echo)])
        peer = await client.channel(f"a:{port}")
        network.cut("b", "a")
        with pytest.raises(RefusedError) as late:
            await peer.call(ECHO, StringValue(), deadline_ms=500)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(heal_later, network)
            await peer.call(ECHO, StringValue(value="x"), deadline_ms=2_000)
    assert late.value.code is ErrorCode.REQUEST_TIMED_OUT


async def heal_later(network: SimulatedNetwork) -> None:
    await trio.sleep(1)
    network.heal()


async def test_a_call_may_be_carried_out_and_its_answer_lost(autojump_clock: MockClock) -> None:
    carried_out = 0

    async def count(request: StringValue) -> StringValue:
        nonlocal carried_out
        carried_out += 1
        network.quality.break_p = 1.0
        return request

    async with two_machines() as (network, server, client):
        port = await server.serve("a", 0, [MethodHandler(ECHO, count)])
        peer = await client.channel(f"a:{port}")
        with pytest.raises(RefusedError) as lost:
            await peer.call(ECHO, StringValue(), deadline_ms=2_000)
    assert lost.value.code is ErrorCode.NETWORK_EXCEPTION
    assert carried_out == 1


@pytest.mark.parametrize("is_silent", [False, True])
async def test_a_process_that_dies_hangs_up_but_a_machine_without_power_says_nothing(
    is_silent: bool, autojump_clock: MockClock
) -> None:
    async def never(request: StringValue) -> StringValue:
        network.on_end(network.host("a"), is_silent=is_silent)
        await trio.sleep_forever()
        return request

    async with two_machines() as (network, server, client):
        port = await server.serve("a", 0, [MethodHandler(ECHO, never)])
        peer = await client.channel(f"a:{port}")
        with pytest.raises(RefusedError) as refusal:
            await peer.call(ECHO, StringValue(), deadline_ms=2_000)
    expected = ErrorCode.REQUEST_TIMED_OUT if is_silent else ErrorCode.NETWORK_EXCEPTION
    assert refusal.value.code is expected
