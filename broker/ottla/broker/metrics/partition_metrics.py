"""Computes the metrics of the partitions on this broker whenever they are read. Pure.

There are two kinds of families. Families of sizes and offsets have a row for every partition.
Families of problems (below min.insync.replicas, under-replicated, …) have one row with the value 1
for each affected partition, and always one row with the value 0 and no labels. A sum over a family
therefore always exists, and healthy partitions need no rows. Names are Kafka's:
`kafka.log:type=Log`, `kafka.cluster:type=Partition` and `kafka.server:type=ReplicaManager`.
"""

from collections.abc import Callable, Iterator

from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.storage.log.log import Log
from ottla.telemetry.metrics.instruments import Family, MetricKind, Sample
from ottla.telemetry.metrics.kafka_names import prometheus_name

LABELS = ("topic", "partition")

PARTITIONS_PER_SLICE = 256
"""Number of partitions whose metrics are computed before other tasks run. Computing them takes a
few hundred microseconds."""

OF_LOGS: tuple[tuple[str, str, Callable[[Log], int]], ...] = (
    ("Size", "Bytes of a log's segments, without indexes.", lambda log: log.size_bytes),
    ("LogStartOffset", "First offset of a log.", lambda log: log.log_start_offset),
    ("LogEndOffset", "One past the last offset of a log.", lambda log: log.end_offset),
    ("NumLogSegments", "Segments of a log.", lambda log: log.segment_count),
)


def last_stable_offset_lag(partition: Partition) -> int:
    """Return the number of offsets between the last stable offset and the high watermark. Consumers
    of committed records do not get these records while a transaction is open."""
    log = partition.log
    return 0 if log is None else max(0, partition.high_watermark - log.last_stable_offset)


OF_LEADERS: tuple[tuple[str, str, Callable[[Partition], int]], ...] = (
    ("ReplicasCount", "Replicas of a led partition.", lambda partition: len(partition.replicas)),
    (
        "InSyncReplicasCount",
        "In-sync replicas of a led partition.",
        lambda partition: len(partition.isr),
    ),
    (
        "LastStableOffsetLag",
        "Offsets of a led partition below its high watermark that wait for open transactions.",
        last_stable_offset_lag,
    ),
)


def is_under_replicated(partition: Partition) -> bool:
    """Return whether at least one replica of the partition is not in the ISR."""
    return len(partition.isr) < len(partition.replicas)


def is_under_min_isr(partition: Partition) -> bool:
    """Return whether the partition has fewer in-sync replicas than min.insync.replicas, and thus
    refuses batches with acks=all."""
    return len(partition.isr) < partition.min_isr_count


def is_at_min_isr(partition: Partition) -> bool:
    """Return whether the partition would refuse batches with acks=all if it had one in-sync replica
    fewer."""
    return len(partition.isr) == partition.min_isr_count


TROUBLES: tuple[tuple[str, str, str, Callable[[Partition], bool]], ...] = (
    (
        "UnderReplicated",
        "UnderReplicatedPartitions",
        "with a replica that is not in sync",
        is_under_replicated,
    ),
    (
        "UnderMinIsr",
        "UnderMinIsrPartitionCount",
        "with fewer replicas in sync than min.insync.replicas",
        is_under_min_isr,
    ),
    (
        "AtMinIsr",
        "AtMinIsrPartitionCount",
        "with as many replicas in sync as min.insync.replicas",
        is_at_min_isr,
    ),
)
"""Table of the problems that a partition may have. Each row has the metric's name for one
partition, its name for the broker, a help text and a condition."""


def partition_families(table: PartitionTable) -> Iterator[Family | None]:
    """Yield the metrics of each partition, and the number of partitions with each problem (such as
    under-replicated)."""
    partitions = list(table)
    for name, text, of_log in OF_LOGS:
        yield _gauge(f"kafka.log:type=Log,name={name}", text, _of_logs(partitions, of_log))
    for name, text, of_leader in OF_LEADERS:
        mbean = f"kafka.cluster:type=Partition,name={name}"
        yield _gauge(mbean, text, _of_leaders(partitions, of_leader))
    yield from _troubles(partitions)


def _of_logs(partitions: list[Partition], read: Callable[[Log], int]) -> Iterator[Sample]:
    for partition in partitions:
        log = partition.log
        if log is not None:
            yield (partition.topic, str(partition.index)), read(log)


def _of_leaders(
    partitions: list[Partition], read: Callable[[Partition], int]
) -> Iterator[Sample | None]:
    for at, partition in enumerate(partitions):
        if partition.is_leader:
            yield (partition.topic, str(partition.index)), read(partition)
        elif not at % PARTITIONS_PER_SLICE:
            yield None


def _troubles(partitions: list[Partition]) -> Iterator[Family | None]:
    """Check all partitions once, then yield the metrics of each problem (such as
    under-replicated)."""
    led_count = reassigning_count = 0
    found: list[list[Partition]] = [[] for _ in TROUBLES]
    for at, partition in enumerate(partitions):
        if not at % PARTITIONS_PER_SLICE:
            yield None
        if partition.is_leader:
            led_count += 1
            reassigning_count += partition.is_reassigning
            for kind, those in zip(TROUBLES, found, strict=True):
                if kind[3](partition):
                    those.append(partition)
    for (of_one, of_broker, text, _), those in zip(TROUBLES, found, strict=True):
        yield _gauge(
            f"kafka.cluster:type=Partition,name={of_one}",
            f"1 for each led partition {text}; 0 without labels, always.",
            _ones(those),
        )
        yield _count(of_broker, f"Led partitions {text}.", len(those))
    yield _count(
        "ReassigningPartitions", "Led partitions that are being reassigned.", reassigning_count
    )
    yield _count("LeaderCount", "Partitions led by this broker.", led_count)
    yield _count("PartitionCount", "Replicas on this broker.", len(partitions))


def _ones(partitions: list[Partition]) -> Iterator[Sample]:
    yield (), 0
    for partition in partitions:
        yield (partition.topic, str(partition.index)), 1


def _gauge(mbean: str, text: str, samples: Iterator[Sample | None]) -> Family:
    return Family(prometheus_name(mbean), MetricKind.GAUGE, text, LABELS, samples)


def _count(name: str, text: str, value: int) -> Family:
    mbean = f"kafka.server:type=ReplicaManager,name={name}"
    return Family(prometheus_name(mbean), MetricKind.GAUGE, text, (), (((), value),))
