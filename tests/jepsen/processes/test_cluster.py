"""Real nodes at their endpoints: faults are injected, watched, and healed completely."""

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from ottla.client.admin import open_admin
from ottla.client.network.login import LOGIN
from ottla.jepsen.clients.confluent import admin_module, settings
from ottla.jepsen.processes.abilities import Abilities, Ability
from ottla.jepsen.processes.cluster import ProcessCluster, open_cluster
from ottla.jepsen.processes.cluster_claim import pids_of
from ottla.jepsen.processes.cluster_view import View, ViewedPartition, ViewedQuorum, reason_not_full
from ottla.jepsen.processes.nodes import NodeError, ProcessState
from ottla.model.errors import ErrorCode, RefusedError
from ottla.node.local.secure_cluster_driver import cluster_action

SMALL_TIMEOUT_S = 30.0


def run_id_of(cluster: ProcessCluster) -> str:
    """Return the name all its processes bear."""
    return cluster.nodes["b1"]._environment["OTTLA_JEPSEN_RUN"]


@pytest.mark.cluster
async def test_a_node_that_dies_by_itself_is_noted_and_started_again(
    tmp_path: Path, abilities: Abilities
) -> None:
    async with open_cluster(tmp_path, controllers=1, brokers=1, abilities=abilities) as cluster:
        broker = cluster.nodes["b1"]
        assert broker.pid is not None
        assert await cluster.is_isr_full()
        os.kill(broker.pid, signal.SIGABRT)
        with trio.fail_after(SMALL_TIMEOUT_S):
            await broker.wait_death()
            await cluster.wait_healthy()
        (death,) = cluster.deaths
        assert (death.node, death.code, death.was_expected) == ("b1", -signal.SIGABRT, False)
        assert broker.starts == 2


@pytest.mark.cluster
async def test_ends_that_were_ordered_are_no_finding_and_nothing_is_left(
    tmp_path: Path, abilities: Abilities
) -> None:
    async with open_cluster(tmp_path, controllers=1, brokers=1, abilities=abilities) as cluster:
        run_id = run_id_of(cluster)
        assert len(pids_of(run_id)) == 2
        await cluster.kill("b1", "c1")
        await cluster.start()
        await cluster.stop("b1")
        await cluster.start("b1")
        cluster.nodes["b1"].pause()
        assert "b1" in str(await cluster.reason_not_full())
        cluster.nodes["b1"].resume()
        await cluster.wait_healthy()
        assert await cluster.active_controller() is cluster.nodes["c1"]
        assert await cluster.stop_all() == []
        assert [node.state for node in cluster.nodes.values()] == [ProcessState.STOPPED] * 2
        assert cluster.deaths == []
        logs = cluster.collect_logs(tmp_path / "logs")
        assert not any("Traceback" in path.read_text() for path in logs)
    assert pids_of(run_id) == []
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


@pytest.mark.cluster
async def test_a_node_that_cannot_start_says_why(tmp_path: Path, need: Callable[..., None]) -> None:
    need(Ability.NAMESPACES)
    settings = {"log.flush.interval.messages": "-7"}
    with pytest.raises(NodeError, match=r"log\.flush\.interval\.messages"):
        async with open_cluster(tmp_path, controllers=1, brokers=1, settings=settings):
            raise AssertionError("it started")


@pytest.mark.cluster
async def test_a_secure_cluster_works_for_who_logs_in_and_has_entries_alone(
    tmp_path: Path, abilities: Abilities
) -> None:
    """The harness and both libraries are an ordinary user there; brokers have an entry alone."""
    async with open_cluster(
        tmp_path, controllers=1, brokers=2, secure=True, abilities=abilities
    ) as cluster:
        assert cluster.security is not None
        assert await cluster.active_controller() is cluster.nodes["c1"]
        known = {**cluster.security.client, "bootstrap.servers": cluster.bootstrap}
        assert settings(cluster.bootstrap).items() >= known.items()
        async with open_admin(cluster.bootstrap) as admin:
            await admin.create_topic("t", partition_count=2, replication_factor=2)
            with pytest.raises(RefusedError) as refused:
                await admin.create_acls([cluster_action("User:load")])
            assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        found = await trio.to_thread.run_sync(
            lambda: admin_module().AdminClient(settings(cluster.bootstrap)).list_topics(timeout=30)
        )
        assert "t" in found.topics
        cluster.security.renew()
        await cluster.kill("b1")
        await cluster.start("b1")
        await cluster.wait_healthy()
        token = LOGIN.set(None)
        assert await cluster.views() == {}
        LOGIN.reset(token)


FULL = ViewedPartition(1, (1, 2), (2, 1))
VIEW = View(frozenset({1, 2}), {"q-0": FULL})
QUORUM = ViewedQuorum(101, 10, {101: 10, 1: 10, 2: 11})


def test_all_are_in_sync_when_everybody_says_so_who_knows_the_latest() -> None:
    assert reason_not_full(QUORUM, [VIEW, VIEW], [1, 2]) is None


@pytest.mark.parametrize(
    ("quorum", "views", "reason"),
    [
        (ViewedQuorum(-1, 10, QUORUM.end_offsets), [VIEW, VIEW], "no active controller"),
        (ViewedQuorum(101, 11, QUORUM.end_offsets), [VIEW, VIEW], r"\[1\] have not applied"),
        (ViewedQuorum(101, 10, {1: 10}), [VIEW, VIEW], r"\[2\] have not applied"),
        (QUORUM, [VIEW], "only 1 of 2 brokers answer"),
        (QUORUM, [VIEW, View(frozenset({1}), VIEW.partitions)], r"\[1\] are unfenced"),
        (
            QUORUM,
            [VIEW, View(VIEW.brokers, {"q-0": ViewedPartition(1, (1, 2), (1,))})],
            "such as q-0",
        ),
        (
            QUORUM,
            [View(VIEW.brokers, {"q-0": ViewedPartition(-1, (1, 2), (1, 2))})] * 2,
            "such as q-0",
        ),
    ],
)
def test_one_doubt_is_enough_not_to_call_it_full(
    quorum: ViewedQuorum, views: list[View], reason: str
) -> None:
    found = reason_not_full(quorum, views, [1, 2])
    assert found is not None
    assert re.search(reason, found)
