"""Metrics of open clients that the program's OpenTelemetry MeterProvider reads at each export.

The client also collects these values for KIP-714 (`telemetry/measures`), so they cost nothing
between two exports. Attributes follow OpenTelemetry's semantic conventions for messaging. The
conventions define no metrics for lag, retries, buffers and rebalances, so the names here are in
their namespace `messaging.kafka`.

The MeterProvider reads the metrics in a thread of its own. This is safe because all values are
numbers, or containers that the client replaces as a whole.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from heapq import nlargest
from operator import itemgetter
from typing import NamedTuple

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from ottla.client.telemetry.consumer_metrics import LAG_PARTITIONS_MAX
from ottla.client.telemetry.measures import CoordinatorMeasures, ProduceMeasures
from ottla.model.ids import TopicPartition

CLOSED_NAMES_MAX = 1_000
"""Maximum number of attribute sets whose totals are stored after their clients were closed. A later
client with the same attributes continues from these totals. Otherwise, its counters would start at
0, which OpenTelemetry treats as a restart."""

Attributes = tuple[tuple[str, str], ...]
"""Attributes of one OpenTelemetry observation: pairs of name and value, in order."""


class ProducerReadings(NamedTuple):
    """Sources of the values that OpenTelemetry reads from an open producer at each export."""

    client_id: str
    measures: ProduceMeasures
    buffered_bytes: Callable[[], int]
    """Function that returns the used part of `buffer.memory`, in bytes."""
    buffer_bytes_max: int


class ConsumerReadings(NamedTuple):
    """Sources of the values that OpenTelemetry reads from an open consumer at each export."""

    client_id: str
    group_id: str | None
    coordinator: CoordinatorMeasures | None
    """Measurements of rebalances. None if the consumer has no group."""
    lags: Callable[[], Iterable[tuple[TopicPartition, int]]]
    """Function that yields the lag of each partition, in records."""


Readings = ProducerReadings | ConsumerReadings


class ClientTotals:
    """Totals of a counter over all clients since the start of the process, by attributes."""

    def __init__(self, value_of: Callable[[Readings], float | None]) -> None:
        self._value_of = value_of
        self._closed: dict[Attributes, float] = {}

    def retire(self, client: Readings) -> None:
        """Add the final count of a client that is being closed to the totals."""
        value = self._value_of(client)
        if value is not None:
            name = attributes_of_client(client)
            # Popped first, so that the dictionary is in the order of closing.
            self._closed[name] = self._closed.pop(name, 0) + value
            if len(self._closed) > CLOSED_NAMES_MAX:
                del self._closed[next(iter(self._closed))]

    def observe(self, clients: Iterable[Readings]) -> list[Observation]:
        """Return the current totals over the open clients in `clients` and all closed clients."""
        sums: dict[Attributes, float] = dict(self._closed)
        for client in clients:
            value = self._value_of(client)
            if value is not None:
                name = attributes_of_client(client)
                sums[name] = sums.get(name, 0) + value
        return observations(sums)


class ObservedClients:
    """The open clients of this process, and the metrics that OpenTelemetry reads from them."""

    def __init__(self, meter: Meter) -> None:
        self._clients: list[Readings] = []
        self._totals: list[ClientTotals] = []
        meter.create_observable_gauge(
            "messaging.kafka.consumer.lag",
            [lambda _: observations(self._lags())],
            unit="{message}",
            description="Records of a partition that the consumer has not received yet: "
            f"the {LAG_PARTITIONS_MAX} partitions of each consumer with the largest lag.",
        )
        meter.create_observable_up_down_counter(
            "messaging.kafka.producer.buffer.usage",
            [lambda _: observations(self._buffers(lambda one: one.buffered_bytes()))],
            unit="By",
            description="Memory of records that are waiting or in flight.",
        )
        meter.create_observable_up_down_counter(
            "messaging.kafka.producer.buffer.limit",
            [lambda _: observations(self._buffers(lambda one: one.buffer_bytes_max))],
            unit="By",
            description="Memory for records that are waiting or in flight (buffer.memory).",
        )
        self._count(
            meter,
            "messaging.kafka.producer.retries",
            "{message}",
            "Records in second and later attempts.",
            lambda one: one.measures.retry_count if isinstance(one, ProducerReadings) else None,
        )
        self._count(
            meter,
            "messaging.kafka.consumer.rebalances",
            "{rebalance}",
            "Rebalances of the group that this member has completed.",
            lambda one: None if (found := _coordinator(one)) is None else found.rebalance_count,
        )
        self._count(
            meter,
            "messaging.kafka.consumer.rebalance.time",
            "s",
            "Time that these rebalances took.",
            lambda one: None if (found := _coordinator(one)) is None else found.rebalances_sum_s,
        )

    @contextmanager
    def observing(self, client: Readings) -> Iterator[None]:
        """Include the values of a client in the metrics during the `with` block."""
        self._clients = [*self._clients, client]
        try:
            yield
        finally:
            for totals in self._totals:
                totals.retire(client)
            self._clients = [one for one in self._clients if one is not client]

    def _count(
        self,
        meter: Meter,
        name: str,
        unit: str,
        description: str,
        value_of: Callable[[Readings], float | None],
    ) -> None:
        totals = ClientTotals(value_of)
        self._totals.append(totals)

        def observe(_: CallbackOptions) -> list[Observation]:
            return totals.observe(self._clients)

        meter.create_observable_counter(name, [observe], unit=unit, description=description)

    def _lags(self) -> dict[Attributes, float]:
        found: dict[Attributes, float] = {}
        for client in self._clients:
            if isinstance(client, ConsumerReadings):
                lags = nlargest(LAG_PARTITIONS_MAX, client.lags(), key=itemgetter(1))
                for (topic, partition), lag in lags:
                    name = (
                        *attributes_of_client(client),
                        ("messaging.destination.name", topic),
                        ("messaging.destination.partition.id", str(partition)),
                    )
                    # Two consumers without a group may read one partition.
                    found[name] = max(lag, found.get(name, 0))
        return found

    def _buffers(self, value_of: Callable[[ProducerReadings], int]) -> dict[Attributes, float]:
        sums: Counter[Attributes] = Counter()
        for client in self._clients:
            if isinstance(client, ProducerReadings):
                sums[attributes_of_client(client)] += value_of(client)
        return dict(sums)


def attributes_of_client(client: Readings) -> Attributes:
    """Return the attributes that distinguish a client's metrics from the metrics of other
    clients."""
    common = (("messaging.system", "kafka"), ("messaging.client.id", client.client_id))
    if isinstance(client, ConsumerReadings) and client.group_id is not None:
        return (*common, ("messaging.consumer.group.name", client.group_id))
    return common


def observations(values: Mapping[Attributes, float]) -> list[Observation]:
    """Convert a mapping from attributes to values to observations of the OpenTelemetry API."""
    return [Observation(value, dict(name)) for name, value in values.items()]


def _coordinator(client: Readings) -> CoordinatorMeasures | None:
    return client.coordinator if isinstance(client, ConsumerReadings) else None
