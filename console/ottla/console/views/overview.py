"""Overview, the first page of the console. It shows the cluster's health with reasons, brokers and
disks, rates, and the changes of the last hour."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import trio

from ottla.client.admin import Admin
from ottla.client.network.connection import ConnectionLostError
from ottla.console.cluster_rows import broker_rows
from ottla.console.history.rate_history_driver import traffic_rates
from ottla.console.live_views import every
from ottla.console.page_types import Live, Page, PageRequest, PageView
from ottla.console.shared_facts_driver import (
    known_partition_count,
    known_totals,
    latest_changes,
    partition_totals,
)
from ottla.insight.answers_driver import RULES
from ottla.insight.facts.cluster_facts import ClusterFacts
from ottla.insight.facts.partition_totals_driver import PartitionTotals
from ottla.insight.facts.survey_driver import Survey, survey_nodes
from ottla.insight.rules.traffic_rates import TopicRates, TrafficRates
from ottla.model.errors import ErrorCode, OttlaError, RefusedError
from ottla.model.values import frozen
from ottla.wire.messages.describe_metadata_changes_response import MetadataChange

LIVE_S = 10.0
"""Seconds between two updates of the overview while its page is open."""
FIRST_S = 0.25
"""Maximum seconds for reading information before the overview is sent. Information that arrives
later is missing at first."""
FACT_S = 15.0
"""Timeout, in seconds, of one request for the part of the page that is updated while the page is
open."""
PARTITIONS_AT_ONCE = 1_000
"""Maximum number of partitions whose state is part of the page itself. In a larger cluster, the
page's live part contains these states."""
NODES, PARTITIONS = "state of the nodes", "state of the partitions"
HOUR_MS = 3_600_000
CHANGES_MAX = 40
CHANGES_S = 3.0
RATES_S = 3.0
BROKERS_MAX = 100
TOPICS_MAX = 5


@frozen(kw_only=True)
class LastHour:
    """Changes of the cluster's metadata in the last hour, newest first."""

    changes: tuple[MetadataChange, ...] = ()
    is_complete: bool = True
    is_available: bool = True
    """False if the cluster does not support requests for changes of the metadata, as in Apache
    Kafka."""
    problem: str = ""
    """Reason why the changes of the metadata are unknown, as a sentence. Empty if they are
    known."""


@frozen(kw_only=True)
class ClusterTotals:
    """Traffic rates of the whole cluster per second."""

    bytes_in: float
    bytes_out: float
    messages_in: float
    requests: float
    topics: tuple[TopicRates, ...]
    """Traffic rates of the busiest topics, per second."""


@frozen(kw_only=True)
class ClusterState:
    """State of the cluster. Information that could not be read is missing."""

    nodes: Survey | None = None
    """State of the quorum and of the brokers, without partitions."""
    totals: PartitionTotals | None = None
    last_hour: LastHour | None = None
    rates: TrafficRates | None = None
    missing: tuple[tuple[str, str], ...] = ()
    """Noun phrases for missing information, each with the reason why it could not be read."""


class _Reader:
    """Reader of the cluster's state in several steps. A page can show the results of the steps that
    have succeeded."""

    def __init__(self, admin: Admin, now_ms: int) -> None:
        self._admin = admin
        self._now_ms = now_ms
        self._found: dict[str, Any] = {}
        self._missing: dict[str, str] = {}

    @property
    def state(self) -> ClusterState:
        """State of the cluster that was read so far."""
        return ClusterState(missing=tuple(sorted(self._missing.items())), **self._found)

    async def read_small(self) -> None:
        """Read the parts of the cluster's state whose size does not depend on the number of
        partitions."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read, "nodes", NODES, survey_nodes)
            nursery.start_soon(self._read_changes)
            nursery.start_soon(self._read_rates)

    async def read_partitions(self) -> None:
        """Read the state of all partitions."""
        await self._read("totals", PARTITIONS, partition_totals)

    async def _read(
        self, name: str, noun: str, reader: Callable[[Admin], Awaitable[object]]
    ) -> None:
        try:
            with trio.fail_after(FACT_S):
                self._found[name] = await reader(self._admin)
        except trio.TooSlowError:
            self._missing[noun] = f"no answer in {FACT_S:g} s"
        except OttlaError as error:
            self._missing[noun] = str(error)

    async def _read_changes(self) -> None:
        self._found["last_hour"] = await changes_of_last_hour(self._admin, self._now_ms)

    async def _read_rates(self) -> None:
        with trio.move_on_after(RATES_S):
            self._found["rates"] = await traffic_rates(self._admin)


async def overview(request: PageRequest) -> PageView:
    """Return the view of the cluster's complete state."""
    reader = _Reader(request.admin, request.now_ms)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader.read_small)
        nursery.start_soon(reader.read_partitions)
    return view_of(reader.state, request.now_ms)


