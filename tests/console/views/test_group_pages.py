"""Pages of groups: kinds, lags, members, resets; with hostile names, many groups, few rights."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
import trio

from ottla.client import open_producer
from ottla.client.admin import Admin, open_admin
from ottla.client.admin_parts.admin_groups import (
    GroupDescription,
    GroupListing,
    GroupMemberDescription,
    GroupType,
)
from ottla.client.groups.group_offsets import Committed
from ottla.client.testing import ClusterUnderTest, open_test_cluster
from ottla.console.sheets import PlotPart, Sheet, TablePart
from ottla.console.views.groups import group_page
from ottla.console.views.groups.group_list import groups
from ottla.console.views.groups.group_page import members
from ottla.console.views.groups.group_reset import parse_plan, plan_text
from ottla.insight.changes.reset_plan_driver import ResetRow
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.ids import NodeId, Offset, TopicPartition
from ottla.model.visible_text import visible
from ottla.wire.messages.metadata_response import MetadataResponse, MetadataResponseBroker
from tests.console.console_fixture import NOW_MS, FakeAdmin, open_browser, page_request

ORDERS = TopicPartition("orders", 0)
HOSTILE = "<script>alert(1)</script>\x1b[31m\"'\u202e{{7*7}}"
GROUP_COUNT = 10_000


@pytest.fixture
async def cluster() -> AsyncIterator[tuple[ClusterUnderTest, Admin]]:
    settings = {
        "offsets.topic.num.partitions": "1",
        "share.coordinator.state.topic.num.partitions": "1",
    }
    async with (
        open_test_cluster(settings=settings) as cluster,
        open_admin(cluster.bootstrap) as admin,
        open_producer(cluster.bootstrap) as producer,
    ):
        await admin.create_topic("orders", partition_count=1)
        for _ in range(3):
            await (await producer.send("orders", b"v", partition=0))
        await admin.alter_group_offsets("billing", {ORDERS: 1})
        await admin.alter_group_offsets(HOSTILE, {ORDERS: 0})
        await admin.alter_share_group_offsets("queue", {ORDERS: 0})
        yield cluster, admin


def group_admin(**calls: Any) -> FakeAdmin:
    """Return an admin client whose groups are described by the first request already."""
    return FakeAdmin(**calls, describe_share_group=None, describe_streams_group=None)


def table_of(sheet: object) -> TablePart:
    assert isinstance(sheet, Sheet)
    return next(one for one in sheet.parts if isinstance(one, TablePart))


def cells(table: TablePart) -> list[list[Any]]:
    return [[one.value for one in row] for row in table.rows]


async def test_groups_are_read_reset_and_deleted(cluster: tuple[ClusterUnderTest, Admin]) -> None:
    _, admin = cluster
    with trio.fail_after(60):
        async with open_browser(admin) as browser:
            html = await browser.get("/groups?with=lag")
            assert "<script>alert" not in html
            assert "\x1b" not in html
            assert "\\x1b[31m" in html
            where = browser.address("group", group=HOSTILE)
            for page in (where, f"{where}/members", f"{where}/reset?to=earliest"):
                html = await browser.get(page)
                assert "<script>alert" not in html, page
                assert "49" not in html.partition("<h1>")[2].partition("</h1>")[0]
            # A share group has pages of its own.
            moved = await browser.http.get("/groups/queue")
            assert moved.headers["location"] == "/queues/queue"
            html = await browser.get("/groups/billing/reset?to=shift&value=-100")
            assert "limited: -99 has no record" in html
            assert 'value="orders:0=0"' in html
            html = await browser.act("/groups/billing/reset", {"plan": "orders:0=0"})
            assert "The offsets of 1 partitions were set." in html
            assert (await admin.group_offsets("billing"))[ORDERS].offset == 0
            refused = await browser.post("/groups/billing/delete", {"confirm": "bil"})
            assert refused.status_code == 400
            await browser.act("/groups/billing/delete", {"confirm": "billing"})
            assert "billing" not in {one.group_id for one in await admin.list_groups()}
            await browser.get("/groups/billing", status=404)
            # A name with control characters is confirmed as the page shows it.
            await browser.act(f"{where}/delete", {"confirm": visible(HOSTILE)})
            assert HOSTILE not in {one.group_id for one in await admin.list_groups()}


async def test_a_page_of_ten_thousand_groups_costs_one_request_a_broker() -> None:
    listings = [
        GroupListing(f"group-{number:05}", "consumer", "Stable", GroupType.CONSUMER, NodeId(1))
        for number in range(GROUP_COUNT)
    ]
    asked: list[str] = []

    class Cluster:
        async def metadata(self, _topics: object) -> MetadataResponse:
            return MetadataResponse(brokers=[MetadataResponseBroker(node_id=1)])

    async def list_groups_of(_node: NodeId, **_: object) -> list[GroupListing]:
        asked.append("list")
        return listings

    admin = FakeAdmin(cluster=Cluster(), list_groups_of=list_groups_of)
    view = await groups(page_request(admin, query={"q": "group-0", "page": "3"}))
    table = table_of(view.context["sheet"])
    assert table.rows[0][0].value == "group-00200"
    assert len(table.rows) == 100
    assert table.listing is not None
    assert (table.listing.count, table.listing.count_of_all) == (GROUP_COUNT, GROUP_COUNT)
    assert asked == ["list"]


async def test_a_missing_right_is_named_with_the_command_that_grants_it() -> None:
    class Cluster:
        async def metadata(self, _topics: object) -> MetadataResponse:
            return MetadataResponse(brokers=[MetadataResponseBroker(node_id=1)])

    async def denied(*_: object, **_named: object) -> None:
        raise RefusedError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "denied")

    async def described(_group: str) -> GroupDescription:
        return GroupDescription("g", GroupType.CONSUMER, "Stable", "uniform", ())

    admin = group_admin(
        cluster=Cluster(), list_groups_of=denied, describe_group=described, group_offsets=denied
    )
    async with open_browser(admin) as browser:
        html = await browser.get("/groups")
        assert "lacks the right to describe on groups" in html
        html = await browser.get("/groups/g")
        assert "--operation describe --group g" in html
        assert "Stable" in html


async def test_members_show_what_they_still_wait_for() -> None:
    both = frozenset({ORDERS, TopicPartition("orders", 1)})
    waiting = GroupMemberDescription(
        "m1", None, "c", "/127.0.0.1", frozenset(), target=frozenset({ORDERS}), member_epoch=4
    )
    holding = GroupMemberDescription(
        "m2", "i", "c", "/127.0.0.1", both, target=both - {ORDERS}, member_epoch=4
    )

    async def described(_group: str) -> GroupDescription:
        return GroupDescription(
            "g", GroupType.CONSUMER, "Reconciling", "uniform", (waiting, holding), 5, 5
        )

    admin = group_admin(describe_group=described)
    view = await members(page_request(admin, path={"group": "g"}))
    sheet = view.context["sheet"]
    first, second = cells(table_of(sheet))
    assert first[-2:] == ["orders-0", ""]
    assert second[-2:] == ["", "orders-0"]
    async with open_browser(admin) as browser:
        html = await browser.get("/groups/g/members")
    assert "has not given up the partitions that others wait for" in html


async def test_an_old_group_of_streams_and_one_of_connect_are_named() -> None:
    async def described(_group: str) -> GroupDescription:
        return GroupDescription(
            "g", GroupType.CLASSIC, "Stable", "stream", (), protocol_type="consumer"
        )

    async def offsets(_group: str) -> None:
        raise RefusedError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator moves")

    async with open_browser(
        group_admin(describe_group=described, group_offsets=offsets)
    ) as browser:
        assert "Kafka Streams application of the classic protocol" in await browser.get("/groups/g")

    async def workers(_group: str) -> GroupDescription:
        return GroupDescription("g", GroupType.CLASSIC, "Stable", "", (), protocol_type="connect")

    async with open_browser(group_admin(describe_group=workers, group_offsets=offsets)) as browser:
        assert "workers of Kafka Connect" in await browser.get("/groups/g")


async def test_an_open_page_of_a_group_collects_its_lag(autojump_clock: object) -> None:
    committed = iter((1, 2, 2, 2))

    class Cluster:
        async def metadata(self, _topics: object) -> MetadataResponse:
            return MetadataResponse()

    async def group_offsets(_group: str) -> dict[TopicPartition, Committed]:
        return {ORDERS: Committed(Offset(next(committed)))}

    # The partition has no leader: its lag is unknown, and costs no request to a leader.
    admin = group_admin(cluster=Cluster(), group_offsets=group_offsets)
    (live,) = next(one for one in group_page.PAGES if one.name == "group").lives
    times = []
    async with aclosing(live.stream(page_request(admin, path={"group": "g"}))) as views:
        async for view in views:
            sheet = view.context["sheet"]
            assert isinstance(sheet, Sheet)
            plot = next(one for one in sheet.live_parts if isinstance(one, PlotPart))
            times.append(len(plot.times_ms))
            assert plot.times_ms[-1] == NOW_MS + 5_000 * (len(times) - 1)
            assert plot.series[0] == ("all partitions", (None,) * len(times))
            if len(times) == 3:
                break
    assert times == [1, 2, 3]


def test_a_plan_survives_its_form_and_a_forged_one_is_refused() -> None:
    rows = [ResetRow(ORDERS, 1, 5, 5), ResetRow(TopicPartition("a.b_c-d", 12), None, 0, 0)]
    assert parse_plan(plan_text(rows)) == {one.at: one.after for one in rows}
    for text in ("", "orders", "orders:0", "orders:0=x", "orders:-1=5", "orders:0=-1", ":0=1"):
        with pytest.raises(ConfigError):
            parse_plan(text)
    with pytest.raises(ConfigError):
        parse_plan(" ".join(f"orders:{index}=0" for index in range(1_001)))
