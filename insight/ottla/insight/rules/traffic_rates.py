"""Computes rates of traffic between two samples of counters, busiest first. Pure."""

from collections import defaultdict
from typing import NamedTuple

from ottla.insight.facts.traffic_driver import TrafficSample
from ottla.model.ids import TopicPartition

CPU = "process.cpu.seconds"
REQUESTS = "requests.answered"
TOPIC_COUNTERS = ("bytes_in", "bytes_out", "messages_in", "produce_requests", "fetch_requests")

CLIENT_COUNTERS = ("bytes_in", "bytes_out", "requests", "used_ns")
NS_PER_PERCENT = 10_000_000
"""Number of nanoseconds in one percent of a second."""


class BrokerRates(NamedTuple):
    """Rates of one broker's traffic per second, between two samples."""

    broker: int
    cpu_percent: float
    """CPU time of the broker's process, in percent of one core."""
    requests: float
    bytes_in: float
    bytes_out: float


class TopicRates(NamedTuple):
    """Rates of one topic's traffic per second, over all brokers."""

    topic: str
    bytes_in: float
    bytes_out: float
    messages_in: float
    produce_requests: float
    fetch_requests: float


class PartitionRates(NamedTuple):
    """Growth of one partition's log in bytes per second."""

    topic: str
    partition: int
    bytes_in: float
    size_bytes: int


class ClientRates(NamedTuple):
    """Rates of one client's requests per second, over all brokers."""

    user: str
    client_id: str
    bytes_in: float
    """Bytes of the client's requests, which contain the records that it produces."""
    bytes_out: float
    """Bytes of the responses to the client, which contain the records that it fetches."""
    requests: float
    cpu_percent: float
    """Processing time of the client's requests, in percent of one core."""


class QuotaRates(NamedTuple):
    """Usage of one quota by one client, over all brokers: its rate and throttle time."""

    user: str
    client_id: str
    quota: str
    rate: float
    throttle_ms: int


class TrafficRates(NamedTuple):
    """Rates of brokers, topics, partitions, clients and quotas between two samples, busiest
    first."""

    brokers: list[BrokerRates]
    topics: list[TopicRates]
    partitions: list[PartitionRates]
    clients: list[ClientRates]
    quotas: list[QuotaRates]


def rates_between(before: TrafficSample, after: TrafficSample) -> TrafficRates:
    """Return the rates of traffic between two samples of counters. If a broker restarted in
    between, its counters are assumed to start at 0."""
    seconds = max(after.at_s - before.at_s, 1e-3)
    topics: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(TOPIC_COUNTERS))
    brokers = []
    for broker, figures in sorted(after.figures.items()):
        if broker not in before.figures:
            continue
        earlier = {one.topic: one for one in before.topics.get(broker, ())}
        sums = [0.0] * len(TOPIC_COUNTERS)
        for one in after.topics.get(broker, ()):
            for at, name in enumerate(TOPIC_COUNTERS):
                known = getattr(earlier[one.topic], name) if one.topic in earlier else 0
                if grown := _grown(known, getattr(one, name)):
                    topics[one.topic][at] += grown / seconds
                    sums[at] += grown / seconds
        cpu_s = _grown(before.figures[broker].get(CPU, 0), figures.get(CPU, 0))
        requests = _grown(before.figures[broker].get(REQUESTS, 0), figures.get(REQUESTS, 0))
        brokers.append(
            BrokerRates(broker, 100 * cpu_s / seconds, requests / seconds, sums[0], sums[1])
        )
    rows = [TopicRates(topic, *rates) for topic, rates in topics.items() if any(rates)]
    return TrafficRates(
        sorted(brokers, key=lambda one: (-one.cpu_percent, one.broker)),
        sorted(rows, key=lambda one: (-(one.bytes_in + one.bytes_out), one.topic)),
        _partitions(before, after, seconds),
        _clients(before, after, seconds),
        _quotas(after),
    )


def _partitions(
    before: TrafficSample, after: TrafficSample, seconds: float
) -> list[PartitionRates]:
    rows = [
        PartitionRates(*at, (size - before.sizes[at]) / seconds, size)
        for at, size in after.sizes.items()
        if size > before.sizes.get(at, size)
    ]
    return sorted(rows, key=lambda one: (-one.bytes_in, TopicPartition(one.topic, one.partition)))


def _clients(before: TrafficSample, after: TrafficSample, seconds: float) -> list[ClientRates]:
    found: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0] * len(CLIENT_COUNTERS))
    for broker, clients in after.clients.items():
        earlier = {(one.user, one.client_id): one for one in before.clients.get(broker, ())}
        for one in clients:
            known = earlier.get((one.user, one.client_id))
            rates = found[one.user, one.client_id]
            for at, name in enumerate(CLIENT_COUNTERS):
                count = 0 if known is None else getattr(known, name)
                rates[at] += _grown(count, getattr(one, name)) / seconds
    rows = [
        ClientRates(*names, bytes_in, bytes_out, requests, used_ns / NS_PER_PERCENT)
        for names, (bytes_in, bytes_out, requests, used_ns) in found.items()
        if requests
    ]
    return sorted(rows, key=lambda one: (-(one.bytes_in + one.bytes_out), one))


def _quotas(sample: TrafficSample) -> list[QuotaRates]:
    found: dict[tuple[str, str, str], tuple[float, int]] = {}
    for one in sample.quotas:
        key = one.user, one.client_id, one.key
        rate, throttle_ms = found.get(key, (0.0, 0))
        found[key] = rate + one.rate, max(throttle_ms, one.throttle_ms)
    rows = [QuotaRates(*key, *value) for key, value in found.items()]
    return sorted(rows, key=lambda one: (-one.rate, one))


def _grown(before: float, after: float) -> float:
    return after - before if after >= before else after
