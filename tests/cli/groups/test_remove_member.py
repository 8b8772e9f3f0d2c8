"""`ottla group remove-member` and the console's form: a rebalance no longer waits for a member that
hangs."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from ottla.cli.groups import group as command
from ottla.client import ConsumerConfig, ErrorCode, MemberToRemove, open_consumer
from ottla.client.admin import Admin, open_admin
from ottla.client.consumer import Consumer
from ottla.client.testing import open_test_cluster
from ottla.insight.answers_driver import answer
from ottla.model.errors import ConfigError, ProtocolError, RefusedError
from ottla.model.ids import TopicPartition
from ottla.wire.messages.leave_group_response import LeaveGroupResponse
from tests.cli_verbs import run_verb
from tests.console.console_fixture import open_browser
from tests.insight.interfaces import check_interfaces

ORDERS = TopicPartition("orders", 0)
BOTH = frozenset({ORDERS, TopicPartition("orders", 1)})
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "share.coordinator.state.topic.num.partitions": "1",
}
TIMEOUT_S = 60
WAITS = {"classic": "rebalance-unfinished", "consumer": "member-holds-partitions"}


class Operator:
    """A person who removes members of the group "team"."""

    def __init__(self, admin: Admin, bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.admin = admin
        self.bootstrap = bootstrap
        self._capsys = capsys

    async def remove(self, *words: str) -> list[dict[str, Any]]:
        """Return the rows that the command shows."""
        verb = ("remove-member", *words, "--format", "json")
        self._capsys.readouterr()
        assert await run_verb(command, self.admin, *verb) == 0
        shown: list[dict[str, Any]] = json.loads(self._capsys.readouterr().out)
        return shown

    @asynccontextmanager
    async def member(
        self, protocol: str, instance_id: str | None = None, *, hangs: bool = False
    ) -> AsyncIterator[Consumer]:
        """Open a member of the group. If it `hangs`, it does not give up its partitions."""
        is_over = trio.Event()

        async def wait(_: object) -> None:
            if hangs:
                await is_over.wait()

        config = ConsumerConfig(
            group_id="team", group_protocol=protocol, group_instance_id=instance_id
        )
        async with open_consumer(self.bootstrap, config) as consumer:
            consumer.subscribe(["orders"], on_revoked=wait)
            yield consumer
            is_over.set()

    async def cause_of(self, kind: str) -> Any:
        """Wait until the rebalance of the group has a cause of this kind."""
        while True:
            found = await answer(self.admin, "rebalance", {"group": "team"})
            for one in found.causes:
                if one.kind == kind:
                    return one
            await trio.sleep(0.02)


@pytest.fixture
async def operator(capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Operator]:
    with trio.fail_after(TIMEOUT_S):
        async with (
            open_test_cluster(settings=SETTINGS) as cluster,
            open_admin(cluster.bootstrap) as admin,
        ):
            await admin.create_topic("orders", partition_count=2)
            yield Operator(admin, cluster.bootstrap, capsys)


async def poll_until(consumer: Consumer, assigned: frozenset[TopicPartition]) -> None:
    while frozenset(consumer.assignment) != assigned:
        await consumer.poll(0.05)


@pytest.mark.parametrize("instance_id", [None, "worker-3"])
@pytest.mark.parametrize("protocol", list(WAITS))
async def test_the_command_of_the_explanation_ends_a_stuck_rebalance(
    operator: Operator, protocol: str, instance_id: str | None
) -> None:
    async with operator.member(protocol, instance_id, hangs=True) as hanging:
        await poll_until(hanging, BOTH)
        async with operator.member(protocol) as other, trio.open_nursery() as nursery:
            nursery.start_soon(hanging.poll)
            nursery.start_soon(poll_until, other, BOTH)
            cause = await operator.cause_of(WAITS[protocol])
            words = cause.fix.split()
            assert words[:4] == ["ottla", "group", "remove-member", "team"]
            await check_interfaces(operator.admin, ["rebalance", "team"], cause.kind, cause.fix)
            shown = await operator.remove(*words[3:], "--dry-run")
            assert instance_id in {one["instance"] for one in shown}
            assert len((await operator.admin.describe_group("team")).members) == 2
            await operator.remove(*words[3:], "--yes")
            while frozenset(other.assignment) != BOTH:
                await trio.sleep(0.02)
            nursery.cancel_scope.cancel()


async def test_members_of_the_group_are_named_singly_or_all(operator: Operator) -> None:
    async with operator.member("classic", "one") as first:
        await poll_until(first, BOTH)
        with pytest.raises(RefusedError, match="instance 'two': the group has no such member"):
            await operator.remove("team", "--instance-id", "two", "--yes")
        (row,) = await operator.remove("team", "--all", "--yes")
        assert (row["instance"], row["partitions"]) == ("one", 2)
        assert await operator.remove("team", "--all", "--yes") == []
    for words in (["team", "--yes"], ["team", "m", "--all", "--yes"]):
        with pytest.raises(ConfigError, match="is needed"):
            await operator.remove(*words)
    with pytest.raises(RefusedError, match="there is no group 'other'"):
        await operator.remove("other", "--all", "--yes")
    await operator.admin.alter_share_group_offsets("workers", {ORDERS: 0})
    with pytest.raises(RefusedError, match="is a share group"):
        await operator.remove("workers", "--all", "--yes")


async def test_the_form_of_the_console_removes_a_member(operator: Operator) -> None:
    where = "/groups/team/members/remove"
    async with operator.member("consumer") as first, open_browser(operator.admin) as browser:
        await poll_until(first, BOTH)
        (row,) = (await operator.admin.describe_group("team")).members
        member = f"member:{row.member_id}"
        assert f'value="{member}"' in await browser.get("/groups/team/members")
        for form, status in (
            ({"member": member, "confirm": "tea"}, 400),
            ({"member": "member:absent", "confirm": "team"}, 400),
        ):
            assert (await browser.post(where, form)).status_code == status
        assert (await operator.admin.describe_group("team")).members == (row,)
        html = await browser.act(where, {"member": member, "confirm": "team"})
        assert "1 member removed." in html
        assert (await operator.admin.describe_group("team")).members == ()
        assert browser.audit.lines[-1]["action"] == "group-remove-member"
        await browser.act(where, {"member": "all", "confirm": "team"})


async def test_a_response_without_a_member_is_refused(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = MemberToRemove("m")
    assert await operator.admin.remove_group_members("team", []) == {}
    found = await operator.admin.remove_group_members("team", [member], reason="r" * 1_000)
    assert found == {member: ErrorCode.UNKNOWN_MEMBER_ID}

    async def empty(*_: object, **__: object) -> LeaveGroupResponse:
        return LeaveGroupResponse()

    monkeypatch.setattr("ottla.client.groups.coordinator.Coordinator.request", empty)
    with pytest.raises(ProtocolError, match="does not contain"):
        await operator.admin.remove_group_members("team", [member])
