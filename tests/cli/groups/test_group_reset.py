"""`ottla group reset` and `ottla group offset-delete` on a real broker."""

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.cli.groups import group as command
from ottla.client import open_consumer, open_producer
from ottla.client.admin import Admin, open_admin
from ottla.client.testing import open_test_cluster
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.model.settings.client import ConsumerConfig
from tests.cli_verbs import run_verb

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
TIMEOUT_S = 60


class Operator:
    """A person who resets the group "g", whose topic has three records in its first partition, of
    three, two and one hours ago."""

    def __init__(self, admin: Admin, bootstrap: str, capsys: Any) -> None:
        self.admin = admin
        self.bootstrap = bootstrap
        self._capsys = capsys

    async def say(self, *words: str) -> str:
        assert await run_verb(command, self.admin, *words) == 0
        return str(self._capsys.readouterr().out)

    async def plan(self, *words: str) -> dict[int, tuple[int | None, int]]:
        """Return the old and the new offset of each partition."""
        rows = json.loads(await self.say("reset", "g", *words, "--format", "json"))
        return {row["partition"]: (row["from"], row["to"]) for row in rows}

    async def committed(self) -> dict[TopicPartition, int]:
        return {at: one.offset for at, one in (await self.admin.group_offsets("g")).items()}


@pytest.fixture
async def operator(capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Operator]:
    now_ms = time.time_ns() // 1_000_000
    with trio.fail_after(TIMEOUT_S):
        async with (
            open_test_cluster() as cluster,
            open_admin(cluster.bootstrap) as admin,
            open_producer(cluster.bootstrap) as producer,
        ):
            await admin.create_topic("orders", partition_count=2)
            for hours in (3, 2, 1):
                at_ms = now_ms - hours * 3_600_000
                await (await producer.send("orders", b"v", partition=0, timestamp_ms=at_ms))
            await admin.try_alter_group_offsets("g", {FIRST: 3})
            yield Operator(admin, cluster.bootstrap, capsys)


async def test_offsets_by_duration_current_and_single_partitions(operator: Operator) -> None:
    assert await operator.plan("--by-duration", "PT2H30M", "--dry-run") == {0: (3, 1)}
    assert await operator.plan("--by-duration", "30m", "--dry-run") == {0: (3, 3)}
    both = await operator.plan("--topic", "orders", "--to-current", "--dry-run")
    assert both == {0: (3, 3), 1: (None, 0)}
    one = await operator.plan("--topic", "orders:0", "--to-earliest", "--yes")
    assert one == {0: (3, 0)}
    assert await operator.committed() == {FIRST: 0}
    with pytest.raises(RefusedError, match="there is no partition orders-7"):
        await operator.plan("--topic", "orders:0,7", "--to-earliest", "--yes")


async def test_an_exported_plan_is_read_again(
    operator: Operator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.csv"
    words = ("reset", "g", "--topic", "orders", "--to-offset", "1", "--export", "--dry-run")
    path.write_text(await operator.say(*words))
    assert path.read_text() == "orders,0,1\norders,1,0\n"
    assert await operator.committed() == {FIRST: 3}, "a dry run changes nothing"
    await operator.plan("--from-file", str(path), "--yes")
    assert await operator.committed() == {FIRST: 1, SECOND: 0}

    path.write_text("orders,0,99\n")
    assert (
        await run_verb(command, operator.admin, "reset", "g", "--from-file", str(path), "--yes")
        == 0
    )
    assert "offset 99 of orders-0 is after the end offset 3" in capsys.readouterr().err
    assert await operator.committed() == {FIRST: 3, SECOND: 0}

    with pytest.raises(ConfigError, match="excludes --from-file"):
        await operator.plan("--from-file", str(path), "--topic", "orders")
    with pytest.raises(ConfigError, match="cannot be read"):
        await operator.plan("--from-file", str(tmp_path / "absent"))


async def test_committed_offsets_are_deleted_by_topic_and_by_partition(operator: Operator) -> None:
    await operator.admin.try_alter_group_offsets("g", {SECOND: 0})
    shown = await operator.say("offset-delete", "g", "--topic", "orders", "--dry-run")
    assert len(shown.splitlines()) == 3
    assert await operator.committed() == {FIRST: 3, SECOND: 0}
    await operator.say("offset-delete", "g", "--topic", "orders:1", "--yes")
    assert await operator.committed() == {FIRST: 3}
    await operator.say("offset-delete", "g", "--topic", "orders", "--yes")
    assert await operator.committed() == {}
    with pytest.raises(ConfigError, match="has no offsets"):
        await operator.say("offset-delete", "g", "--topic", "orders", "--yes")


async def test_offsets_of_a_subscribed_topic_are_not_deleted(operator: Operator) -> None:
    config = ConsumerConfig(group_id="g", auto_offset_reset="earliest")
    async with open_consumer(operator.bootstrap, config) as consumer:
        consumer.subscribe(["orders"])
        while not consumer.assignment:
            await consumer.poll(0.1)
        with pytest.raises(RefusedError, match="orders-0") as refusal:
            await operator.say("offset-delete", "g", "--topic", "orders:0", "--yes")
    assert refusal.value.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert FIRST in await operator.committed()
