"""Lists the busiest clients, topics, partitions and brokers between two samples of traffic.
Pure."""

from collections.abc import Iterator, Mapping

from ottla.insight.explanation import Explanation, FactTable, concluded
from ottla.insight.facts.cluster_facts import ClusterFacts
from ottla.insight.rules.traffic_rates import (
    BrokerRates,
    ClientRates,
    QuotaRates,
    TrafficRates,
    rates_between,
)
from ottla.model.settings.quotas import REQUEST_PERCENTAGE

ROWS_MAX = 10
"""Maximum number of rows in each table of the busiest clients, topics, partitions and brokers."""
REQUESTS = "requests"
CLIENTS = (
    "user",
    "client id",
    "bytes in per second",
    "bytes out per second",
    "requests per second",
    "cpu percent",
)
QUOTAS = ("user", "client id", "quota", "usage per second", "throttle in ms")
TOPICS = (
    "topic",
    "bytes in per second",
    "bytes out per second",
    "records in per second",
    "produce requests per second",
    "fetch requests per second",
)
PARTITIONS = ("topic", "partition", "bytes in per second", "bytes")
BROKERS = (
    "broker",
    "cpu percent",
    "requests per second",
    "bytes in per second",
    "bytes out per second",
)


def explain_top(facts: ClusterFacts, values: Mapping[str, str]) -> Explanation:
    """Return an explanation with tables of the busiest clients, topics, partitions and brokers,
    sorted by bytes or by requests."""
    unknown = list(facts.unknown)
    if facts.traffic is None:
        return concluded("top", "the cluster", [], unknown=unknown or ["traffic: not read"])
    before, after = facts.traffic
    rates = rates_between(before, after)
    is_by_requests = values.get("by") == REQUESTS
    unknown += [f"traffic of broker {one}: {why}" for one, why in sorted(after.failures.items())]
    return concluded(
        "top",
        f"the cluster by {REQUESTS if is_by_requests else 'bytes'}",
        [],
        tables=[
            FactTable("clients", CLIENTS, tuple(_clients(rates, is_by_requests=is_by_requests))),
            FactTable("quotas", QUOTAS, tuple(_quotas(rates, is_by_requests=is_by_requests))),
            FactTable("topics", TOPICS, tuple(_topics(rates, is_by_requests=is_by_requests))),
            FactTable("partitions", PARTITIONS, tuple(_partitions(rates))),
            FactTable("brokers", BROKERS, tuple(_brokers(rates, is_by_requests=is_by_requests))),
        ],
        unknown=unknown,
    )


def _clients(
    rates: TrafficRates, *, is_by_requests: bool
) -> Iterator[tuple[str | None, str | None, int, int, int, int]]:
    def load(one: ClientRates) -> float:
        return one.requests if is_by_requests else one.bytes_in + one.bytes_out

    for one in sorted(rates.clients, key=load, reverse=True)[:ROWS_MAX]:
        yield (
            one.user or None,
            one.client_id or None,
            round(one.bytes_in),
            round(one.bytes_out),
            round(one.requests),
            round(one.cpu_percent),
        )


def _quotas(
    rates: TrafficRates, *, is_by_requests: bool
) -> Iterator[tuple[str | None, str | None, str, int, int]]:
    """Yield table rows of clients that have quotas. The rows show the usage of request quotas if
    `is_by_requests`, otherwise the usage of all other quotas."""

    def is_other(one: QuotaRates) -> bool:
        return (one.quota == REQUEST_PERCENTAGE) != is_by_requests

    for one in sorted(rates.quotas, key=is_other)[:ROWS_MAX]:
        usage = round(one.rate)
        yield one.user or None, one.client_id or None, one.quota, usage, one.throttle_ms


def _topics(
    rates: TrafficRates, *, is_by_requests: bool
) -> Iterator[tuple[str, int, int, int, int, int]]:
    found = rates.topics
    if is_by_requests:
        found = sorted(found, key=lambda one: -(one.produce_requests + one.fetch_requests))
    for one in found[:ROWS_MAX]:
        yield (
            one.topic,
            round(one.bytes_in),
            round(one.bytes_out),
            round(one.messages_in),
            round(one.produce_requests),
            round(one.fetch_requests),
        )


def _partitions(rates: TrafficRates) -> Iterator[tuple[str, int, int, int]]:
    for one in rates.partitions[:ROWS_MAX]:
        yield one.topic, one.partition, round(one.bytes_in), one.size_bytes


def _brokers(
    rates: TrafficRates, *, is_by_requests: bool
) -> Iterator[tuple[int, int, int, int, int]]:
    def load(one: BrokerRates) -> float:
        return one.requests if is_by_requests else one.bytes_in + one.bytes_out

    for one in sorted(rates.brokers, key=lambda one: (-load(one), one.broker))[:ROWS_MAX]:
        yield (
            one.broker,
            round(one.cpu_percent),
            round(one.requests),
            round(one.bytes_in),
            round(one.bytes_out),
        )
