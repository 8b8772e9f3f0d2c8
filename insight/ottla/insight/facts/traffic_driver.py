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
from ottla.wire.messages.describe_node_response import DescribeNodeResponse, NodeTopicTraffic

BROKER_TIMEOUT_S = 3.0
CLIENTS_MAX = 100


@dataclass(slots=True)
class TrafficSample:
    """Traffic counters of the brokers that responded, at one time."""

    at_s: float
    figures: dict[int, Mapping[str, float]] = field(default_factory=dict)
    """Values of each broker's metrics by name, by broker id."""
    topics: dict[int, list[NodeTopicTraffic]] = field(default_factory=dict)
    """Traffic counters of the topics on each broker, by broker id."""
    sizes: dict[TopicPartition, int] = field(default_factory=dict)
    """Size of the largest replica of each partition, in bytes."""
    clients: list[QuotaUsage] = field(default_factory=list)
    """Usage of quotas by clients, from each broker."""
    failures: dict[int, str] = field(default_factory=dict)
    """Reason why the traffic counters of a broker are missing, by broker id."""


async def sample(admin: Admin) -> TrafficSample:
    """Return the traffic counters of all brokers, the sizes of partitions, and the usage of quotas.
    Raises ConnectionLostError if the broker that responds to this client stops. Any other broker
    that stops is left out."""
    found = await sample_counters(admin, has_clients=True)
    for one in await ask_bytes(admin):
        for directory in one.directories:
            for at, replica in directory.replicas.items():
                found.sizes[at] = max(found.sizes.get(at, 0), replica.size_bytes)
    return found


async def sample_counters(admin: Admin, *, has_clients: bool = False) -> TrafficSample:
    """Return the traffic counters of all brokers, and with `has_clients` the usage of quotas. The
    size of the responses depends on the number of topics with traffic, not on the number of
    partitions."""
    found = TrafficSample(trio.current_time())
    brokers = await registered(admin)
    async with trio.open_nursery() as nursery:
        for broker in brokers:
            if not broker.is_fenced:
                nursery.start_soon(_ask, admin, NodeId(broker.id), found, has_clients)
    return found


async def _ask(admin: Admin, broker: NodeId, found: TrafficSample, has_clients: bool) -> None:
    with trio.move_on_after(BROKER_TIMEOUT_S) as scope:
        try:
            answer = await admin.cluster.request(
                DescribeNodeRequest(include_traffic=True), DescribeNodeResponse, node=broker
            )
            found.figures[broker] = {one.name: one.value for one in answer.metrics}
            found.topics[broker] = answer.traffic
            if has_clients:
                found.clients += await admin.describe_quota_usage(broker, count_max=CLIENTS_MAX)
        except OttlaError as error:
            found.failures[broker] = str(error)
    if scope.cancelled_caught:
        found.failures[broker] = f"no answer in {BROKER_TIMEOUT_S:g} s"
