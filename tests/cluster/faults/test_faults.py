"""Faults in a row under load: each acknowledged record is there once, and few other lanes wait.

`OTTLA_FAULTS=full pytest tests/cluster/faults/test_faults.py -s` keeps Kafka's default timeouts and
takes some minutes; otherwise a session is short.  Each test draws the clients' view as pictures in
its temporary directory (`--basetemp`).
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.bench.faults.timeline import Mark

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

IS_FULL = os.environ.get("OTTLA_FAULTS") == "full"
SESSION_S = 9.0 if IS_FULL else 2.0
PAUSE_S = 15.0 if IS_FULL else 3.5
CALM_S = 5.0 if IS_FULL else 1.0
SHORT_SESSION = {"broker_session_timeout_ms": "2000", "broker_heartbeat_interval_ms": "400"}
SETTINGS = {} if IS_FULL else SHORT_SESSION

LOAD = "load"
PAIRS = "pairs"
PAIRED = [[1, 2], [2, 3], [3, 1]]
"""Each broker's end leaves one of these partitions untouched."""

STOP_S = 1.8
"""Seconds without an acknowledgement after which a partition counts as stopped.

If smaller, a core that other tests use for a second counts as a stop; if larger, the end of a
session, which is what a stop waits for, would pass.
"""
TRIES = 3
"""A bug that stops a partition shows each time; a paused machine, hardly ever twice."""

Lane = tuple[str, int]


class Fault(NamedTuple):
    """A fault, the lanes that it touches, and the seconds that these may wait."""

    mark: Mark
    touches: Callable[[Lane], bool]
    wait_s: float


def no_lane(lane: Lane) -> bool:
    return False


def every_lane(lane: Lane) -> bool:
    return True


@pytest.fixture(scope="module")
def cluster(plan_module_cluster: Callable[..., Any]) -> Iterator[Any]:
    """Three controllers and three brokers, with twelve partitions on all brokers, and three that
    leave one of them out."""
    cluster = plan_module_cluster(controllers=3, brokers=3, **SETTINGS)
    cluster.start()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = [
        NewTopic(LOAD, 12, replication_factor=3, config={"min.insync.replicas": "2"}),
        NewTopic(PAIRS, 3, replica_assignment=PAIRED, config={"min.insync.replicas": "1"}),
    ]
    for future in admin.create_topics(new).values():
        future.result(timeout=60)
    cluster.wait_healthy()
    yield cluster
    for log in cluster.plan.directory.glob("*.log"):
        before, found, after = log.read_text().partition("Traceback")
        assert not found, f"{log}: {before[-500:]}{found}{after[:5000]}"


def kept_on(cluster: Any, name: str) -> Callable[[Lane], bool]:
    """Return whether a partition has a replica on a broker."""
    replicas = {topic: cluster.replicas(topic) for topic in (LOAD, PAIRS)}
    id_ = cluster.node(name).id
    return lambda lane: id_ in replicas[lane[0]][lane[1]]


def kill_the_leader_of_most(cluster: Any, load: Any) -> Fault:
    victim = cluster.leader_of_most(LOAD)
    touches = kept_on(cluster, victim)
    mark = load.mark(f"kill -9 {victim}, leader of most")
    cluster.kill(victim)
    time.sleep(SESSION_S + CALM_S)
    cluster.start(victim)
    return Fault(mark, touches, SESSION_S + STOP_S)


def kill_the_active_controller(cluster: Any, load: Any) -> Fault:
    victim = cluster.active_controller()
    mark = load.mark(f"kill -9 {victim}, the active one")
    cluster.kill(victim)
    assert cluster.active_controller() != victim
    time.sleep(CALM_S)
    cluster.start(victim)
    return Fault(mark, no_lane, STOP_S)


def pause_a_broker(cluster: Any, load: Any) -> Fault:
    victim = cluster.leader_of_most(LOAD)
    touches = kept_on(cluster, victim)
    mark = load.mark(f"SIGSTOP {victim}")
    cluster.pause(victim)
    time.sleep(PAUSE_S)
    load.mark("SIGCONT")
    cluster.resume(victim)
    return Fault(mark, touches, SESSION_S + STOP_S)


