"""Pages of brokers and topics against a real broker, and with hostile names and 10,000 topics."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio

from ottla.client import RefusedError, open_admin, open_producer
from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_brokers import LogDirDescription, ReplicaOnDisk
from ottla.client.admin_parts.admin_topics import PartitionDescription, TopicDescription
from ottla.client.testing import ClusterUnderTest
from ottla.client.testing.fixtures import ottla_cluster
from ottla.console.page_types import UserRole
from ottla.console.views.brokers import broker, brokers
from ottla.console.views.overview import overview
from ottla.console.views.topic import topic, topic_settings
from ottla.console.views.topics import parse_settings, sizes_of, topics
from ottla.model.errors import ConfigError, ErrorCode
from ottla.model.ids import ZERO_UUID, Epoch, NodeId, Offset, TopicPartition
from tests.console.console_fixture import Browser, FakeAdmin, open_browser, page_request

__all__ = ["ottla_cluster"]

HOSTILE = "<script>alert(1)</script>\"'&\x1b[31m\u202e\udcff{{7*7}}"


@asynccontextmanager
async def console_of(
    cluster: ClusterUnderTest, role: UserRole = UserRole.ADMIN
) -> AsyncIterator[tuple[Browser, Admin]]:
    with trio.fail_after(150):
        async with (
            open_admin(cluster.bootstrap) as admin,
            open_browser(admin, bootstrap=cluster.bootstrap, role=role) as browser,
        ):
            yield browser, admin


async def test_a_topic_from_its_creation_to_its_end(ottla_cluster: ClusterUnderTest) -> None:
    async with console_of(ottla_cluster) as (browser, admin):
        assert "There is no topic yet." in await browser.get("/topics")
        html = await browser.act(
            "/topics/create",
            {"name": "orders", "partitions": "3", "settings": "retention.ms=86400000\n"},
        )
        assert "Topic orders was created." in html
        assert len((await admin.describe_topic("orders")).partitions) == 3
        assert (await admin.topic_configs("orders"))["retention.ms"].value == "86400000"
        html = await browser.act("/topics/orders/partitions/add", {"total": "5"})
        assert "Topic orders has 5 partitions." in html
        assert len((await admin.describe_topic("orders")).partitions) == 5
        refused = await browser.post("/topics/orders/delete", {"confirm": "order"})
        assert refused.status_code == 400
        assert await admin.list_topics() == ["orders"]
        html = await browser.act("/topics/orders/delete", {"confirm": "orders"})
        assert "Topic orders was deleted." in html
        assert await admin.list_topics() == []
        assert [one["action"] for one in browser.audit.lines] == [
            "topic-create",
            "topic-add-partitions",
            "topic-delete",
            "topic-delete",
        ]


async def test_records_are_deleted_before_an_offset_or_all(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async with (
        console_of(ottla_cluster) as (browser, admin),
        open_producer(ottla_cluster.bootstrap) as producer,
    ):
        await admin.create_topic("t", partition_count=2)
        for number in range(5):
            await producer.send("t", b"%d" % number, partition=1)
        await producer.flush()
        form = {"confirm": "t", "partition": "1", "before": "3"}
        refused = await browser.post("/topics/t/trim", {**form, "confirm": "x"})
        assert refused.status_code == 400
        html = await browser.act("/topics/t/trim", form)
        assert "It now begins in partition 1 at 3." in html
        refused = await browser.post("/topics/t/trim", {**form, "before": "9"})
        assert "partition 1: " in refused.text
        assert refused.status_code == 409
        refused = await browser.post("/topics/t/trim", {**form, "before": ""})
        assert refused.status_code == 400
        html = await browser.act("/topics/t/trim", {"confirm": "t", "all": "1"})
        assert "partition 0 at 0, 1 at 5." in html
        html = await browser.act("/topics/t/elect")
        assert "0 partitions of topic t got another leader." in html


async def test_a_refused_change_shows_the_reason(ottla_cluster: ClusterUnderTest) -> None:
    async with console_of(ottla_cluster) as (browser, admin):
        await admin.create_topic("t")
        for path, form, status, reason in (
            ("/topics/create", {"name": "t"}, 409, "TOPIC_ALREADY_EXISTS"),
            ("/topics/create", {"name": ""}, 400, "has 1 to 249 characters"),
            ("/topics/create", {"name": "x", "partitions": "-1"}, 400, "a whole number from 1 on"),
            ("/topics/create", {"name": "x", "settings": "a"}, 400, "it must be KEY=VALUE"),
            ("/topics/t/partitions/add", {"total": "1"}, 409, "INVALID_PARTITIONS"),
            ("/topics/t/partitions/add", {"total": "many"}, 400, "whole number from 1 on"),
            ("/topics/t/settings/alter", {"key": "no.such"}, 409, "INVALID_CONFIG"),
            ("/topics/none/delete", {"confirm": "none"}, 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ):
            response = await browser.post(path, form)
            assert (response.status_code, reason in response.text) == (status, True), response.text


async def test_a_change_that_deletes_records_is_made_once_it_is_accepted(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async with console_of(ottla_cluster) as (browser, admin):
        await admin.create_topic("t")
        change = {"key": "retention.ms", "value": "1000"}
        asked = await browser.post("/topics/t/settings/alter", change)
        assert "retention.ms=1000 deletes records that retention.ms=604800000 keeps" in asked.text
        assert 'href="/topics/t/settings?sort=-key"' in asked.text
        assert (await admin.topic_configs("t"))["retention.ms"].value == "604800000"
        html = await browser.act("/topics/t/settings/alter", {**change, "accept": "1"})
        assert "retention.ms of topic t is 1000 now." in html
        html = await browser.act("/topics/t/settings/alter", {"key": "retention.ms", "reset": "1"})
        assert "retention.ms of topic t has its default again." in html
        assert (await admin.topic_configs("t"))["retention.ms"].value == "604800000"


async def test_viewers_see_no_forms_and_operators_delete_no_topics(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async with console_of(ottla_cluster, UserRole.VIEWER) as (browser, admin):
        await admin.create_topic("t")
        for path in ("/topics", "/topics/t", "/topics/t/settings", "/topics/t/records"):
            assert 'method="post"' not in await browser.get(path)
        assert (await browser.post("/topics/create", {"name": "x"})).status_code == 403
    async with console_of(ottla_cluster, UserRole.OPERATOR) as (browser, admin):
        refused = await browser.post("/topics/t/delete", {"confirm": "t"})
        assert (refused.status_code, await admin.list_topics()) == (403, ["t"])
        change = {"key": "retention.ms", "value": "1000", "accept": "1"}
        refused = await browser.post("/topics/t/settings/alter", change)
        assert refused.status_code == 403
        assert "because retention.ms=1000 deletes records" in refused.text
        await browser.act("/topics/t/settings/alter", {"key": "segment.ms", "value": "1000"})


async def test_partitions_and_settings_of_a_topic(ottla_cluster: ClusterUnderTest) -> None:
    async with (
        console_of(ottla_cluster) as (_, admin),
        open_producer(ottla_cluster.bootstrap) as producer,
    ):
        await admin.create_topic("t", partition_count=2, configs={"min.insync.replicas": "1"})
        for _ in range(3):
            await producer.send("t", b"x" * 100, partition=1)
        await producer.flush()
        view = await topic(page_request(admin, path={"topic": "t"}))
        rows: Any = view.context["partitions"]
        found = [(one.leader, one.start_offset, one.end_offset, one.kind) for one in rows.rows]
        assert found == [(1, 0, 0, "good"), (1, 0, 3, "good")]
        assert rows.rows[1].size_bytes > 300
        assert rows.rows[1].eligible == ()
        view = await topic_settings(page_request(admin, path={"topic": "t"}))
        settings: Any = view.context["settings"]
        own = {one.key: one for one in settings.rows}["min.insync.replicas"]
        assert (own.value, own.default, own.source, own.is_changed) == ("1", "1", "topic", True)
        with pytest.raises(RefusedError) as refused:
            await topic(page_request(admin, path={"topic": "none"}))
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_the_overview_shows_health_disks_changes_and_rates(
    ottla_cluster: ClusterUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.console.history.rate_history_driver.SAMPLE_S_MIN", 0.0)
    async with (
        console_of(ottla_cluster) as (browser, admin),
        open_producer(ottla_cluster.bootstrap) as producer,
    ):
        await admin.create_topic("orders")
        first = await browser.get("/")
        assert "no cause found" in first
        assert "They appear here after some seconds." in first
        await producer.send("orders", b"x" * 1_000)
        await producer.flush()
        request = page_request(admin)
        view = await overview(request)
        totals: Any = view.context["totals"]
        assert [one.topic for one in totals.topics] == ["orders"]
        brokers: Any = view.context["brokers"]
        assert [(one.kind, one.standing) for one in brokers] == [("good", "active")]
        assert 0 < brokers[0].disks[0].used_share < 1
        last_hour: Any = view.context["last_hour"]
        assert last_hour.is_available


async def test_brokers_with_metrics_and_settings(ottla_cluster: ClusterUnderTest) -> None:
    async with console_of(ottla_cluster) as (browser, admin):
        await admin.create_topic("t", partition_count=4)
        rows: Any = None
        while rows is None or rows.rows[0].leader_count < 4:  # the broker applies its metadata
            rows = (await brokers(page_request(admin))).context["brokers"]
        assert [(one.id, one.leader_count, one.replica_count) for one in rows.rows] == [(1, 4, 4)]
        html = await browser.get("/brokers/1?settings=all&q=node.id")
        assert "node.id" in html
        assert "partitions.led" in html
        assert "there is no broker 7" in await browser.get("/brokers/7", 404)
        assert "is not the id of a broker" in await browser.get("/brokers/one", 404)
        view = await broker(page_request(admin, path={"broker": "1"}, query={"settings": "all"}))
        assert view.context["setting_count"] > 100  # type: ignore[operator]


def described(name: str, partition_count: int = 1) -> TopicDescription:
    one = NodeId(1)
    partitions = [
        PartitionDescription(number, one, Epoch(0), (one,), (one,), ())
        for number in range(partition_count)
    ]
    return TopicDescription(name, ZERO_UUID, False, tuple(partitions))


class ManyTopics:
    """Admin client of a cluster with many topics, which counts the described ones."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.described: list[str] = []

    async def list_topic_names(self) -> list[str]:
        return self.names

    async def describe_topics(self, names: list[str], **_: Any) -> dict[str, Any]:
        self.described += names
        return {one: described(one) for one in names if "none" not in one}


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the requests for rates and sizes, which need a cluster."""

    async def nothing(*_: Any, **__: Any) -> None:
        return None

    monkeypatch.setattr("ottla.console.views.topics.rates_of", nothing)
    monkeypatch.setattr("ottla.console.views.topics.replica_directories", nothing)


@pytest.mark.usefixtures("quiet")
async def test_a_page_of_ten_thousand_topics_describes_only_its_rows() -> None:
    admin = ManyTopics([f"topic-{number:05}" for number in range(10_000)])
    view = await topics(page_request(admin, query={"page": "100"}))
    found: Any = view.context["topics"]
    assert (len(found.rows), found.count, found.page_count) == (100, 10_000, 100)
    assert admin.described == [f"topic-{number:05}" for number in range(9_900, 10_000)]
    admin.described.clear()
    await topics(page_request(admin, query={"q": "C-0577"}))
    assert admin.described == [f"topic-0577{number}" for number in range(10)]


@pytest.mark.usefixtures("quiet")
async def test_hostile_names_are_shown_as_text() -> None:
    names = [HOSTILE, "a" * 32_000, "none", "..", "/", "%2e%2e"]
    async with open_browser(ManyTopics(names)) as browser:
        html = await browser.get("/topics")
    assert_harmless(html)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert r"\x1b[31m\u202e\udcff{{7*7}}" in html
    assert "the page has more than 2,000 partitions" in html
    assert 'href="/topics/~.."' in html
    assert 'href="/topics/%2F"' in html


@pytest.mark.usefixtures("quiet")
async def test_a_topic_without_leader_leads_to_the_explanation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def nothing(*_: Any, **__: Any) -> None:
        return None

    async def describe_topics(names: list[str], **_: Any) -> dict[str, TopicDescription]:
        found = described(names[0], 2)
        lost = found.partitions[1]._replace(leader=None, in_sync=(), eligible=(NodeId(1),))
        return {names[0]: replace(found, partitions=(found.partitions[0], lost))}

    async def known_offsets(*_: Any) -> dict[Any, int]:
        return {}

    for name, call in (
        ("rates_of", nothing),
        ("_is_tiered", nothing),
        ("replica_directories", nothing),
        ("known_offsets", known_offsets),
    ):
        monkeypatch.setattr(f"ottla.console.views.topic.{name}", call)
    async with open_browser(FakeAdmin(describe_topics=describe_topics)) as browser:
        html = await browser.get(browser.address("topic", topic=HOSTILE.replace("\udcff", "")))
    assert_harmless(html)
    assert "no leader" in html
    assert 'href="/explain/unavailable?topic=%3Cscript%3E' in html


def assert_harmless(html: str) -> None:
    assert "<script>" not in html
    assert "\x1b" not in html
    assert "\u202e" not in html
    assert "49" not in html.split("{{7*7}}")[0][-3:]


def test_settings_of_a_form_are_parsed() -> None:
    assert parse_settings(" a = 1 \n\nb=x=y\r\n") == {"a": "1", "b": "x=y"}
    for text in ("a", "=1", "a=1\nb", "a=1\n" * 101, "x" * 30_000):
        with pytest.raises(ConfigError):
            parse_settings(text)


async def test_each_broker_is_asked_for_the_sizes_of_its_replicas_only() -> None:
    asked: dict[int, list[TopicPartition]] = {}

    async def describe_log_dirs(node: NodeId, places: list[TopicPartition]) -> list[Any]:
        asked[node] = places
        if node == 3:
            raise RefusedError(ErrorCode.BROKER_NOT_AVAILABLE, "not now")
        replicas = {one: ReplicaOnDisk(10 * node, Offset(0), False) for one in places}
        return [LogDirDescription("/d", ErrorCode.NONE, None, None, replicas)]

    a, b = described("a", 2), described("b")
    moved = a.partitions[1]._replace(replicas=(NodeId(1), NodeId(2)))
    lost = b.partitions[0]._replace(replicas=(NodeId(3),))
    found: Any = [
        replace(a, partitions=(a.partitions[0], moved)),
        replace(b, partitions=(lost,)),
        RefusedError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no"),
    ]
    admin: Any = FakeAdmin(describe_log_dirs=describe_log_dirs)
    assert await sizes_of(admin, found) == {"a": 40}
    assert asked == {
        1: [TopicPartition("a", 0), TopicPartition("a", 1)],
        2: [TopicPartition("a", 1)],
        3: [TopicPartition("b", 0)],
    }
    assert await sizes_of(admin, found[1:]) is None
    assert await sizes_of(admin, found[2:]) == {}
