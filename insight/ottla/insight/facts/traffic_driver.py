"""Reads the traffic counters of all brokers at one time, for `ottla top`.

Every broker is asked concurrently. A broker that does not respond in time is missing from the
sample.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import trio

from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_quotas import QuotaUsage
from ottla.insight.facts.log_dirs_driver import ask_bytes
from ottla.insight.facts.survey_driver import registered
from ottla.model.errors import OttlaError
from ottla.model.ids import NodeId, TopicPartition
from ottla.wire.messages.describe_node_request import DescribeNodeRequest
from ottla.wire.messages.describe_node_response import (
    DescribeNodeResponse,
    NodeClientTraffic,
    NodeTopicTraffic,
)

BROKER_TIMEOUT_S = 3.0
CLIENTS_MAX = 100
WATCH_MS = 30_000
"""Milliseconds for which brokers count the traffic of clients after a sample, unless the next
sample follows later."""


@dataclass(slots=True)
class TrafficSample:
    """Traffic counters of the brokers that responded, at one time."""

    at_s: float
    figures: dict[int, Mapping[str, float]] = field(default_factory=dict)
    """Metric values of each broker, by broker id and metric name."""
    topics: dict[int, list[NodeTopicTraffic]] = field(default_factory=dict)
    """Traffic counters of the topics on each broker, by broker id."""
    sizes: dict[TopicPartition, int] = field(default_factory=dict)
    """Size of the largest replica of each partition, in bytes."""
    quotas: list[QuotaUsage] = field(default_factory=list)
    """Usage of quotas by clients, from each broker."""
    clients: dict[int, list[NodeClientTraffic]] = field(default_factory=dict)
    """Traffic counters of the clients of each broker, by broker id. They start at 0 with the first
    sample."""
    failures: dict[int, str] = field(default_factory=dict)
    """Reason why the traffic counters of a broker are missing, by broker id."""


async def sample(admin: Admin, *, watch_ms: int = WATCH_MS) -> TrafficSample:
    """Return the traffic counters of all brokers, the sizes of partitions, and the usage of quotas.
    The brokers count the traffic of clients from the first sample on. They stop `watch_ms`
    milliseconds after the last sample.

    Raises ConnectionLostError if the broker that responds to this client stops. Any other broker
    that stops is left out."""
    found = await sample_counters(admin, watch_ms=watch_ms)
    for one in await ask_bytes(admin):
        for directory in one.directories:
            for at, replica in directory.replicas.items():
                found.sizes[at] = max(found.sizes.get(at, 0), replica.size_bytes)
    return found


async def sample_counters(admin: Admin, *, watch_ms: int = 0) -> TrafficSample:
    """Return the traffic counters of all brokers. With `watch_ms`, the result also contains the
    traffic of clients and the usage of quotas. The size of the responses depends on the number of
    topics with traffic, not on the number of partitions."""
    found = TrafficSample(trio.current_time())
    brokers = await registered(admin)
    async with trio.open_nursery() as nursery:
        for broker in brokers:
            if not broker.is_fenced:
                nursery.start_soon(_ask, admin, NodeId(broker.id), found, watch_ms)
    return found


async def _ask(admin: Admin, broker: NodeId, found: TrafficSample, watch_ms: int) -> None:
    with trio.move_on_after(BROKER_TIMEOUT_S) as scope:
        try:
            request = DescribeNodeRequest(include_traffic=True, watch_clients_ms=watch_ms)
            answer = await admin.cluster.request(request, DescribeNodeResponse, node=broker)
            found.figures[broker] = {one.name: one.value for one in answer.metrics}
            found.topics[broker] = answer.traffic
            if watch_ms:
                found.clients[broker] = answer.clients
                found.quotas += await admin.describe_quota_usage(broker, count_max=CLIENTS_MAX)
        except OttlaError as error:
            found.failures[broker] = str(error)
    if scope.cancelled_caught:
        found.failures[broker] = f"no answer in {BROKER_TIMEOUT_S:g} s"