def kill_two_controllers(cluster: Any, load: Any) -> Fault:
    active = cluster.active_controller()
    other = next(name for name in cluster.named("controller") if name != active)
    mark = load.mark(f"kill -9 {active} and {other}")
    cluster.kill(active, other)
    time.sleep(SESSION_S + CALM_S)
    cluster.start(active, other)
    return Fault(mark, no_lane, STOP_S)


def drain_a_broker(cluster: Any, load: Any) -> Fault:
    victim = cluster.leader_of_most(LOAD)
    id_ = cluster.node(victim).id
    mark = load.mark(f"drain {victim}")
    cluster.ottla("broker", "drain", str(id_), "--yes")
    assert id_ not in cluster.leaders(LOAD).values()
    time.sleep(CALM_S)
    cluster.ottla("broker", "drain", str(id_), "--undo")
    return Fault(mark, every_lane, STOP_S)


def stop_all_and_start_again(cluster: Any, load: Any) -> Fault:
    mark = load.mark("stop all")
    cluster.stop_all()
    load.mark("start all")
    cluster.start()
    return Fault(mark, every_lane, float("inf"))


FAULTS = (
    kill_the_leader_of_most,
    kill_the_active_controller,
    pause_a_broker,
    kill_two_controllers,
    drain_a_broker,
    stop_all_and_start_again,
)


Deed = Callable[[Any, Any], Fault]


def stops(cluster: Any, start_load: Any, deeds: Sequence[Deed]) -> dict[Deed, list[str]]:
    """Inject faults into a cluster under load; return the partitions that stopped for too long."""
    load = start_load(cluster, LOAD, PAIRS)
    done: list[Fault] = []
    for deed in deeds:
        time.sleep(CALM_S)
        done.append(deed(cluster, load))
        cluster.wait_healthy()
        load.mark("healthy")
    time.sleep(CALM_S)
    run = load.stop()

    assert run.is_clean
    assert run.report["failed"] == 0
    ends = [fault.mark.at_s - STOP_S / 2 for fault in done[1:]] + [run.ledger.ended_s]
    found: dict[Deed, list[str]] = {}
    for deed, fault, ended_s in zip(deeds, done, ends, strict=True):
        for lane, gap in run.gaps(fault.mark.at_s, ended_s).items():
            if gap > (fault.wait_s if fault.touches(lane) else STOP_S):
                stop = f"{fault.mark.text}: {lane} stopped for {gap:.2f} s"
                found.setdefault(deed, []).append(stop)
    return found


def test_faults_in_a_row_lose_nothing_and_stop_only_what_they_touch(
    cluster: Any, start_load: Any
) -> None:
    # A machine that stands still stops everything, but not whenever the same is done.
    left = stops(cluster, start_load, FAULTS)
    for _ in range(TRIES - 1):
        print(left)
        if left:
            left = stops(cluster, start_load, list(left))
    assert left == {}


def test_a_rolling_restart_of_all_six_fails_no_send(cluster: Any, start_load: Any) -> None:
    cluster.wait_healthy()
    load = start_load(cluster, LOAD, PAIRS)
    for name in cluster.names:
        time.sleep(CALM_S / 2)
        load.mark(f"restart {name}")
        assert cluster.end(name) == 0
        cluster.start(name)
        cluster.wait_healthy()
    run = load.stop()
    assert run.is_clean
    assert run.report["failures"] == {}
    assert run.report["unanswered"] == 0
    assert run.report["acknowledged"] == run.report["sent"]


def test_all_brokers_killed_at_once_come_back_with_all_that_was_acknowledged(
    cluster: Any, start_load: Any
) -> None:
    cluster.wait_healthy()
    load = start_load(cluster, LOAD, PAIRS)
    time.sleep(CALM_S)
    load.mark("kill -9 all brokers")
    cluster.kill(*cluster.named("broker"))
    cluster.start(*cluster.named("broker"))
    cluster.wait_healthy()
    healthy = load.mark("healthy")
    time.sleep(CALM_S)
    run = load.stop()
    assert run.is_clean
    assert run.report["failed"] == 0
    assert all(row.at_s[-1] > healthy.at_s for row in run.ledger.answers)
