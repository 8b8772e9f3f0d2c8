"""The loop-hold oracle for a controller: the cost of one gRPC request for its loop and its process.

A lone controller with 2,000 partitions runs in the caller's trio loop; a thread sends it one
request after the other. `loop_cost` has the bounds. Decisions made outside the loop do not count as
the loop's.
"""

import gc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import trio

from ottla.controller.main_driver import serve_controller
from ottla.jepsen.fuzz.chance import FuzzRng
from ottla.model.ids import NodeId
from ottla.model.limits import KIB
from ottla.model.settings.controller import ControllerConfig
from ottla.model.settings.endpoints import ConfiguredVoter, ListenAddress
from ottla.node.local.local_nodes_driver import free_port
from ottla.rpc import controller_methods as methods
from ottla.rpc.cluster_id import CLUSTER_ID
from ottla.wire.apis import API
from tests.jepsen.oracles import grpc_requests
from tests.jepsen.oracles.grpc_target import GrpcCaller, fill
from tests.jepsen.oracles.loop_cost import Cost, Meter

LARGE_TOPIC_PARTITIONS = 1_000
CONTROLLER = NodeId(101)
QUIET_MS = 3_600_000
"""No broker is fenced, and no leader elected, except by a request."""


@dataclass(slots=True)
class ControllerTarget:
    """A controller under test, its meter and a way to it."""

    caller: GrpcCaller
    meter: Meter

    def measure(self, name: str, path: str, data: bytes) -> Cost:
        """Send a request and wait until the controller has settled."""
        self._settle()
        self.meter.begin()
        outcome = self.caller.outcome(path, data)
        self._settle()
        return self.meter.cost(name=name, request_bytes=len(data), outcome=outcome)

    def _settle(self) -> None:
        for _ in range(3):
            self.caller.ask(CLUSTER_ID, CLUSTER_ID.request_class())


@asynccontextmanager
async def open_target(directory: Path) -> AsyncIterator[ControllerTarget]:
    """Run a controller in the caller's loop."""
    port = free_port()
    config = ControllerConfig(
        node_id=CONTROLLER,
        metadata_log_dir=str(directory),
        listeners=(ListenAddress("CONTROLLER", "127.0.0.1", port),),
        controller_quorum_voters=(ConfiguredVoter(CONTROLLER, "127.0.0.1", port),),
        session_timeout_ms=QUIET_MS,
    )
    is_ready, is_stopping = trio.Event(), trio.Event()
    serve = partial(serve_controller, config, ready=is_ready.set, is_stopping=is_stopping)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        await is_ready.wait()
        meter = Meter()
        target = ControllerTarget(GrpcCaller(f"127.0.0.1:{port}"), meter)
        try:
            with meter.watch.watching():
                yield target
        finally:
            target.caller.close()
            is_stopping.set()


def costs_of(
    target: ControllerTarget,
    seed: int,
    *,
    is_every_version: bool = False,
    bytes_max: int = 60 * KIB,
    stride: int = 1,
) -> Iterator[Cost]:
    """Send every `stride`-th request of a seed for every method, and yield the cost of each.

    Run it in a thread: it waits for the controller.
    """
    truth, names = fill(target.caller, large_topic_partitions=LARGE_TOPIC_PARTITIONS)
    gc.collect()
    gc.freeze()
    for api_key in grpc_requests.FORWARDED_API_KEYS:
        versions = grpc_requests.versions_of(api_key)
        for version in versions if is_every_version else versions[-1:]:
            rng = FuzzRng(Random(f"{seed}/{api_key}/{version}"))
            forwarded = grpc_requests.forward_requests_of(
                api_key, version, names, rng, bytes_max=bytes_max
            )
            for number, data in enumerate(forwarded):
                if (number + api_key + seed) % stride:
                    continue
                name = f"Forward of {API[api_key].name} v{version} #{number}"
                yield target.measure(name, methods.FORWARD.path, data)
    for place, method in enumerate(grpc_requests.METHODS):
        rng = FuzzRng(Random(f"{seed}/{method.path}"))
        requests = [
            *grpc_requests.requests_of(method, truth, rng, bytes_max=bytes_max),
            *grpc_requests.broken_of(method, rng),
        ]
        for number, data in enumerate(requests):
            if (number + place + seed) % stride:
                continue
            yield target.measure(f"{method.path} #{number}", method.path, data)


async def too_costly(
    target: ControllerTarget,
    seed: int,
    *,
    is_every_version: bool,
    stride: int = 1,
    on_cost: Callable[[Cost], None],
) -> list[Cost]:
    """Send the requests; return the costs above a bound."""

    def run() -> list[Cost]:
        found = []
        for cost in costs_of(target, seed, is_every_version=is_every_version, stride=stride):
            on_cost(cost)
            if cost.is_too_much:
                found.append(cost)
        return found

    try:
        return await trio.to_thread.run_sync(run)
    finally:
        gc.unfreeze()
