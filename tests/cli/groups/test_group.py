"""`ottla group` and groups of the consumer protocol, whose members are heartbeats of the test."""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any
from uuid import UUID

import pytest
import trio

from ottla.cli.groups import group as command
from ottla.client.admin import Admin
from ottla.client.network.cluster import Cluster, open_cluster
from ottla.client.testing import open_test_cluster
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.settings.endpoints import parse_bootstrap
from ottla.wire.messages import consumer_group_heartbeat_request as heartbeat
from ottla.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_commit_response import OffsetCommitResponse
from tests.cli_verbs import run_verb

Owned = Mapping[UUID, list[int]]


class Members:
    """The members of the group "g", and the command asked about it."""

    def __init__(self, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
        self._cluster = cluster
        self._admin = Admin(cluster, client_id="ottla", timeout_s=command.PATIENCE_S)
        self._capsys = capsys
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, Owned] = {}

    async def make_topic(self, name: str, count: int) -> None:
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=count, replication_factor=1)]
        )
        answer = await self._cluster.request(request, CreateTopicsResponse)
        assert answer.topics[0].error_code == ErrorCode.NONE

    async def enter(self, member_id: str, *topics: str, **more: Any) -> None:
        self.owned[member_id] = {}
        more.setdefault("subscribed_topic_names", list(topics) or None)
        await self._send_heartbeat(
            member_id, 0, topic_partitions=[], rebalance_timeout_ms=60_000, **more
        )

    async def settle(self) -> None:
        """Send heartbeats of all members until nothing moves."""
        for _ in range(3):
            for member_id in self.epochs:
                owned = [
                    heartbeat.TopicPartitions(topic_id=topic_id, partitions=indexes)
                    for topic_id, indexes in self.owned[member_id].items()
                ]
                epoch = self.epochs[member_id]
                await self._send_heartbeat(member_id, epoch, topic_partitions=owned)

    async def settle_with(self, member_id: str, count: int) -> None:
        """Run heartbeats until a member has `count` partitions: the group learns of topics late."""
        with trio.fail_after(60):
            while sum(map(len, self.owned[member_id].values())) < count:
                await self.settle()

    async def leave(self, member_id: str) -> None:
        await self._send_heartbeat(member_id, -1)
        del self.epochs[member_id]

    async def _send_heartbeat(self, member_id: str, epoch: int, **more: Any) -> None:
        request = heartbeat.ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=member_id, member_epoch=epoch, **more
        )
        answer = await self._cluster.request(request, ConsumerGroupHeartbeatResponse)
        assert answer.error_code == ErrorCode.NONE, answer.error_message
        self.epochs[member_id] = answer.member_epoch
        if answer.assignment is not None:
            self.owned[member_id] = {
                one.topic_id: one.partitions for one in answer.assignment.topic_partitions
            }

    async def commit(self, group_id: str, topic: str, offset: int) -> None:
        """Commit for partition 0, without a membership; to the group's coordinator."""
        found = OffsetCommitRequestTopic(
            name=topic,
            partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)],
        )
        request = OffsetCommitRequest(group_id=group_id, topics=[found])
        answer = await self._cluster.request(request, OffsetCommitResponse, version=9)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE

    async def say(self, *words: str) -> str:
        """Run `ottla group WORDS`; return its output."""
        assert await run_verb(command, self._admin, *words) == 0
        return self._capsys.readouterr().out

    async def tell(self, *words: str) -> Any:
        """Run it and return the JSON."""
        return json.loads(await self.say(*words, "--format", "json"))


@pytest.fixture
async def members(capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Members]:
    async with (
        open_test_cluster() as running,
        open_cluster(parse_bootstrap(running.bootstrap)) as cluster,
    ):
        request = FindCoordinatorRequest(coordinator_keys=["g"])
        with trio.fail_after(60):
            while True:
                answer = await cluster.request(request, FindCoordinatorResponse)
                if answer.coordinators[0].error_code == ErrorCode.NONE:
                    break
                await trio.sleep(0.01)
        made = Members(cluster, capsys)
        await made.make_topic("orders", 2)
        await made.make_topic("payments", 1)
        yield made


async def test_groups_of_both_protocols_are_listed_and_chosen_by_type_and_state(
    members: Members,
) -> None:
    await members.enter("a", "orders")
    await members.commit("old", "orders", 0)
    new = {"group": "g", "state": "Stable", "type": "consumer", "protocol": "consumer"}
    old = {"group": "old", "state": "Empty", "type": "classic", "protocol": ""}
    rows = [{**new, "coordinator": 1}, {**old, "coordinator": 1}]
    assert await members.tell("list") == rows
    assert await members.tell("list", "--type", "consumer") == rows[:1]
    assert await members.tell("list", "--state", "empty", "--state", "dead") == rows[1:]
    assert await members.tell("list", "--type", "classic", "--state", "stable") == []


