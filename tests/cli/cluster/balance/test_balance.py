"""`ottla cluster balance` on real brokers: its input, its plans, their progress and their end."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from ottla.cli.cluster import brokers, status
from ottla.cli.cluster import cluster as command
from ottla.cli.cluster.moves.reassign import reassign
from ottla.cli.cluster.status import status_of
from ottla.client.admin import Admin, open_admin
from ottla.client.admin_parts.admin_configs import ConfigResource
from ottla.client.producer import open_producer
from ottla.insight.facts.cluster_load_driver import cluster_load
from ottla.insight.facts.stored_plan import read_stored_plan
from ottla.model.errors import ConfigError, RefusedError
from ottla.model.ids import NodeId, TopicPartition
from ottla.model.settings.resources import ConfigKind
from ottla.model.settings.storage.throttled_replicas import LISTS
from ottla.testing.in_process import open_in_process_cluster
from ottla.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from tests.cli.cluster.moves.test_throttled_moves import asked
from tests.cli_verbs import run_verb

VALUE_BYTES = 100_000
TIMEOUT_S = 30.0
ONE_BATCH_A_FETCH = {"replica.fetch.max.bytes": "1"}
"""Lets a throttled copy proceed one batch at a time."""


@asynccontextmanager
async def uneven_cluster() -> AsyncIterator[Admin]:
    """Open a cluster of three brokers in which all four partitions of `t` are on broker 1."""
    async with (
        open_in_process_cluster(broker_count=3, settings=ONE_BATCH_A_FETCH) as cluster,
        open_admin(cluster.bootstrap) as admin,
    ):
        topic = CreatableTopic(
            name="t",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=[1])
                for index in range(4)
            ],
        )
        await admin.cluster.request(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse)
        async with open_producer(cluster.bootstrap) as producer:
            for index in 4 * [*range(4)]:
                await (await producer.send("t", b"v" * VALUE_BYTES, partition=index))
        yield admin


async def test_loads_have_sizes_hosts_cordons_and_space_of_disks() -> None:
    async with uneven_cluster() as admin:
        assert await run_verb(brokers, admin, "cordon", "2") == 0
        with trio.fail_after(TIMEOUT_S):
            load = await cluster_load(admin)
            while not any(one.is_cordoned for one in load.brokers):
                load = await cluster_load(admin)
        by_id = {one.id: one for one in load.brokers}
        assert list(by_id) == [1, 2, 3]
        assert [one.is_active for one in load.brokers] == [True] * 3
        assert [one.is_cordoned for one in load.brokers] == [False, True, False]
        assert by_id[NodeId(1)].host
        assert by_id[NodeId(1)].total_bytes > 0
        first = next(one for one in load.partitions if one.at == TopicPartition("t", 0))
        assert first.size_bytes > VALUE_BYTES
        assert (first.replicas, first.isr, first.leader) == ((1,), (1,), 1)

        assert await run_verb(brokers, admin, "cordon", "2", "--undo") == 0
        with trio.fail_after(TIMEOUT_S):
            while any(one.is_cordoned for one in load.brokers):
                load = await cluster_load(admin)
        with pytest.raises(RefusedError, match="there is no broker 9"):
            await run_verb(brokers, admin, "cordon", "9")


async def test_the_plan_is_shown_with_reasons_and_saved_for_a_reassignment(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async with uneven_cluster() as admin:
        saved = tmp_path / "plan.json"
        assert await run_verb(command, admin, "balance", "--dry-run", "--save", str(saved)) == 0
        said = capsys.readouterr()
        assert "replicas of broker 1" in said.out
        assert "2 moves" in said.err
        plan = json.loads(saved.read_text())
        assert sorted(one["replicas"] for one in plan["partitions"]) == [[2], [3]]

        assert await run_verb(command, admin, "balance", "--dry-run", "--format=json") == 0
        shown = json.loads(capsys.readouterr().out)
        assert len(shown["moves"]) == 2
        assert shown["brokers"][0]["replica_count_before"] == 4


async def test_a_bad_limit_is_refused() -> None:
    async with uneven_cluster() as admin:
        for words in (("--throttle=fast",), ("--moves-max=0",), ("--moves-max=1001",)):
            with pytest.raises(ConfigError):
                await run_verb(command, admin, "balance", *words)


async def cluster_settings(admin: Admin) -> set[str]:
    """Return the keys of the cluster-wide settings."""
    return set(await admin.describe_configs(ConfigResource(ConfigKind.BROKER, "")))


async def replicas_of(admin: Admin) -> list[int]:
    """Return the brokers of the partitions of `t`, sorted."""
    (topic,) = (await admin.cluster.metadata(["t"])).topics
    return sorted(one for row in topic.partitions for one in row.replica_nodes)


async def test_the_moves_are_made_and_nothing_is_left_of_the_plan(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with uneven_cluster() as admin:
        with trio.fail_after(TIMEOUT_S):
            assert await run_verb(command, admin, "balance", "--yes") == 0
        assert await replicas_of(admin) == [1, 1, 2, 3]
        assert not (await read_stored_plan(admin)).moves
        assert await cluster_settings(admin) == {"min.insync.replicas"}
        topic = await admin.topic_configs("t")
        assert [topic[key].value for key in LISTS] == ["", ""]

        capsys.readouterr()
        assert await run_verb(command, admin, "balance", "--yes") == 0
        assert "the cluster is balanced" in capsys.readouterr().err


async def test_progress_is_shown_and_a_cancelled_plan_leaves_everything_as_it_was(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with uneven_cluster() as admin:
        words = ("balance", "--yes", "--no-wait", "--throttle=50k", "--format=json")
        assert await run_verb(command, admin, *words) == 0
        capsys.readouterr()

        assert await run_verb(command, admin, "balance", "--status", "--format=json") == 0
        shown = json.loads(capsys.readouterr().out)
        assert shown["throttle_bytes_per_s"] == 50_000
        assert 0 < len(shown["moves"]) <= 2
        assert shown["seconds_left"] > 0
        assert await run_verb(command, admin, "balance", "--status") == 0
        assert "to copy, at least" in capsys.readouterr().err

        state = await status_of(admin)
        assert state["balance"] == {
            "moves_left": len(shown["moves"]),
            "throttle_bytes_per_s": 50_000,
        }
        assert "balance     " in status.shown(state)
        assert state["warnings"] == []

        with pytest.raises(RefusedError, match="in progress; see 'ottla cluster balance --status'"):
            await run_verb(command, admin, "balance", "--yes")

        capsys.readouterr()
        assert await reassign(admin, asked("other --cancel")) == 0
        assert "of a balance go on" in capsys.readouterr().err

        assert await run_verb(command, admin, "balance", "--cancel") == 0
        with trio.fail_after(TIMEOUT_S):
            while await admin.list_reassignments():
                await trio.sleep(0)
        assert await replicas_of(admin) == [1, 1, 1, 1]
        assert await cluster_settings(admin) == {"min.insync.replicas"}
        for word in ("--status", "--cancel"):
            capsys.readouterr()
            assert await run_verb(command, admin, "balance", word) == 0
            assert "no plan is in progress" in capsys.readouterr().err
