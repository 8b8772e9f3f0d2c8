"""What the transaction coordinator of this broker shows: Kafka's gauges, and ours.  Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from ottla.broker.metrics.families import gauge
from ottla.broker.transactions.transaction import STORED, TransactionStatus
from ottla.broker.transactions.transaction_shard import TransactionShard
from ottla.telemetry.instruments import Family, MetricKind

BEAN = "kafka.server:type=transaction-coordinator-metrics,attribute="
MARKERS = "kafka.coordinator.transaction:type=TransactionMarkerChannelManager,name="


def transaction_families(
    shards: Iterable[TransactionShard], figures: Mapping[str, float]
) -> Iterator[Family]:
    """Yield the metrics of the coordinator and of its markers."""
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
        "The longest load of a partition of the transaction state that is led here.",
        figures["transactions.load.ms.max"],
    )
    yield gauge(
        f"{BEAN}partition-load-time-avg",
        "The mean time of these loads.",
        figures["transactions.load.ms.avg"],
    )
    yield gauge(
        f"{MARKERS}UnknownDestinationQueueSize",
        "Transactions with partitions that have no leader to write their markers.",
        figures["transactions.markers.unknown.destination"],
    )
    yield gauge(
        f"{MARKERS}LogAppendRetryQueueSize",
        "Transactions with all markers whose end the log did not take yet.",
        figures["transactions.completions.retried"],
    )
    yield Family(
        "ottla_transaction_markers_waiting",
        MetricKind.GAUGE,
        "Markers that wait for a broker to write them.",
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
