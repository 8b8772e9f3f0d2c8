"""What replicas show of producers and transactions: late ones, questions to coordinators.  Pure."""

from collections.abc import Iterator, Mapping

from ottla.broker.metrics.families import counter, gauge
from ottla.broker.network.request_times import NS_PER_MS, WINDOW_MS
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.telemetry.instruments import Family, Histogram, MetricKind, summary_of
from ottla.telemetry.kafka_names import prometheus_name

LATE_AFTER_MS = 5 * 60_000
"""How much longer than the longest timeout a transaction may be open before it is late, as in
Kafka: its coordinator has ended it by then, if it knows it."""

PARTITIONS_PER_SLICE = 256
"""Looked through before a pause is offered; some hundred microseconds."""

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
    """Yield the metrics of the partitions led here, and of their questions.

    `durations` are those of the questions; `now_ms` is on the monotonic clock.
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
        "Led partitions with a transaction that should have ended: it holds up readers of "
        "committed records, and may have to be ended by hand.",
        late_count,
    )
    yield gauge(
        "kafka.server:type=ReplicaManager,name=ProducerIdCount",
        "Producers that write with sequences, as the replicas here remember them, each once for "
        "every partition.",
        producer_count,
    )
    yield counter(
        f"{MANAGER}VerificationFailureRate",
        "Questions to the coordinators of transactions that were not answered by yes.",
        figures["transactions.questions.failed"],
    )
    yield Family(
        prometheus_name(f"{MANAGER}VerificationTimeMs"),
        MetricKind.SUMMARY,
        "Time until the coordinator has answered, asked before the first batch of a transaction in "
        "each partition; quantiles of the last minutes.",
        (),
        (((), summary_of([durations], now_ms, window_ms=WINDOW_MS, unit=NS_PER_MS)),),
    )
