"""Heartbeats of very many brokers to one active controller: the cost on the controller.

`python -m ottla.bench.performance.heartbeat_scale [BROKERS …]` runs the shipped controller on a
simulated machine and in virtual time. It registers the brokers, each of which sends a heartbeat
every two seconds for one minute, at its own moment.  It prints CPU times: of a registration, of a
heartbeat through the simulated network, of the controller's heartbeat handler alone, and of fencing
all brokers when they fall silent. The run ends with an error if a broker is fenced before that.

The simulation has no gRPC.  The last column includes the rest of the cost. It is the CPU time of a
process that only answers heartbeats over gRPC, on a loopback connection.
"""

import multiprocessing
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

import trio

from ottla.bench.processes import usage_of
from ottla.bench.tables import table_of
from ottla.jepsen.in_memory_controller import registration
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.walk.controller_host import ControllerHost, open_controller_host
from ottla.jepsen.world.whole.cluster import quiet_nodes
from ottla.jepsen.world.whole.loop import Loop, run_in_virtual_time
from ottla.proto import controller_pb2 as pb
from ottla.rpc.controller_methods import HEARTBEAT, REGISTER
from ottla.rpc.method import MethodHandler
from ottla.rpc.rpc_driver import open_rpc_runtime

BROKERS = (100, 1_000)
FIRST_BROKER = 1_000
"""Lowest broker id of the simulated brokers. It is above the ids of controllers."""
HEARTBEAT_S = 2.0
SESSION_S = 9.0
RUN_S = 60.0
DIRECT_COUNT = 20_000
"""Number of heartbeats that are passed to the controller's handler directly, without the simulated
network."""
CALL_COUNT = 5_000
CALLERS = 32
US_PER_S = 1_000_000
SETTINGS = {"broker.session.timeout.ms": str(int(1_000 * SESSION_S))}


async def register(host: ControllerHost, broker: int) -> pb.HeartbeatRequest:
    """Register and unfence a simulated broker. Returns the heartbeat request that the broker will
    send."""
    request = registration(broker)
    request.cluster_id = host.cluster_id
    epoch = (await host.call(REGISTER, request)).broker_epoch
    heartbeat = pb.HeartbeatRequest(
        broker_id=broker, broker_epoch=epoch, current_metadata_offset=epoch
    )
    await host.call(HEARTBEAT, heartbeat)
    return heartbeat


async def beat(host: ControllerHost, heartbeat: pb.HeartbeatRequest, first_s: float) -> None:
    """Send a simulated broker's heartbeat every two seconds for a minute, beginning after `first_s`
    seconds. Raises AssertionError if the broker is fenced."""
    await trio.sleep(first_s)
    ends_at_s = trio.current_time() + RUN_S
    while trio.current_time() < ends_at_s:
        response = await host.call(HEARTBEAT, heartbeat)
        assert not response.is_fenced, f"broker {heartbeat.broker_id} is fenced"
        await trio.sleep(HEARTBEAT_S)


async def simulated(loop: Loop, count: int) -> dict[str, Any]:
    """Run the simulation with `count` brokers. Returns the CPU times by name, in microseconds per
    registration or heartbeat and in seconds for the fencing of all brokers."""
    async with open_controller_host(loop, Chance(1), SETTINGS) as host:
        loop.on_step = None  # The checks of the simulation are not part of the cost.
        began_s = time.thread_time()
        heartbeats = [await register(host, FIRST_BROKER + at) for at in range(count)]
        registered_s = time.thread_time() - began_s
        began_s = time.thread_time()
        async with trio.open_nursery() as nursery:
            for at, heartbeat in enumerate(heartbeats):
                nursery.start_soon(beat, host, heartbeat, HEARTBEAT_S * at / count)
        beaten_s = time.thread_time() - began_s
        controller = host.controller
        assert controller is not None
        began_s = time.thread_time()
        for at in range(DIRECT_COUNT):
            await controller.heartbeat(heartbeats[at % count])
        direct_s = time.thread_time() - began_s
        began_s = time.thread_time()
        while any(not one.is_fenced for one in controller.image.brokers.values()):
            await trio.sleep(0.1)
        fenced_s = time.thread_time() - began_s
    return {
        "brokers": count,
        "register_us": round(US_PER_S * registered_s / count),
        "heartbeat_us": round(US_PER_S * beaten_s / (count * RUN_S / HEARTBEAT_S)),
        "handler_us": round(US_PER_S * direct_s / DIRECT_COUNT, 1),
        "core_percent": round(100 * beaten_s / RUN_S, 2),
        "fence_all_s": round(fenced_s, 2),
    }


def serve(pipe: Connection) -> None:
    """Answer heartbeats over gRPC until the pipe is closed. Sends the server's port through the
    pipe first."""

    async def heartbeat(_request: pb.HeartbeatRequest) -> pb.HeartbeatResponse:
        return pb.HeartbeatResponse(is_caught_up=True)

    async def run() -> None:
        async with open_rpc_runtime() as runtime:
            handlers = [MethodHandler(HEARTBEAT, heartbeat)]
            pipe.send(await runtime.serve("127.0.0.1", 0, handlers))
            await trio.to_thread.run_sync(pipe.poll, None)

    trio.run(run)


async def call(port: int) -> None:
    """Send heartbeats over gRPC to a port of this machine from several tasks at once."""
    async with open_rpc_runtime() as runtime, trio.open_nursery() as nursery:
        channel = await runtime.channel(f"127.0.0.1:{port}")
        request = pb.HeartbeatRequest(broker_id=1, broker_epoch=7, current_metadata_offset=7)

        async def work() -> None:
            for _ in range(CALL_COUNT // CALLERS):
                await channel.call(HEARTBEAT, request, deadline_ms=60_000)

        for _ in range(CALLERS):
            nursery.start_soon(work)


def grpc_us() -> float:
    """Return the CPU time in microseconds that a server spends on a heartbeat over gRPC."""
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    server = context.Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    pid = server.pid
    assert pid is not None
    port = ours.recv()
    trio.run(call, port)
    before = usage_of([pid])
    trio.run(call, port)
    used = usage_of([pid]).since(before)
    ours.send(None)
    server.join()
    return round(US_PER_S * (used.user_s + used.system_s) / CALL_COUNT)


def main(arguments: list[str]) -> None:
    """Measure the heartbeats of each given number of brokers. Prints one line of results for each
    number."""
    rows = []
    over_grpc_us = grpc_us()
    for count in [int(one) for one in arguments] or BROKERS:
        with quiet_nodes():

            async def run(loop: Loop, count: int = count) -> dict[str, Any]:
                return await simulated(loop, count)

            rows.append({**run_in_virtual_time(run, seed=1), "grpc_us": over_grpc_us})
    print(table_of([name.upper() for name in rows[0]], [list(row.values()) for row in rows]))


if __name__ == "__main__":
    main(sys.argv[1:])
