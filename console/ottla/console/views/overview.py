"""Overview: the first page of the console, with the cluster's health and the reasons for it,
brokers and disks, rates, and the changes of the last hour."""

import trio

from ottla.client.admin import Admin
from ottla.client.network.connection import ConnectionLostError
from ottla.console.cluster_rows import broker_rows, partition_counts
from ottla.console.live_views import every
from ottla.console.page_types import Live, Page, PageRequest, PageView
from ottla.console.rate_history_driver import traffic_rates
from ottla.insight.answers_driver import RULES
from ottla.insight.facts.changes_driver import recent_changes
from ottla.insight.facts.cluster_facts import ClusterFacts
from ottla.insight.facts.facts_driver import gather
from ottla.insight.rules.traffic_rates import TopicRates, TrafficRates
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.values import frozen
from ottla.wire.messages.describe_metadata_changes_response import MetadataChange

LIVE_S = 10.0
"""Interval, in seconds, at which the live part of the overview is renewed. Health needs the
metadata of all partitions."""
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
    """False if the cluster has no request for changes of the metadata, as Apache Kafka."""
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
    """Rates of the busiest topics."""


async def overview(request: PageRequest) -> PageView:
    """Return the overview page, which shows the cluster's state."""
    admin = request.admin
    last_hour, rates = LastHour(), None
    facts: ClusterFacts | None = None

    async def read_facts() -> None:
        nonlocal facts
        facts = await gather(admin, "health", {})

    async def read_changes() -> None:
        nonlocal last_hour
        last_hour = await changes_of_last_hour(admin, request.now_ms)

    async def read_rates() -> None:
        nonlocal rates
        with trio.move_on_after(RATES_S):
            rates = await traffic_rates(admin)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read_facts)
        nursery.start_soon(read_changes)
        nursery.start_soon(read_rates)
    assert facts is not None
    survey = facts.survey
    brokers = [] if survey is None else broker_rows(survey.brokers, rates)
    return PageView(
        context={
            "health": RULES["health"](facts, {}),
            "brokers": brokers[:BROKERS_MAX],
            "broker_count": len(brokers),
            "counts": None if survey is None else partition_counts(survey.partitions),
            "quorum": None if survey is None else survey.quorum,
            "totals": totals_of(rates),
            "denial": next((one.denial for one in brokers if one.denial), ""),
            "is_reported": any(one.is_reported for one in brokers),
            "last_hour": last_hour,
        }
    )


async def changes_of_last_hour(admin: Admin, now_ms: int) -> LastHour:
    """Return the changes of the cluster's metadata in the last hour, or the reason why they are
    unknown."""
    try:
        with trio.fail_after(CHANGES_S):
            found = await recent_changes(admin, since_ms=now_ms - HOUR_MS, count_max=CHANGES_MAX)
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
        view=overview,
        section="Cluster",
        key="o",
        lives=(Live(name="overview", path="/live/overview", stream=every(LIVE_S, overview)),),
    ),
)
