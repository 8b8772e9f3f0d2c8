"""A simulated network, and a simulated cluster of one broker, for tests of the parts of worlds."""

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from ottla.client.network.transport import TRANSPORT
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.trace import Trace
from ottla.jepsen.world.whole.cluster import SimulatedCluster, quiet_nodes
from ottla.jepsen.world.whole.loop import Loop, run_in_virtual_time
from ottla.jepsen.world.whole.machine import Machine, SharedWorld
from ottla.jepsen.world.whole.net.network import SimulatedNetwork
from ottla.jepsen.world.whole.net.streams import MachineTransport
from ottla.testing.world.runtime.asyncio_loop import run_asyncio
from ottla.testing.world.runtime.guards import enter, guarded
from ottla.testing.world.runtime.sources import InstanceSources

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
BOOTSTRAP = "broker-1:9092"

Program = Callable[[], Awaitable[Any]]


def in_network(scenario: Callable[[SharedWorld], Awaitable[object]], *, seed: int = 0) -> str:
    """Run a scenario in virtual time with a simulated network, and return the hash of its trace."""
    chance, trace = Chance(seed), Trace()

    async def main(loop: Loop) -> None:
        network = SimulatedNetwork(chance.stream("network"), trace, RareStates())
        world = SharedWorld(loop, network, chance)
        async with trio.open_nursery() as nursery:
            world.nursery = nursery
            nursery.start_soon(network.run)
            await scenario(world)
            world.is_over = True
            loop.resume_all()
            nursery.cancel_scope.cancel()

    with quiet_nodes(), guarded(chance):
        run_in_virtual_time(main, seed=chance.stream("loop").below(1 << 62))
    return trace.hash


def in_cluster(scenario: Callable[[SimulatedCluster], Awaitable[object]], *, seed: int = 0) -> str:
    """Run a scenario with a simulated cluster of one broker, and return the hash of its trace."""

    async def play(world: SharedWorld) -> None:
        cluster = SimulatedCluster(
            world,
            controller_count=1,
            broker_count=1,
            directory_count=1,
            settings=SETTINGS,
            drifts_ppm={},
        )
        await cluster.format()
        cluster.start()
        host = world.network.host("scenario")
        world.network.on_start(host)
        TRANSPORT.set(MachineTransport(world.network, world.ports, host))
        while cluster.unready():
            await trio.sleep(0.05)
        await scenario(cluster)

    return in_network(play, seed=seed)


def instance(world: SharedWorld, name: str, program: Callable[[], Awaitable[Any]]) -> Machine:
    """Return a machine whose process is an asyncio program."""
    sources: list[InstanceSources] = []

    async def run(machine: Machine, is_stopping: trio.Event) -> None:
        if not sources:
            sources.append(InstanceSources(machine))
        enter(sources[0])
        await run_asyncio(program, is_stopping)

    return Machine(world, name, run)


def result_of(program: Callable[[], Awaitable[Any]]) -> Any:
    """Run one asyncio program in virtual time, without a cluster, and return its result. Raises its
    error."""
    results = []

    async def keep() -> None:
        results.append(await program())

    async def scenario(world: SharedWorld) -> None:
        machine = instance(world, "program", keep)
        machine.start()
        await machine.has_ended.wait()
        if machine.failure is not None:
            raise machine.failure

    try:
        in_network(scenario)
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    return results[0]
