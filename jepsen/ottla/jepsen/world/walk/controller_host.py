"""The shipped controller in a simulated process, for random walks.

The controller runs on a simulated machine, with its raft log, its background tasks and its RPC
server. A random walk sends it requests, as a broker does. The disk and the network have no delay,
so virtual time passes only while the random walk sleeps. Every call gets its response at once,
unless the controller died or its tasks are delayed.

Every committed metadata image is checked, in the order of the log. A decision that is not atomic is
appended record by record, so that the controller may die after any record.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import trio

from ottla.controller.controller_driver import Controller
from ottla.controller.decision import Decision
from ottla.jepsen.world.bugs.mutant import patched
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.trace import Trace
from ottla.jepsen.world.violation import Violation, violation_of
from ottla.jepsen.world.whole.cluster import CONTROLLER_PORT, SimulatedCluster
from ottla.jepsen.world.whole.loop import Loop
from ottla.jepsen.world.whole.machine import Machine, SharedWorld
from ottla.jepsen.world.whole.net.network import SimulatedNetwork
from ottla.jepsen.world.whole.net.rpc import MachinePeer, open_machine_rpc
from ottla.metadata.image import EMPTY, MetadataImage
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, Offset
from ottla.proto import controller_pb2 as pb
from ottla.rpc.controller_methods import FORWARD
from ottla.rpc.method import Request, Response, RpcMethod
from ottla.wire.apis import response_class
from ottla.wire.codec import decode, encode
from ottla.wire.codec_types import Message

BROKERS_HOST = "brokers"
CALL_MS_MAX = 20
"""Timeout of a call to the controller, in ms of virtual time. A running controller responds at
once."""

QUIET_S = 0.001
"""Virtual time in seconds after which no task of the simulated controller has work left that it
could do at once."""

STARTS_S_MAX = 60.0
"""Virtual time in seconds within which a started controller must become active."""


class ControllerHost:
    """A controller in a simulated process, with methods for the requests of a random walk."""

    def __init__(self, world: SharedWorld, cluster: SimulatedCluster, peer: MachinePeer) -> None:
        self.world = world
        self._cluster = cluster
        self._peer = peer
        self.cluster_id = cluster.cluster_id
        (self.node,) = cluster.controller_machines
        self.machine: Machine = cluster.controller_machines[self.node]
        self.image: MetadataImage = EMPTY
        """Newest metadata image that the controller has committed."""
        self.end_offset = Offset(0)
        self.failover_count = 0
        self.strike_after_steps = 0
        """Number of event-loop steps after the start of the next call to the controller until the
        controller loses power. 0 means no power cut."""
        self.on_image: Callable[[MetadataImage], None] = lambda image: None
        self.on_strike: Callable[[], None] = lambda: None
        self.on_failover: Callable[[MetadataImage], None] = lambda image: None
        self._settled: Controller | None = None
        """The controller that was last seen active and idle, with no work left to do. None if no
        controller was seen idle yet."""
        self._is_asked = False
        """True if a call of the controller has begun since the controller was last seen without
        work."""
        self._epoch: Epoch | None = None
        self._seen: MetadataImage | None = None
        self._uncommitted: list[tuple[Offset, MetadataImage]] = []
        world.loop.on_step = self._watch

    @property
    def now_ms(self) -> int:
        """Virtual time in ms since the start of the simulation."""
        return int(trio.current_time() * 1_000 + 0.5)

    @property
    def controller(self) -> Controller | None:
        """The running active controller, or None if no controller is active."""
        found = self._cluster.controller(self.node)
        return None if found is None or found.epoch is None else found

    # --- calls ----------------------------------------------------------------------------------

    async def call(self, method: RpcMethod[Request, Response], request: Request) -> Response:
        """Send a request to the controller and return the response. The controller may lose power
        during the call."""
        self._is_asked = True
        if self.strike_after_steps:
            self.world.loop.call_after_steps(self.strike_after_steps, self._strike)
            self.strike_after_steps = 0
        try:
            return await self._peer.call(method, request, deadline_ms=CALL_MS_MAX)
        finally:
            self.world.loop.cancel_call()

    async def forward(self, request: Message) -> Message:
        """Forward a client's request to the controller, as a broker does, and return the
        response."""
        version = request.VERSIONS[-1]
        forwarded = pb.ForwardRequest(
            api_key=request.API_KEY,
            api_version=version,
            principal="User:ANONYMOUS",
            client_address="127.0.0.1",
            body=encode(request, version),
        )
        answer = await self.call(FORWARD, forwarded)
        if answer.error_code:
            raise RefusedError(ErrorCode(answer.error_code), answer.error_message)
        return decode(response_class(request.API_KEY), version, answer.body)

    # --- ends of the controller -----------------------------------------------------------------

    def _strike(self) -> None:
        self.on_strike()
        self.machine.cut_power()

    async def fail_over(self, *, is_power_cut: bool) -> None:
        """Kill the controller's process, or cut its power if `is_power_cut` is True, and start it
        again."""
        (self.machine.cut_power if is_power_cut else self.machine.kill)()
        await trio.sleep(QUIET_S)
        await self.settle()

    async def settle(self) -> None:
        """Wait until a controller is active and has no work left to do."""
        tasks = self.machine.tasks
        if tasks.held:
            self.world.loop.between_steps(self._resume)
        elif self._settled is self.controller is not None:
            if self._is_asked:
                self._is_asked = False
                await trio.sleep(QUIET_S)
            self.check()
            return
        self._settled = await self._active_controller()
        await self._settled.wait_active()
        await trio.sleep(QUIET_S)
        self.check()

    async def _active_controller(self) -> Controller:
        """Start a controller if no controller runs, wait until it is active, and return it."""
        ends_at = trio.current_time() + STARTS_S_MAX
        while True:
            if self.machine.failure is not None:
                raise violation_of(_exception_of(self.machine.failure))
            if not self.machine.is_running:
                self.machine.start()
            if self.controller is not None:
                return self.controller
            if trio.current_time() > ends_at:
                raise Violation("EverybodyServes", "no controller becomes active")
            await trio.sleep(QUIET_S)

    def check(self) -> None:
        """Raise the invariant violation that was found between two steps of the event loop, or else
        an unexpected exception of the controller. Does nothing if neither occurred."""
        if self.world.loop.failure is not None:
            raise self.world.loop.failure
        for name, fault in self._cluster.faults:
            raise Violation("NothingEscapes", f"{name}: {fault!r}") from fault

    async def sleep_late(self, seconds: float, chance: Chance) -> None:
        """Sleep for `seconds` of virtual time while a random half of the controller's wake-ups are
        delayed. They stay delayed until `settle`."""
        tasks = self.machine.tasks
        tasks.is_late = lambda: chance.below(2) == 1
        try:
            await trio.sleep(seconds)
        finally:
            tasks.is_late = None

    def _resume(self) -> None:
        tasks = self.machine.tasks
        if tasks.held and not tasks.is_stopped:
            self.world.loop.resume(tasks)

    # --- images ---------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Check the metadata images that were committed since the last event-loop step."""
        controller = self.controller
        if controller is None:
            return
        if controller.epoch != self._epoch:
            self._begin_turn(controller)
        if controller.image is not self._seen:
            self._seen = controller.image
            self._uncommitted.append((controller.last_appended, controller.image))
        while self._uncommitted and self._uncommitted[0][0] < controller.high_watermark:
            offset, image = self._uncommitted.pop(0)
            self._check_image(image, Offset(offset + 1))

    def _begin_turn(self, controller: Controller) -> None:
        """Check the metadata images that the previous controller wrote and the new active
        `controller` has loaded."""
        is_first = self._epoch is None
        self._epoch, self._seen = controller.epoch, controller.image
        written, self._uncommitted = self._uncommitted, []
        if not is_first:
            kept = [self.image, *(image for _, image in written)]
            equal = [at for at, image in enumerate(kept) if _is_same(image, controller.image)]
            for image in kept[1 : equal[-1] if equal else len(kept)]:
                self._check_image(image, self.end_offset)
        self._check_image(controller.image, Offset(controller.last_appended + 1))
        if not is_first:
            self.failover_count += 1
            self.on_failover(self.image)

    def _check_image(self, image: MetadataImage, end_offset: Offset) -> None:
        self.end_offset = end_offset
        self.image = image
        self.on_image(image)


