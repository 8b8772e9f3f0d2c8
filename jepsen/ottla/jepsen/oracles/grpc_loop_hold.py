"""The loop-hold oracle for a controller: what one gRPC request may cost its loop and its process.

A lone controller with 2,000 partitions runs in the caller's trio loop; a thread sends it one
request after the other.  Between two turns of the loop its thread may use `HOLD_MS_MAX` of CPU
time, and the process may grow by `GROWTH_BYTES_MAX`.  Decisions made beside the loop are not the
loop's.
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
from ottla.jepsen.oracles import grpc_requests
from ottla.jepsen.oracles.grpc_target import Caller, fill, free_port
from ottla.jepsen.oracles.loop_hold import GROWTH_BYTES_MAX, HOLD_MS_MAX, LoopWatch
from ottla.model.ids import NodeId
from ottla.model.limits import KIB, MIB
from ottla.model.settings.controller import ControllerConfig
from ottla.model.settings.endpoints import Endpoint, Voter
from ottla.rpc import controller_methods as methods
from ottla.rpc.cluster_id import CLUSTER_ID
from ottla.wire.apis import API

LARGE_TOPIC_PARTITIONS = 1_000
CONTROLLER = NodeId(101)
QUIET_MS = 3_600_000
"""No broker is fenced, and nobody elected, but by a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one request cost the controller."""

    name: str
    request_bytes: int
    outcome: str
    hold_ms: float
    wall_ms: float
    growth_bytes: int
    holder: str

    @property
    def is_too_much(self) -> bool:
        """Whether a bound is broken."""
        return self.hold_ms > HOLD_MS_MAX or self.growth_bytes > GROWTH_BYTES_MAX

    def __str__(self) -> str:
        return (
            f"{self.name} ({self.request_bytes:,} B, {self.outcome}): {self.hold_ms:.1f} ms CPU, "
            f"{self.wall_ms:.1f} ms wall, {self.growth_bytes / MIB:.1f} MiB in {self.holder}"
        )


@dataclass(slots=True)
class Target:
    """A controller under test, its watch and a way to it."""

    caller: Caller
    watch: LoopWatch

    def measure(self, name: str, path: str, data: bytes) -> Cost:
        """Send a request and wait until the controller has settled."""
        self._settle()
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")
        before = _memory_bytes("VmRSS")
        self.watch.reset()
        outcome = self.caller.outcome(path, data)
        self._settle()
        return Cost(
            name=name,
            request_bytes=len(data),
            outcome=outcome,
            hold_ms=self.watch.hold_ns / 1e6,
            wall_ms=self.watch.wall_ns / 1e6,
            growth_bytes=max(0, _memory_bytes("VmHWM") - before),
            holder=self.watch.holder,
        )

    def _settle(self) -> None:
        for _ in range(3):
            self.caller.ask(CLUSTER_ID, CLUSTER_ID.request_class())


@asynccontextmanager
async def open_target(directory: Path) -> AsyncIterator[Target]:
    """Run a controller in the caller's loop."""
    port = free_port()
    config = ControllerConfig(
        node_id=CONTROLLER,
        metadata_log_dir=str(directory),
        listeners=(Endpoint("CONTROLLER", "127.0.0.1", port),),
        controller_quorum_voters=(Voter(CONTROLLER, "127.0.0.1", port),),
        session_timeout_ms=QUIET_MS,
    )
    is_ready, is_stopping = trio.Event(), trio.Event()
    serve = partial(serve_controller, config, ready=is_ready.set, is_stopping=is_stopping)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        await is_ready.wait()
        watch = LoopWatch()
        trio.lowlevel.add_instrument(watch)
        target = Target(Caller(f"127.0.0.1:{port}"), watch)
        try:
            yield target
        finally:
            trio.lowlevel.remove_instrument(watch)
            target.caller.close()
            is_stopping.set()


def costs_of(
    target: Target, seed: int, *, is_every_version: bool = False, bytes_max: int = 60 * KIB
) -> Iterator[Cost]:
    """Send what a seed gives for every method, and yield what each request cost.

    Run it in a thread: it waits for the controller.
    """
    truth, names = fill(target.caller, large_topic_partitions=LARGE_TOPIC_PARTITIONS)
    gc.collect()
    gc.freeze()
    for api_key in grpc_requests.FORWARDED_API_KEYS:
        versions = grpc_requests.versions_of(api_key)
        for version in versions if is_every_version else versions[-1:]:
            rng = FuzzRng(Random(f"{seed}/{api_key}/{version}"))
            forwarded = grpc_requests.forwarded_of(
                api_key, version, names, rng, bytes_max=bytes_max
            )
            for number, data in enumerate(forwarded):
                name = f"Forward of {API[api_key].name} v{version} #{number}"
                yield target.measure(name, methods.FORWARD.path, data)
    for method in grpc_requests.METHODS:
        rng = FuzzRng(Random(f"{seed}/{method.path}"))
        requests = [
            *grpc_requests.requests_of(method, truth, rng, bytes_max=bytes_max),
            *grpc_requests.broken_of(method, rng),
        ]
        for number, data in enumerate(requests):
            yield target.measure(f"{method.path} #{number}", method.path, data)


async def too_costly(
    target: Target, seed: int, *, is_every_version: bool, told: Callable[[Cost], None]
) -> list[Cost]:
    """Send all requests; return what those cost that cost too much."""

    def run() -> list[Cost]:
        found = []
        for cost in costs_of(target, seed, is_every_version=is_every_version):
            told(cost)
            if cost.is_too_much:
                found.append(cost)
        return found

    try:
        return await trio.to_thread.run_sync(run)
    finally:
        gc.unfreeze()


def _memory_bytes(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * KIB
    raise AssertionError(f"the kernel does not tell {key}")
