"""Metrics that all kinds of clients report: connections, and latencies by broker (KIP-714)."""

from collections.abc import Callable, Iterator
from enum import Enum

from ottla.client.telemetry.measures import (
    MS_PER_S,
    AverageAndMax,
    ConnectionMeasures,
    MeasuredValues,
)
from ottla.client.telemetry.metric_points import Labels, MetricPoint, gauge, total


class ClientKind(Enum):
    """Kind of client, such as producer or consumer. The value is the prefix of the client's metric
    names in the Java client."""

    PRODUCER = "org.apache.kafka.producer."
    CONSUMER = "org.apache.kafka.consumer."
    ADMIN = "org.apache.kafka.admin.client."


UNKNOWN_NODE = "-1"
"""Label in metrics for a broker whose address is a bootstrap address that the metadata does not
contain. The Java client uses -1, -2 and so on."""


def extent(name: str, of: AverageAndMax, labels: Labels = ()) -> Iterator[MetricPoint]:
    """Yield two metric points: the average and the maximum of a metric's values in one interval."""
    yield gauge(f"{name}.avg", of.average, labels)
    yield gauge(f"{name}.max", of.highest, labels)


class ClientMetrics:
    """Source of the metrics of one client's connections.

    `node_of` returns the id of the broker at an address (`host:port`), or None if it is unknown.
    """

    def __init__(
        self,
        kind: ClientKind,
        measures: ConnectionMeasures,
        node_of: Callable[[str], int | None],
    ) -> None:
        self._prefix = kind.value
        self._measures = measures
        self._node_of = node_of
        self._counted = 0

    def points(self, elapsed_s: float) -> Iterator[MetricPoint]:
        """Yield the current values of the metrics. Rates cover the last `elapsed_s` seconds, which
        is the time since the previous call."""
        created = self._measures.created_count
        rate = (created - self._counted) / elapsed_s if elapsed_s > 0 else 0.0
        self._counted = created
        yield gauge(f"{self._prefix}connection.creation.rate", rate)
        yield total(f"{self._prefix}connection.creation.total", created)
        all_nodes, by_node = MeasuredValues(), dict[str, MeasuredValues]()
        for address, latencies in self._measures.latencies_s.items():
            node = self._node_of(address)
            name = UNKNOWN_NODE if node is None else str(node)
            # A broker whose address changes has two addresses for a while.
            latencies.move_to(all_nodes, by_node.setdefault(name, MeasuredValues()))
        yield from extent(f"{self._prefix}request.latency", all_nodes.take(MS_PER_S))
        for name, values in by_node.items():
            taken = values.take(MS_PER_S)
            yield from extent(f"{self._prefix}node.request.latency", taken, (("node_id", name),))