def _is_same(one: MetadataImage, other: MetadataImage) -> bool:
    return (
        one.brokers == other.brokers and one.topics == other.topics and one.configs == other.configs
    )


def _exception_of(error: BaseException) -> Exception:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, Exception)
    return error


@contextmanager
def single_appends() -> Iterator[None]:
    """Return a context in which the records of non-atomic controller decisions are appended one at
    a time."""
    original = Decision.appends

    def appends(self: Decision[Any], records_max: int = 1) -> Any:
        return original(self, records_max)

    with patched(Decision, appends=appends):
        yield


@asynccontextmanager
async def open_controller_host(
    loop: Loop, chance: Chance, settings: Mapping[str, str]
) -> AsyncIterator[ControllerHost]:
    """Start a simulation with one controller, and yield its host once the controller is active."""
    network = SimulatedNetwork(chance.stream("network"), Trace(), RareStates())
    network.quality.delay_s = network.quality.jitter_s = 0.0
    world = SharedWorld(loop, network, chance)
    world.disk_delay_s = 0.0
    async with trio.open_nursery() as nursery:
        world.nursery = nursery
        nursery.start_soon(network.run)
        cluster = SimulatedCluster(
            world,
            controller_count=1,
            broker_count=0,
            directory_count=1,
            settings=settings,
            drifts_ppm={},
        )
        await cluster.format()
        brokers = network.host(BROKERS_HOST)
        network.on_start(brokers)
        async with open_machine_rpc(network, world.exchange, brokers) as rpc:
            (node,) = cluster.controller_machines
            peer = await rpc.channel(f"controller-{node}:{CONTROLLER_PORT}")
            host = ControllerHost(world, cluster, peer)
            await host.settle()
            try:
                yield host
            finally:
                world.is_over = True
                loop.on_step = None
                loop.resume_all()
                nursery.cancel_scope.cancel()
