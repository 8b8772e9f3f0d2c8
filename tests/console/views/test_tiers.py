"""Page of tiered storage."""

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.client import open_admin
from ottla.client.testing import open_test_cluster
from ottla.console.sheets import NotePart, TablePart
from ottla.console.views.storage import tiers
from ottla.console.views.topic import topic
from ottla.insight.facts.survey_driver import SurveyedBroker
from ottla.insight.facts.topics.tier_driver import TieredPartition
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from tests.console.console_fixture import FakeAdmin, open_browser, page_request
from tests.console.views.test_rows_of_pages import sheet_of

PROBLEM = "tiered storage: copies of 1 partition fail, for 5 min by now: the store is down"


def broker(node: int) -> SurveyedBroker:
    return SurveyedBroker(id=node, host="127.0.0.1", port=1, rack=None, is_fenced=False)


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    """A cluster of a broker with tiered storage and one without, and 120 tiered topics."""
    tiered = broker(1)
    tiered.metrics = {
        "tier.remote.bytes": 5e9,
        "tier.remote.segments": 5.0,
        "tier.lag.bytes": 2048.0,
        "tier.relief.bytes": 7.0,
        "tier.failures": 3.0,
        "tier.copy.limit": 1000.0,
        "tier.copy.rate": 990.0,
    }
    tiered.problems = [PROBLEM, "another problem"]

    async def survey_nodes(_: Any) -> Any:
        return SimpleNamespace(brokers=[tiered, broker(2)])

    async def tiered_topics(_: Any, names: list[str]) -> list[str]:
        return names

    async def tiered_partitions(_: Any, topic: str) -> list[TieredPartition]:
        read.append(topic)
        return [TieredPartition(TopicPartition(topic, at), 10, 70, 89, 100) for at in (0, 1)]

    async def list_topics() -> list[str]:
        return [f"topic-{number:03}" for number in range(120)]

    read: list[str] = []
    monkeypatch.setattr(tiers, "survey_nodes", survey_nodes)
    monkeypatch.setattr(tiers, "tiered_topics", tiered_topics)
    monkeypatch.setattr(tiers, "tiered_partitions", tiered_partitions)
    return FakeAdmin(list_topics=list_topics, read=read)


async def test_topics_show_what_only_one_place_has(admin: Any) -> None:
    view = await tiers.tiers(page_request(admin))
    parts = sheet_of(view).parts
    assert [one.text for one in parts if isinstance(one, NotePart)] == [f"broker 1: {PROBLEM}"]
    brokers, limits, topics = [one for one in parts if isinstance(one, TablePart)]
    assert [[cell.value for cell in row] for row in limits.rows] == [[1, 990, 1000, None, None]]
    assert [[cell.value for cell in row] for row in brokers.rows] == [[1, 5e9, 5, 2048, 7, 3]]
    assert [cell.value for cell in topics.rows[0]] == ["topic-000", 2, 120, 20]
    assert len(admin.read) == len(topics.rows) < 120, "only the topics of the page are read"
    async with open_browser(admin) as browser:
        assert "Only" not in await browser.get("/tiers?q=topic-119")


async def test_refused_facts_are_named(admin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(*_: Any) -> Any:
        raise RefusedError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    monkeypatch.setattr(tiers, "survey_nodes", refused)
    monkeypatch.setattr(tiers, "tiered_topics", refused)
    parts = sheet_of(await tiers.tiers(page_request(admin))).parts
    notes = [one.text for one in parts if isinstance(one, NotePart)]
    assert len(notes) == 2
    assert all("lacks the right" in one for one in notes)


async def test_the_pages_of_a_topic_and_a_broker_show_both_tiers() -> None:
    settings = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.uri": "memory:",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.min.isr": "1",
    }
    with trio.fail_after(60):
        async with (
            open_test_cluster(settings=settings) as cluster,
            open_admin(cluster.bootstrap) as admin,
            open_browser(admin, bootstrap=cluster.bootstrap) as browser,
        ):
            await admin.create_topic("local")
            await admin.create_topic("orders", configs={"remote.storage.enable": "true"})
            html = await browser.get("/topics/local")
            assert "Local start" not in html
            assert "Records only there" not in html
            html = await browser.get("/topics/orders")
            for title in ("Local start", "Copied to", "Only in the object store", "only there"):
                assert title in html
            view = await topic(page_request(admin, path={"topic": "orders"}))
            rows: Any = view.context["partitions"]
            (row,) = rows.rows
            assert (row.local_start_offset, row.copied_offset, row.only_copied) == (0, -1, 0)
            html = await browser.get("/brokers/1")
            assert "in 0 segments of the partitions that it leads" in html
