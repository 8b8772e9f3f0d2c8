"""A node's own metrics as OTLP: encoded by `own_otlp`, and by OpenTelemetry's SDK.

`python -m ottla.bench.own_metrics_beside_sdk` compares three ways to encode the same registry as
OTLP.  It prints the CPU microseconds per point, and the longest time without a yield to other
tasks:

ours         own_otlp, in slices
SDK encoder  data points of the SDK made by hand, encoded by its exporters' encoder
SDK whole    observable instruments, collected by a metric reader, then the same encoder

The three take turns in one process.  The printed figures are medians, with the lowest and the
highest value.  The registry is that of a broker with many partitions.  It has no summaries, because
the SDK has none.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from statistics import median

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider, ObservableCounter, ObservableGauge
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    InMemoryMetricReader,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from ottla.telemetry.metrics.instruments import Counters, Family, MetricKind, Registry
from ottla.telemetry.metrics.own_otlp import messages_of, resource_of

TOPICS = 100
PARTITIONS = 100
ROUNDS = 7
ATTRIBUTES = {"service.name": "ottla", "service.instance.id": "1"}
LABELS = ("topic", "partition")
START_NS = 1_000

Turn = Callable[[], Iterator[None]]


def registry_of_partitions() -> Registry:
    """Return a registry of metrics with a counter and a gauge for each partition."""
    registry = Registry()
    for name in ("log_size", "log_end_offset"):
        registry.read_each(
            f"kafka_log_log_{name}", MetricKind.GAUGE, name, LABELS, lambda: samples()
        )
    counters = registry.counters("kafka_server_messagesin_total", "records", LABELS)
    fill(counters)
    return registry


def samples() -> Iterator[tuple[tuple[str, str], int]]:
    """Yield the label values and the metric value of each partition in the registry."""
    for topic in range(TOPICS):
        for partition in range(PARTITIONS):
            yield (f"topic-{topic}", str(partition)), topic * partition


def fill(counters: Counters) -> None:
    """Increment the metric counters of each partition."""
    for labels, value in samples():
        counters.of(*labels).value = value


def ours(registry: Registry) -> Iterator[None]:
    """Encode the registry of metrics with Ottla's `own_otlp`. Yields whenever other tasks may
    run."""
    resource = resource_of(ATTRIBUTES)
    for _ in messages_of(registry.collect(), resource, start_ns=START_NS, now_ns=time.time_ns()):
        yield


def sdk_points(family: Family, now_ns: int) -> list[NumberDataPoint]:
    """Return the samples of a metric family as the data points of OpenTelemetry's SDK."""
    return [
        NumberDataPoint(
            attributes=dict(zip(family.label_names, labels, strict=False)),
            start_time_unix_nano=START_NS,
            time_unix_nano=now_ns,
            value=value,
        )
        for labels, value in filter(None, family.samples)
        if isinstance(value, int | float)
    ]


def sdk_encoder(registry: Registry) -> Iterator[None]:
    """Encode the registry of metrics with the encoder that the exporters of OpenTelemetry's SDK
    use. Yields once, after everything is encoded."""
    now_ns = time.time_ns()
    metrics = []
    for family in filter(None, registry.collect()):
        points = sdk_points(family, now_ns)
        data = (
            Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)
            if family.kind is MetricKind.COUNTER
            else Gauge(points)
        )
        metrics.append(Metric(family.name, family.help, "", data))
    scope = ScopeMetrics(InstrumentationScope("ottla"), metrics, "")
    part = ResourceMetrics(Resource(ATTRIBUTES), [scope], "")
    encode_metrics(MetricsData([part])).SerializeToString()
    yield


def sdk_whole(registry: Registry) -> Turn:
    """Return a function that collects the observable instruments of OpenTelemetry's SDK and encodes
    their points."""
    # By default, the SDK merges all series of an instrument beyond 2,000 into one.
    limit = TOPICS * PARTITIONS + 1
    reader = InMemoryMetricReader(
        cardinality_limits={ObservableCounter: limit, ObservableGauge: limit}
    )
    provider = MeterProvider([reader], Resource(ATTRIBUTES), shutdown_on_exit=False)
    meter = provider.get_meter("ottla")

    def observe(family: Family) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observations(_: CallbackOptions) -> Iterator[Observation]:
            for each in filter(None, registry.collect()):
                if each.name != family.name:
                    continue
                for labels, value in filter(None, each.samples):
                    if isinstance(value, int | float):
                        yield Observation(value, dict(zip(LABELS, labels, strict=False)))

        return observations

    for family in filter(None, registry.collect()):
        make = (
            meter.create_observable_counter
            if family.kind is MetricKind.COUNTER
            else meter.create_observable_gauge
        )
        make(family.name, [observe(family)], description=family.help)

    def turn() -> Iterator[None]:
        data = reader.get_metrics_data()
        assert data is not None
        metrics = data.resource_metrics[0].scope_metrics[0].metrics
        assert {len(metric.data.data_points) for metric in metrics} == {TOPICS * PARTITIONS}
        encode_metrics(data).SerializeToString()
        yield

    return turn


def measure(turn: Turn) -> tuple[float, float]:
    """Encode the metrics of the registry once, in one of the three ways. Returns the CPU seconds,
    and the longest time in seconds without a yield to other tasks."""
    began_s = piece_s = time.process_time()
    longest_s = 0.0
    for _ in turn():
        now_s = time.process_time()
        longest_s, piece_s = max(longest_s, now_s - piece_s), now_s
    return time.process_time() - began_s, longest_s


def main() -> None:
    """Compare three ways to encode a node's metrics, and print the CPU cost per data point."""
    registry = registry_of_partitions()
    count = 3 * TOPICS * PARTITIONS
    turns: dict[str, Turn] = {
        "ours": lambda: ours(registry),
        "SDK encoder": lambda: sdk_encoder(registry),
        "SDK whole": sdk_whole(registry),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in turns}
    for _ in range(ROUNDS):
        for name, turn in turns.items():
            found[name].append(measure(turn))
    print(f"{count} points, {ROUNDS} rounds; CPU time")
    for name, each in found.items():
        costs = sorted(1e6 * cpu_s / count for cpu_s, _ in each)
        longest_ms = 1e3 * median(longest_s for _, longest_s in each)
        print(
            f"{name:<12} {median(costs):6.1f} µs a point ({costs[0]:.1f} to {costs[-1]:.1f}), "
            f"longest piece {longest_ms:7.1f} ms"
        )


if __name__ == "__main__":
    main()
