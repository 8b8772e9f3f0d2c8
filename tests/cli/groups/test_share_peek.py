"""`ottla share peek` on a real broker: records in flight, their members, locks and deliveries."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from ottla.cli.groups import share as command
from ottla.client import (
    ConfigKind,
    ConfigResource,
    ShareConsumer,
    ShareConsumerConfig,
    open_producer,
    open_share_consumer,
)
from ottla.client.admin import Admin, open_admin
from ottla.client.testing import open_test_cluster
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from tests.cli_verbs import run_verb

TIMEOUT_S = 60


class Desk:
    """A person who looks at the share group "g" while one worker has two of its records."""

    def __init__(self, admin: Admin, worker: ShareConsumer, capsys: Any) -> None:
        self.admin = admin
        self.worker = worker
        self._capsys = capsys

    async def say(self, *words: str) -> str:
        assert await run_verb(command, self.admin, "peek", *words) == 0
        captured = self._capsys.readouterr()
        return str(captured.out + captured.err)

    async def json(self, *words: str) -> Any:
        assert await run_verb(command, self.admin, "peek", *words, "--format", "json") == 0
        return json.loads(self._capsys.readouterr().out)


@pytest.fixture
async def desk(capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Desk]:
    settings = {"group.share.assignment.interval.ms": "0", "offsets.topic.num.partitions": "1"}
    config = ShareConsumerConfig(group_id="g", client_id="mailer", fetch_wait_ms_max=100)
    with trio.fail_after(TIMEOUT_S):
        async with (
            open_test_cluster(settings=settings) as cluster,
            open_admin(cluster.bootstrap) as admin,
            open_producer(cluster.bootstrap) as producer,
            open_share_consumer(cluster.bootstrap, config) as worker,
        ):
            await admin.create_topic("orders", partition_count=2)
            group = ConfigResource(ConfigKind.GROUP, "g")
            await admin.alter_configs(group, {"share.auto.offset.reset": "earliest"})
            worker.subscribe(["orders"])
            for value in (b"kept", b"later", b"kept"):
                await (await producer.send("orders", value, partition=0))
            found: list[Any] = []
            while len(found) < 3:
                found += await worker.poll()
            await found[1].release()
            yield Desk(admin, worker, capsys)
            for record in found[::2]:
                await record.accept()


async def test_records_in_flight_are_shown_with_member_lock_and_deliveries(desk: Desk) -> None:
    first, second = await desk.json("g")
    (member,) = (await desk.admin.describe_share_group("g")).members
    assert (first["topic"], first["partition"]) == ("orders", 0)
    assert (first["first"], first["last"], second["first"]) == (0, 0, 2)
    assert (first["state"], first["deliveries"]) == ("acquired", 1)
    assert (first["member"], first["client"]) == (member.member_id, "mailer")
    assert first["locked_until_ms"] > 0
    text = await desk.say("g", "--waiting")
    assert "mailer" in text
    assert "waiting" in text


async def test_a_limit_leads_to_the_next_page(desk: Desk) -> None:
    text = await desk.say("g", "--limit", "1")
    assert "--topic orders:0 --offset 2" in text
    (row,) = await desk.json("g", "--topic", "orders:0", "--offset", "2")
    assert row["first"] == 2
    assert await desk.json("g", "--topic", "orders:1") == []


async def test_bad_options_and_groups_are_refused(desk: Desk) -> None:
    with pytest.raises(ConfigError, match="--limit"):
        await desk.say("g", "--limit", "0")
    with pytest.raises(ConfigError, match="--offset"):
        await desk.say("g", "--offset", "3")
    with pytest.raises(RefusedError) as refused:
        await desk.say("unknown")
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
