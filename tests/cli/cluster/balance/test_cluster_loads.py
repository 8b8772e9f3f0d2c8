"""The planner's input, collected from real brokers, and the plans that `ottla cluster balance`
shows."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla.cli.cluster import cluster as command
from ottla.cli.cluster.balance.cluster_loads import cluster_load
from ottla.client.admin import Admin, open_admin
from ottla.client.producer import open_producer
from ottla.model.errors import ConfigError
from ottla.model.ids import NodeId, TopicPartition
from ottla.testing.in_process import open_in_process_cluster
from ottla.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from tests.cli_verbs import run_verb

VALUE_BYTES = 100_000


@asynccontextmanager
async def uneven_cluster() -> AsyncIterator[Admin]:
    """Open a cluster of three brokers in which all four partitions of `t` are on broker 1."""
    async with (
        open_in_process_cluster(broker_count=3) as cluster,
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
            for index in range(4):
                await (await producer.send("t", b"v" * VALUE_BYTES, partition=index))
        yield admin


async def test_loads_have_sizes_hosts_cordons_and_space_of_disks() -> None:
    async with uneven_cluster() as admin:
        await admin.alter_broker_configs(NodeId(2), {"cordoned.log.dirs": "*"})
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


async def test_the_plan_is_shown_with_reasons_and_saved_for_a_reassignment(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async with uneven_cluster() as admin:
        saved = tmp_path / "plan.json"
        assert await run_verb(command, admin, "balance", "--save", str(saved)) == 0
        said = capsys.readouterr()
        assert "replicas of broker 1" in said.out
        assert "2 moves" in said.err
        plan = json.loads(saved.read_text())
        assert sorted(one["replicas"] for one in plan["partitions"]) == [[2], [3]]

        assert await run_verb(command, admin, "balance", "--format=json") == 0
        shown = json.loads(capsys.readouterr().out)
        assert len(shown["moves"]) == 2
        assert shown["brokers"][0]["replica_count_before"] == 4


async def test_a_bad_limit_is_refused() -> None:
    async with uneven_cluster() as admin:
        for words in (("--throttle=fast",), ("--moves-max=0",), ("--moves-max=1001",)):
            with pytest.raises(ConfigError):
                await run_verb(command, admin, "balance", *words)
