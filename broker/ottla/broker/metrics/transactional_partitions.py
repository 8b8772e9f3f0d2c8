"""Metrics of transactions in the partitions that this broker leads: transactions that have been
open for too long, and verifications by transaction coordinators. Pure."""

from collections.abc import Iterator, Mapping

from ottla.broker.replicas.partition_table import PartitionTable
from ottla.node.network.request_times import NS_PER_MS, WINDOW_MS
from ottla.telemetry.metrics.instruments import Family, Histogram, MetricKind, summary_of
from ottla.telemetry.metrics.kafka_families import counter, gauge
from ottla.telemetry.metrics.kafka_names import prometheus_name

LATE_AFTER_MS = 5 * 60_000
"""Time in milliseconds, beyond the longest transaction timeout, after which an open transaction
counts as late, as in Kafka. Its coordinator should have ended the transaction before this time."""

PARTITIONS_PER_SLICE = 256
"""Number of partitions whose transaction metrics are computed before other tasks run. Computing
them takes a few hundred microseconds."""

MANAGER = "kafka.server:type=AddPartitionsToTxnManager,name="


def transactional_partition_families(
    table: PartitionTable,
    figures: Mapping[str, float],
    durations: Histogram,
    *,
    now_ms: int,
    wall_ms: int,
    timeout_ms_max: int,
) -> Iterator[Family | None]:
    """Yield the transaction metrics of the partitions that this broker leads, and the metrics of
    verifications by transaction coordinators.

    `durations` is a histogram of the verifications' durations, and `now_ms` is monotonic time in
    milliseconds.
    """
    seen_before_ms = wall_ms - timeout_ms_max - LATE_AFTER_MS
    late_count = producer_count = 0
    for at, partition in enumerate(list(table)):
        if not at % PARTITIONS_PER_SLICE:
            yield None
        if partition.log is None:
            continue
        producer_count += len(partition.log.active_producers)
        if partition.is_leader:
            late_count += partition.log.has_late_transaction(seen_before_ms)
    yield gauge(
        "kafka.server:type=ReplicaManager,name=PartitionsWithLateTransactionsCount",
        "Led partitions with a transaction that should have ended: it blocks readers of "
        "committed records, and an operator may have to end it.",
        late_count,
    )
    yield gauge(
        "kafka.server:type=ReplicaManager,name=ProducerIdCount",
        "Idempotent producers stored by the replicas here, counted once for each partition.",
        producer_count,
    )
    yield counter(
        f"{MANAGER}VerificationFailureRate",
        "Verifications that the transaction coordinator did not confirm.",
        figures["transactions.questions.failed"],
    )
    yield Family(
        prometheus_name(f"{MANAGER}VerificationTimeMs"),
        MetricKind.SUMMARY,
        "Time of the verification by the coordinator, before the first batch of a transaction in "
        "each partition; quantiles of the last minutes.",
        (),
        (((), summary_of([durations], now_ms, window_ms=WINDOW_MS, unit=NS_PER_MS)),),
    )
