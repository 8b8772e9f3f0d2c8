"""Whole clusters in virtual time: a certain death has its consequences at once, silence has not.

The nodes are the real ones, on the seams of simulated machines: a killed process refuses, a paused
one accepts, a machine without power and one behind a cut link do not answer.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from ottla.controller.attendance_driver import AttendanceKeeper
from ottla.controller.membership.attendances import Attendance, Attendances, Suspicion
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.engine import RunOutcome
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.trace import Trace
from ottla.jepsen.world.whole.cluster import SimulatedCluster
from ottla.jepsen.world.whole.loop import Loop, run_in_virtual_time
from ottla.jepsen.world.whole.machine import SharedWorld
from ottla.jepsen.world.whole.net.network import SimulatedNetwork
from ottla.jepsen.world.whole.whole_cluster import WholeCluster
from ottla.model.ids import NodeId
from tests.jepsen.search_length import length

SESSION_S = 9
SOON_S = 1.5
"""By then a certain death has its consequences."""
DOUBT_S = 5
"""After this no timeout is over that holds for silence."""
DEATH_SEEDS = (0, 1, 2)
ONE, TWO = NodeId(1), NodeId(2)

Scene = Callable[[SimulatedCluster], Awaitable[None]]


def play(seed: int, scene: Scene, **settings: str) -> None:
    """Start three controllers and three brokers, let them settle, and play a scene."""

    async def main(loop: Loop) -> None:
        chance = Chance(seed)
        network = SimulatedNetwork(chance.stream("network"), Trace(), RareStates())
        world = SharedWorld(loop, network, chance)
        async with trio.open_nursery() as nursery:
            world.nursery = nursery
            nursery.start_soon(network.run)
            cluster = SimulatedCluster(
                world,
                controller_count=3,
                broker_count=3,
                directory_count=1,
                settings={key.replace("_", "."): value for key, value in settings.items()},
                drifts_ppm={},
            )
            await cluster.format()
            cluster.start()
            with trio.fail_after(60):
                while cluster.unready():
                    await trio.sleep(0.1)
            await trio.sleep(SESSION_S + 2)
            await scene(cluster)
            world.is_over = True
            loop.resume_all()
            nursery.cancel_scope.cancel()

    run_in_virtual_time(main, seed=seed)


def is_fenced(cluster: SimulatedCluster, broker: NodeId) -> bool:
    image = cluster.latest_image
    assert image is not None
    return image.brokers[broker].is_fenced


def leader(cluster: SimulatedCluster) -> NodeId:
    found = next(iter(cluster.brokers.values())).member.leader_id
    assert found is not None
    return found


@pytest.mark.parametrize("seed", range(length(1, 2)))
def test_a_killed_broker_is_fenced_at_once_and_comes_back_at_once(seed: int) -> None:
    async def scene(cluster: SimulatedCluster) -> None:
        machine = cluster.broker_machines[ONE]
        machine.kill()
        await trio.sleep(SOON_S)
        assert is_fenced(cluster, ONE)
        assert not is_fenced(cluster, TWO)
        machine.start()
        await trio.sleep(SOON_S)
        assert cluster.unready() == []

    play(seed, scene)


@pytest.mark.parametrize("seed", range(length(1, 2)))
def test_a_broker_that_starts_again_at_once_need_not_wait_for_its_old_session(seed: int) -> None:
    async def scene(cluster: SimulatedCluster) -> None:
        machine = cluster.broker_machines[ONE]
        machine.kill()
        await trio.sleep(0.3)
        machine.start()
        await trio.sleep(2 * SOON_S)
        assert cluster.unready() == []

    play(seed, scene)


@pytest.mark.parametrize("seed", range(length(1, 2)))
def test_it_need_not_wait_either_while_another_controller_has_just_become_active(seed: int) -> None:
    async def scene(cluster: SimulatedCluster) -> None:
        cluster.controller_machines[leader(cluster)].kill()
        await trio.sleep(2 * SOON_S)
        machine = cluster.broker_machines[ONE]
        machine.kill()
        await trio.sleep(2 * SOON_S)
        assert not is_fenced(cluster, ONE), "no address is probed in the first session"
        machine.start()
        await trio.sleep(SOON_S)
        assert not is_fenced(cluster, ONE)
        assert "broker-1" not in cluster.unready()

    play(seed, scene)


async def pause(cluster: SimulatedCluster) -> None:
    cluster.broker_machines[ONE].pause()


async def cut_power(cluster: SimulatedCluster) -> None:
    cluster.broker_machines[ONE].cut_power()


async def cut_off(cluster: SimulatedCluster) -> None:
    network = cluster.world.network
    for other in cluster.controller_machines.values():
        network.cut("broker-1", other.name)
        network.cut(other.name, "broker-1")


async def kill_behind_a_cut(cluster: SimulatedCluster) -> None:
    await cut_off(cluster)
    cluster.broker_machines[ONE].kill()


async def break_connections(cluster: SimulatedCluster) -> None:
    cluster.world.network.quality.break_p = 0.2


@pytest.mark.parametrize("seed", range(length(1, 2)))
@pytest.mark.parametrize(
    "trouble", [pause, cut_power, cut_off, kill_behind_a_cut, break_connections]
)
def test_what_is_no_certain_death_waits_for_the_session(trouble: Scene, seed: int) -> None:
    async def scene(cluster: SimulatedCluster) -> None:
        await trouble(cluster)
        await trio.sleep(DOUBT_S)
        assert not is_fenced(cluster, ONE)

    play(seed, scene)


@pytest.mark.parametrize("seed", range(length(1, 2)))
def test_a_killed_controller_is_succeeded_at_once_and_no_broker_is_fenced(seed: int) -> None:
    async def scene(cluster: SimulatedCluster) -> None:
        killed = leader(cluster)
        cluster.controller_machines[killed].kill()
        await trio.sleep(SOON_S)
        assert leader(cluster) != killed
        await trio.sleep(DOUBT_S)
        assert not any(is_fenced(cluster, broker) for broker in cluster.broker_machines)

    play(seed, scene, controller_quorum_fetch_timeout_ms="60000")


@pytest.mark.parametrize("seed", range(length(1, 2)))
def test_a_paused_controller_is_waited_for(seed: int) -> None:
    async def scene(cluster: SimulatedCluster) -> None:
        paused = leader(cluster)
        cluster.controller_machines[paused].pause()
        await trio.sleep(DOUBT_S)
        assert leader(cluster) == paused

    play(seed, scene, controller_quorum_fetch_timeout_ms="60000")


def test_it_can_be_switched_off() -> None:
    async def scene(cluster: SimulatedCluster) -> None:
        killed = leader(cluster)
        cluster.broker_machines[ONE].kill()
        cluster.controller_machines[killed].kill()
        await trio.sleep(DOUBT_S)
        assert not is_fenced(cluster, ONE)
        assert leader(cluster) == killed

    play(1, scene, controller_quorum_fetch_timeout_ms="60000", ottla_early_failover="false")


class Deaths(WholeCluster):
    """Whole nodes, and what may look like a death; sessions so short that many end early."""

    only = ("kill", "pause", "restart", "partition", "breaks")
    is_light = True
    settings = {"broker.session.timeout.ms": "1500"}  # noqa: RUF012


def test_only_sessions_of_dead_processes_end_early(
    explored: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OnlyCertainDeathsEndSessions, with whatever faults chance brings."""
    ended: list[bool] = []
    lives: dict[Attendance, int] = {}
    arrive, end_session = AttendanceKeeper.attend, AttendanceKeeper._end_session
    note = Attendances.arrive
    keepers: list[AttendanceKeeper] = []

    def host_of(keeper: Any, attendance: Attendance) -> Any:
        return keeper._probe._network.host(attendance.endpoint.host)

    async def attend(keeper: AttendanceKeeper, request: Any) -> Any:
        keepers.append(keeper)  # `arrive` is called before anything is awaited
        return await arrive(keeper, request)

    def arrived(attendances: Attendances, *arguments: Any) -> Attendance:
        attendance = note(attendances, *arguments)
        lives[attendance] = host_of(keepers[-1], attendance).life
        return attendance

    def end(keeper: AttendanceKeeper, suspicion: Suspicion) -> None:
        host = host_of(keeper, suspicion.attendance)
        ended.append(not host.is_up or host.life != lives[suspicion.attendance])
        end_session(keeper, suspicion)

    monkeypatch.setattr(AttendanceKeeper, "attend", attend)
    monkeypatch.setattr(AttendanceKeeper, "_end_session", end)
    monkeypatch.setattr(Attendances, "arrive", arrived)

    for seed in DEATH_SEEDS:
        outcome: RunOutcome = Deaths().run(Chance(seed), budget=6_000)
        explored("C deaths", outcome)
        assert outcome.violation is None

    assert ended
    assert all(ended)
