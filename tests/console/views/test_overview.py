"""The overview of a cluster with many partitions: the page does not wait for all of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from ottla.console.shared_facts_driver import KEPT_S_MAX, PARTITIONS_PER_S
from ottla.console.views import overview as module
from ottla.console.views.overview import PARTITIONS_AT_ONCE, first_overview, overview
from ottla.insight.facts.survey_driver import Survey, SurveyedBroker, SurveyedQuorum
from ottla.model.errors import ErrorCode, RefusedError
from ottla.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.console.console_fixture import Browser, open_browser, page_request

MANY = 10_000


class PlayedAdmin:
    """Admin client of a cluster with one broker that leads all partitions but the first."""

    def __init__(self, partition_count: int) -> None:
        self.cluster = self
        self.partition_count = partition_count
        self.metadata_count = 0
        self.nodes_s = 0.0
        self.refusal: RefusedError | None = None

    async def request(self, request: Any, kind: Any) -> Any:
        if kind is not MetadataResponse:
            raise RefusedError(ErrorCode.UNSUPPORTED_VERSION, "no")
        self.metadata_count += 1
        if self.refusal is not None:
            raise self.refusal
        return MetadataResponse(
            topics=[
                MetadataResponseTopic(
                    name="orders",
                    partitions=[
                        MetadataResponsePartition(
                            partition_index=number,
                            leader_id=1 if number else -1,
                            replica_nodes=[1],
                            isr_nodes=[1],
                        )
                        for number in range(self.partition_count)
                    ],
                )
            ]
        )

    async def survey_nodes(self, _: Any) -> Survey:
        await trio.sleep(self.nodes_s)
        metrics = {"partitions.led": self.partition_count - 1.0}
        broker = SurveyedBroker(
            id=1, host="h", port=9092, rack=None, is_fenced=False, state="RUNNING", metrics=metrics
        )
        return Survey(
            cluster_id="c",
            quorum=SurveyedQuorum(leader_id=1),
            brokers=[broker],
            partitions=[],
            min_insync={},
        )


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the limit of the first page, and leave out the rates."""

    async def no_rates(_: Any) -> None:
        return None

    monkeypatch.setattr(module, "traffic_rates", no_rates)
    monkeypatch.setattr(module, "FIRST_S", 0.25)


@asynccontextmanager
async def browser_of(admin: PlayedAdmin, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Browser]:
    monkeypatch.setattr(module, "survey_nodes", admin.survey_nodes)
    async with open_browser(admin) as browser:
        yield browser


@pytest.mark.parametrize("count", [MANY, PARTITIONS_AT_ONCE + 2])
async def test_many_partitions_are_left_to_the_live_part(
    count: int, monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    admin = PlayedAdmin(count)
    async with browser_of(admin, monkeypatch) as browser:
        html = await browser.get("/")
        assert "no cause found" not in html
        assert "state of the partitions: it is being read" in html
        assert "Wait for the whole page" in html
        assert "Brokers and disks" in html
        assert admin.metadata_count == 0
        view = await overview(page_request(admin))
        health: Any = view.context["health"]
        assert health.causes[0].summary.startswith("1 partition without leader")
        assert not view.context["is_awaited"]
        # The page has the state of the live part while it is recent.
        html = await browser.get("/")
        assert "1 partition without leader: orders-0" in html
        assert f"{count:,}" in html
        assert "Wait for the whole page" not in html
        assert admin.metadata_count == 1
        await trio.sleep(min(KEPT_S_MAX, count / PARTITIONS_PER_S))
        assert "Wait for the whole page" in await browser.get("/")
        assert admin.metadata_count == 1


async def test_a_reader_without_scripts_waits_for_the_whole_page(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    async with browser_of(PlayedAdmin(MANY), monkeypatch) as browser:
        html = await browser.get("/?whole=1")
        assert "1 partition without leader: orders-0" in html


async def test_the_page_has_few_partitions_at_once(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    admin = PlayedAdmin(2)
    async with browser_of(admin, monkeypatch) as browser:
        for reads in 1, 2:
            assert "1 partition without leader: orders-0" in await browser.get("/")
            assert admin.metadata_count == reads
            await trio.sleep(1)


async def test_a_hanging_node_delays_the_page_briefly(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    admin = PlayedAdmin(2)
    admin.nodes_s = 3.0
    async with browser_of(admin, monkeypatch) as browser:
        began_s = trio.current_time()
        html = await browser.get("/")
        assert trio.current_time() - began_s == pytest.approx(0.25)
        assert "state of the nodes: it is being read" in html
        assert "no cause found" not in html
        view = await overview(page_request(admin))
        assert view.context["brokers"]
        assert not view.context["is_awaited"]


async def test_open_live_parts_share_one_request(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    admin = PlayedAdmin(MANY)
    monkeypatch.setattr(module, "survey_nodes", admin.survey_nodes)
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(overview, page_request(admin))
    assert admin.metadata_count == 1


async def test_a_refusal_is_shown_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    admin = PlayedAdmin(2)
    admin.refusal = RefusedError(ErrorCode.BROKER_NOT_AVAILABLE, "not yet")
    monkeypatch.setattr(module, "survey_nodes", admin.survey_nodes)
    view = await first_overview(page_request(admin))
    health: Any = view.context["health"]
    assert "state of the partitions: BROKER_NOT_AVAILABLE: not yet" in health.unknown
    assert not view.context["is_awaited"]
