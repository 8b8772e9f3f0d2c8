"""`ottla share` on a real broker, and the admin calls behind it."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from ottla.cli.groups import share as command
from ottla.client import open_producer
from ottla.client.admin import Admin, open_admin
from ottla.client.admin_parts.admin_groups import GroupType
from ottla.client.network.connection import BrokerConnection, open_connection
from ottla.client.testing import open_test_cluster
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.model.settings.endpoints import parse_bootstrap
from ottla.wire.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla.wire.messages.describe_share_group_offsets_response import (
    DescribeShareGroupOffsetsResponse,
)
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from ottla.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from tests.cli_verbs import run_verb

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
TIMEOUT_S = 60


class ShareOperator:
    """A person who looks after the share group "g", whose topic has three records."""

    def __init__(self, admin: Admin, connection: BrokerConnection, capsys: Any) -> None:
        self.admin = admin
        self.connection = connection
        self._capsys = capsys

    async def say(self, *words: str) -> str:
        assert await run_verb(command, self.admin, *words) == 0
        return str(self._capsys.readouterr().out)

    async def json(self, *words: str) -> Any:
        return json.loads(await self.say(*words, "--format", "json"))

    async def beat(self, epoch: int, *topics: str) -> ShareGroupHeartbeatResponse:
        """Send a heartbeat of the group's only member."""
        request = ShareGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=epoch,
            subscribed_topic_names=list(topics) or None,
        )
        answer = await self.connection.request(request, ShareGroupHeartbeatResponse)
        assert answer.error_code == 0, answer
        return answer

    async def join(self) -> None:
        """Join the group, and wait for both partitions."""
        answer = await self.beat(0, "orders")
        while _count(answer) != 2:
            await trio.sleep(0.05)
            answer = await self.beat(answer.member_epoch, "orders")


def _count(answer: ShareGroupHeartbeatResponse) -> int:
    topics = [] if answer.assignment is None else answer.assignment.topic_partitions
    return sum(len(one.partitions) for one in topics)


@pytest.fixture
async def operator(capsys: pytest.CaptureFixture[str]) -> AsyncIterator[ShareOperator]:
    settings = {"group.share.assignment.interval.ms": "0", "offsets.topic.num.partitions": "1"}
    with trio.fail_after(TIMEOUT_S):
        async with (
            open_test_cluster(settings=settings) as cluster,
            open_admin(cluster.bootstrap) as admin,
            open_producer(cluster.bootstrap) as producer,
        ):
            await admin.create_topic("orders", partition_count=2)
            for _ in range(3):
                await (await producer.send("orders", b"v", partition=0))
            ((host, port),) = parse_bootstrap(cluster.bootstrap)
            async with open_connection(host, port) as connection:
                find = FindCoordinatorRequest(coordinator_keys=["g"])
                await connection.request(find, FindCoordinatorResponse)
                yield ShareOperator(admin, connection, capsys)


async def test_a_reset_creates_a_group_whose_lag_is_shown(operator: ShareOperator) -> None:
    rows = await operator.json("reset", "g", "--topic", "orders", "--to-earliest", "--yes")
    assert [(row["from"], row["to"]) for row in rows] == [(None, 0), (None, 0)]
    (listed,) = await operator.json("list")
    assert (listed["group"], listed["state"]) == ("g", "Empty")
    first, second = await operator.json("offsets", "g")
    assert (first["start"], first["lag"], second["start"], second["lag"]) == (0, 3, 0, 0)
    await operator.say("reset", "g", "--to-latest", "--yes")
    found = await operator.admin.share_group_offsets("g", [FIRST])
    assert (found[FIRST].start_offset, found[FIRST].lag) == (3, 0)
    assert "START" in await operator.say("describe", "g")


async def test_a_group_with_members_is_described_and_not_changed(operator: ShareOperator) -> None:
    await operator.join()
    shown = await operator.json("describe", "g")
    assert shown["state"] == "Stable"
    (member,) = shown["members"]
    assert member["partitions"] == ["orders-0", "orders-1"]
    assert {row["start"] for row in shown["partitions"]} == {None}
    assert {row["records"] for row in shown["partitions"]} == {None}
    assert "not fetched" in await operator.say("describe", "g")
    listing = await operator.admin.list_share_groups(states=["Stable"])
    assert [one.type for one in listing] == [GroupType.SHARE]
    with pytest.raises(RefusedError) as refused:
        await operator.say("reset", "g", "--topic", "orders", "--to-earliest", "--yes")
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    assert "stop them first" in refused.value.message
    with pytest.raises(RefusedError):
        await operator.say("delete", "g", "--yes")


async def test_offsets_and_groups_are_deleted(operator: ShareOperator) -> None:
    await operator.admin.alter_share_group_offsets("g", {FIRST: 1, SECOND: 0})
    deleted = await operator.json("offset-delete", "g", "--topic", "orders", "--yes")
    assert deleted == [{"deleted": "orders"}]
    assert await operator.json("offsets", "g") == []
    with pytest.raises(RefusedError):
        await operator.say("offset-delete", "g", "--topic", "orders", "--yes")
    assert await operator.json("delete", "g", "--yes") == [{"deleted": "g"}]
    assert await operator.json("list") == []
    with pytest.raises(RefusedError) as refused:
        await operator.say("offsets", "g")
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_reset_of_a_group_without_offsets_names_the_topic(operator: ShareOperator) -> None:
    with pytest.raises(ConfigError, match="--topic"):
        await operator.say("reset", "g", "--to-earliest", "--yes")


async def test_refused_partitions_are_named(operator: ShareOperator) -> None:
    wanted = {FIRST: 0, TopicPartition("orders", 7): 0}
    refused = await operator.admin.try_alter_share_group_offsets("g", wanted)
    assert {at: one.code for at, one in refused.items()} == {
        TopicPartition("orders", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }


async def test_a_group_that_is_named_twice_is_described_once(operator: ShareOperator) -> None:
    await operator.admin.alter_share_group_offsets("g", {FIRST: 1})
    asked = DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)
    request = DescribeShareGroupOffsetsRequest(groups=[asked, asked])
    answer = await operator.connection.request(request, DescribeShareGroupOffsetsResponse)
    (group,) = answer.groups
    assert group.topics[0].partitions[0].start_offset == 1