async def test_members_are_shown_with_what_they_subscribe_have_and_are_to_have(
    members: Members,
) -> None:
    await members.enter("a", "orders", "payments", instance_id="i1", rack_id="r1")
    await members.settle_with("a", 3)
    await members.enter("b", subscribed_topic_regex="ord.*")

    first, second = await members.tell("members", "g")

    assert (
        first.items()
        >= {
            "member": "a",
            "instance": "i1",
            "rack": "r1",
            "protocol": "consumer",
            "topics": ["orders", "payments"],
            "regex": None,
            "partitions": ["orders-0", "orders-1", "payments-0"],
        }.items()
    )
    assert second.items() >= {"topics": [], "regex": "ord.*", "partitions": []}.items()
    assert sorted(first["target"] + second["target"]) == first["partitions"]
    assert second["target"], "it is to get a part of what the first one still has"
    header, *rows = (await members.say("members", "g")).splitlines()
    assert header.split()[4:] == ["EPOCH", "SUBSCRIPTION", "PARTITIONS", "TARGET"]
    assert "orders,payments" in rows[0] and "orders-0,orders-1,payments-0" in rows[0]
    assert "ord.*" in rows[1] and "same" not in rows[1]
    await members.settle()
    _, *rows = (await members.say("members", "g")).splitlines()
    assert all(row.endswith("same") for row in rows)


async def test_a_group_is_described_with_its_epochs_and_how_far_it_is_behind(
    members: Members,
) -> None:
    await members.commit("g", "orders", 0)
    await members.enter("a", "orders", server_assignor="range")

    described = await members.tell("describe", "g")

    lag = described.pop("partitions")
    assert described == {
        "group": "g",
        "type": "consumer",
        "state": "Stable",
        "assignor": "range",
        "group_epoch": 1,
        "target_epoch": 1,
        "members": 1,
    }
    assert [(row["partition"], row["committed"], row["lag"], row["member"]) for row in lag] == [
        (0, 0, 0, "a"),
        (1, None, None, "a"),
    ]
    assert [
        {key: value for key, value in row.items() if key != "seconds"}
        for row in await members.tell("lag", "g")
    ] == lag
    said = (await members.say("describe", "g")).splitlines()
    assert said[:3] == ["g: Stable, 1 member sharing by range", "epoch 1", ""]
    assert [line.split() for line in said[6:8]] == [
        ["TOPIC", "PARTITIONS", "COMMITTED", "LAG"],
        ["orders", "2", "1", "0"],
    ]

    await members.enter("b", "orders")
    said = (await members.say("describe", "g")).splitlines()
    assert said[0] == "g: Reconciling, 2 members sharing by range"
    assert said[1] == "epoch 2, 1 member not there yet"
    await members.settle()
    assert (await members.say("describe", "g")).splitlines()[1] == "epoch 2"


async def test_a_classic_group_and_an_absent_group_have_distinct_errors(members: Members) -> None:
    await members.commit("old", "orders", 0)
    described = await members.tell("describe", "old")
    assert (described["type"], described["state"], described["group_epoch"]) == (
        "classic",
        "Empty",
        None,
    )
    assert (await members.say("describe", "old")).startswith("old: Empty, 0 members\n\n")
    assert await members.tell("members", "old") == []
    with pytest.raises(RefusedError, match="there is no group 'absent'"):
        await members.say("describe", "absent")


async def test_offsets_are_moved_and_groups_deleted_when_everybody_has_left(
    members: Members,
) -> None:
    await members.commit("g", "orders", 0)
    await members.enter("a", "orders")
    with pytest.raises(RefusedError, match="stop them first"):
        await members.say("reset", "g", "--topic", "orders", "--to-latest", "--yes")
    with pytest.raises(RefusedError) as refusal:
        await members.say("delete", "g", "--yes")
    assert refusal.value.code is ErrorCode.NON_EMPTY_GROUP

    await members.leave("a")

    moved = await members.tell("reset", "g", "--topic", "orders", "--to-latest", "--yes")
    assert [(row["partition"], row["from"], row["to"]) for row in moved] == [
        (0, 0, 0),
        (1, None, 0),
    ]
    assert [row["committed"] for row in await members.tell("lag", "g")] == [0, 0]
    assert await members.tell("delete", "g", "--yes") == [{"deleted": "g"}]
    assert await members.tell("list") == []
