"""Computes the metrics of the share coordinator: Kafka's, and Ottla's own. Pure."""

from collections.abc import Iterator

from ottla.broker.share_state.share_coordinator import ShareCoordinator
from ottla.telemetry.metrics.instruments import Family, MetricKind
from ottla.telemetry.metrics.kafka_families import counter, gauge, gauges

BEAN = "kafka.server:type=share-coordinator-metrics,attribute="


def share_state_families(coordinator: ShareCoordinator) -> Iterator[Family]:
    """Yield the metric families of the share coordinator."""
    figures = coordinator.metrics()
    yield Family(
        "ottla_share_states",
        MetricKind.GAUGE,
        "Share partitions whose state this broker coordinates.",
        (),
        (((), figures["share.states"]),),
    )
    yield counter(
        f"{BEAN}write-total",
        "Writes of the state of share partitions.",
        figures["share.states.writes"],
    )
    yield gauge(
        f"{BEAN}write-rate",
        "Writes of the state of share partitions per second, in the last minute.",
        figures["share.states.writes.per.second"],
    )
    yield gauge(
        f"{BEAN}write-latency-max",
        "Longest time in milliseconds from a write of the last minute to its commit.",
        figures["share.states.write.ms.max"],
    )
    yield gauge(
        f"{BEAN}write-latency-avg",
        "Mean time in milliseconds from a write of the last minute to its commit.",
        figures["share.states.write.ms.avg"],
    )
    yield gauge(
        f"{BEAN}partition-load-time-max",
        "Longest load of a partition of `__share_group_state` that is led here.",
        figures["share.states.load.ms.max"],
    )
    yield gauge(
        f"{BEAN}partition-load-time-avg",
        "Mean load time of the partitions of `__share_group_state` that are led here.",
        figures["share.states.load.ms.avg"],
    )
    yield gauges(
        f"{BEAN}last-pruned-offset",
        "End offset of the records that later snapshots superseded and that were deleted.",
        ("topic", "partition"),
        [
            ((coordinator.topic, str(index)), end_offset)
            for index, end_offset in sorted(coordinator.pruned_ends.items())
        ],
    )