async def first_overview(request: PageRequest) -> PageView:
    """Return the overview with the facts that are available at once. The page's live part, which is
    updated while the page is open, adds the state of many partitions and of slow nodes."""
    if request.query.get("whole", "") == "1":
        return await overview(request)
    reader = _Reader(request.admin, request.now_ms)
    with trio.move_on_after(FIRST_S):
        await reader.read_small()
        if known_totals(request.admin) is not None or is_small(request.admin, reader.state.nodes):
            await reader.read_partitions()
    return view_of(reader.state, request.now_ms)


def is_small(admin: Admin, nodes: Survey | None) -> bool:
    """Return whether the state of all partitions fits into a small response. Also returns True if
    the number of partitions is unknown."""
    count = known_partition_count(admin)
    if count is None and nodes is not None:
        count = sum(one.leader_count or 0 for one in broker_rows(nodes.brokers, None))
    return count is None or count <= PARTITIONS_AT_ONCE


def view_of(state: ClusterState, now_ms: int) -> PageView:
    """Return the view of the cluster's state."""
    read = {noun for noun, _ in state.missing}
    awaited = tuple(
        (noun, "it is being read")
        for noun, value in ((NODES, state.nodes), (PARTITIONS, state.totals))
        if value is None and noun not in read
    )
    survey, totals = state.nodes, state.totals
    if survey is not None and totals is not None:
        survey = replace(survey, partitions=list(totals.troubled), min_insync=totals.min_insync)
    facts = ClusterFacts(now_ms=now_ms, missing=state.missing + awaited, survey=survey)
    brokers = [] if survey is None else broker_rows(survey.brokers, state.rates)
    return PageView(
        context={
            "health": RULES["health"](facts, {}),
            "is_awaited": bool(awaited),
            "brokers": brokers[:BROKERS_MAX],
            "broker_count": len(brokers),
            "counts": totals,
            "quorum": None if survey is None else survey.quorum,
            "totals": totals_of(state.rates),
            "denial": next((one.denial for one in brokers if one.denial), ""),
            "is_reported": any(one.is_reported for one in brokers),
            "last_hour": state.last_hour,
        }
    )


async def changes_of_last_hour(admin: Admin, now_ms: int) -> LastHour:
    """Return the changes of the cluster's metadata in the last hour, or the reason why they are
    unknown."""
    try:
        with trio.fail_after(CHANGES_S):
            found = await latest_changes(admin, since_ms=now_ms - HOUR_MS, count_max=CHANGES_MAX)
    except trio.TooSlowError:
        return LastHour(problem=f"no broker answered in {CHANGES_S:g} s")
    except RefusedError as refusal:
        if refusal.code is ErrorCode.UNSUPPORTED_VERSION:
            return LastHour(is_available=False)
        return LastHour(problem=refusal.message)
    except ConnectionLostError as error:
        return LastHour(problem=str(error))
    return LastHour(changes=found.changes, is_complete=found.is_complete)


def totals_of(rates: TrafficRates | None) -> ClusterTotals | None:
    """Return the traffic rates of the whole cluster, or None if they are unknown."""
    if rates is None:
        return None
    return ClusterTotals(
        bytes_in=sum(one.bytes_in for one in rates.brokers),
        bytes_out=sum(one.bytes_out for one in rates.brokers),
        messages_in=sum(one.messages_in for one in rates.topics),
        requests=sum(one.requests for one in rates.brokers),
        topics=tuple(rates.topics[:TOPICS_MAX]),
    )


PAGES = (
    Page(
        name="overview",
        path="/",
        title="Overview",
        command="ottla explain health",
        covers=("ottla status",),
        view=first_overview,
        section="Cluster",
        key="o",
        lives=(Live(name="overview", path="/live/overview", stream=every(LIVE_S, overview)),),
    ),
)
