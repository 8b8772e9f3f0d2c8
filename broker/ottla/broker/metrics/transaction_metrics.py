"""Computes the metrics of the transaction coordinator: Kafka's gauges, and Ottla's own. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from ottla.broker.transactions.transaction import STORED, TransactionStatus
from ottla.broker.transactions.transaction_shard import TransactionShard
from ottla.telemetry.metrics.instruments import Family, MetricKind
from ottla.telemetry.metrics.kafka_families import gauge

BEAN = "kafka.server:type=transaction-coordinator-metrics,attribute="
MARKERS = "kafka.coordinator.transaction:type=TransactionMarkerChannelManager,name="


def transaction_families(
    shards: Iterable[TransactionShard], figures: Mapping[str, float]
) -> Iterator[Family]:
    """Yield the metric families of the transaction coordinator and of the markers that it sends."""
    counts: Counter[TransactionStatus] = Counter()
    for shard in shards:
        counts.update(shard.counts)
    yield Family(
        "ottla_transactional_ids",
        MetricKind.GAUGE,
        "Transactional ids that this broker coordinates, by the state of their last transaction.",
        ("state",),
        [((status.title,), counts[status]) for status in sorted(STORED)],
    )
    yield gauge(
        f"{BEAN}partition-load-time-max",
        "Longest load of a partition of `__transaction_state` that is led here.",
        figures["transactions.load.ms.max"],
    )
    yield gauge(
        f"{BEAN}partition-load-time-avg",
        "Mean load time of the partitions of `__transaction_state` that are led here.",
        figures["transactions.load.ms.avg"],
    )
    yield gauge(
        f"{MARKERS}UnknownDestinationQueueSize",
        "Transactions with partitions that have no leader to write their markers.",
        figures["transactions.markers.unknown.destination"],
    )
    yield gauge(
        f"{MARKERS}LogAppendRetryQueueSize",
        "Transactions with all markers written whose completion is not appended yet.",
        figures["transactions.completions.retried"],
    )
    yield Family(
        "ottla_transaction_markers_waiting",
        MetricKind.GAUGE,
        "Markers waiting for a broker to write them.",
        (),
        (((), figures["transactions.markers.waiting"]),),
    )
    yield Family(
        "ottla_transactions_superseded_total",
        MetricKind.COUNTER,
        "Transactions whose end was left to a newer coordinator or producer.",
        (),
        (((), figures["transactions.markers.superseded"]),),
    )
