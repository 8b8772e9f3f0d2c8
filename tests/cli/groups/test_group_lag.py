"""Lag of groups on topics with transactions, on a real broker."""

import json
from typing import Any

import pytest
import trio

from ottla.cli.groups import group as command
from ottla.cli.pipelines.pipeline_lag import query_lag
from ottla.client import open_consumer, open_producer
from ottla.client.admin import Admin, open_admin
from ottla.client.testing import open_test_cluster
from ottla.model.ids import TopicPartition
from ottla.model.settings.client import ConsumerConfig, ProducerConfig
from tests.cli_verbs import run_verb

ORDERS = TopicPartition("orders", 0)
TIMEOUT_S = 60


async def lag_of(admin: Admin, capsys: Any, *arguments: str) -> tuple[int, int, int]:
    """Return committed offset, end offset and lag of a group, as `ottla group lag` shows them."""
    words = ("lag", "spark-q", *arguments, "--format", "json")
    assert await run_verb(command, admin, *words) == 0
    (row,) = json.loads(capsys.readouterr().out)
    return row["committed"], row["end"], row["lag"]


async def test_an_open_transaction_is_no_lag_to_readers_of_committed_records(
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = ProducerConfig(transactional_id="pay")
    with trio.fail_after(TIMEOUT_S):
        async with (
            open_test_cluster() as cluster,
            open_admin(cluster.bootstrap) as admin,
            open_producer(cluster.bootstrap, config) as producer,
        ):
            await admin.create_topic("orders", partition_count=1)
            async with producer.transaction():
                await producer.send("orders", b"committed")
            await admin.try_alter_group_offsets("spark-q", {ORDERS: 1})
            # As Kafka has it: the marker behind the last record counts.
            assert await lag_of(admin, capsys) == (1, 2, 1)
            async with producer.transaction():
                await (await producer.send("orders", b"open"))
                level = ("--isolation-level", "read_committed")
                assert await lag_of(admin, capsys, *level) == (1, 2, 1)
                assert await lag_of(admin, capsys) == (1, 3, 2)
                behind = await query_lag(admin, "spark-q", isolation_level="read_committed")
                assert (behind.lag, (await query_lag(admin, "spark-q")).lag) == (1, 2)


async def test_a_consumer_that_has_read_all_commits_behind_the_marker(
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = ProducerConfig(transactional_id="pay")
    reading = ConsumerConfig(
        group_id="spark-q", isolation_level="read_committed", auto_offset_reset="earliest"
    )
    with trio.fail_after(TIMEOUT_S):
        async with open_test_cluster() as cluster, open_admin(cluster.bootstrap) as admin:
            await admin.create_topic("orders", partition_count=1)
            async with (
                open_producer(cluster.bootstrap, config) as producer,
                open_consumer(cluster.bootstrap, reading) as consumer,
            ):
                consumer.subscribe(["orders"])
                async with producer.transaction():
                    await producer.send("orders", b"committed")
                (read,) = await consumer.poll()
                assert read.value == b"committed"
                while await consumer.position(ORDERS) != 2:
                    assert await consumer.poll(0.1) == []
                await consumer.commit()
            assert await lag_of(admin, capsys) == (2, 2, 0)
