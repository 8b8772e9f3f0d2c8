"""Counters of tiered storage on this broker, and their metrics with Kafka's names. Pure."""

from collections import Counter
from collections.abc import Iterator

from ottla.broker.tier.tier_alarms import TierAlarms
from ottla.model.ids import TopicIdPartition
from ottla.storage.tier.remote_metadata import RemoteMetadata
from ottla.storage.tier.remote_segment import RemoteSegmentState
from ottla.telemetry.metrics.instruments import Family, MetricKind
from ottla.telemetry.metrics.kafka_names import prometheus_name

_KAFKA_NAMES = {
    "copy": "RemoteCopy",
    "fetch": "RemoteFetch",
    "delete": "RemoteDelete",
}
"""Prefix of Kafka's metric names (RemoteStorageMetrics) for each kind of operation."""


class TierFigures:
    """Counters of tiered storage on this broker: operations, bytes and failures since its start,
    and the segments that wait to be copied."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        """Number of operations that have begun, by kind (copy, fetch or delete) and topic."""
        self.bytes: Counter[tuple[str, str]] = Counter()
        """Number of bytes of completed operations, by kind and topic."""
        self.failures: Counter[tuple[str, str]] = Counter()
        """Number of failures, by their subject (such as "copies") and topic."""
        self.lags: dict[TopicIdPartition, tuple[str, int, int]] = {}
        """Closed segments that are not copied yet, by partition: topic name, total bytes, and
        number of segments."""
        self.remote: dict[TopicIdPartition, tuple[str, int, int]] = {}
        """Copied segments in the object store, by partition: topic name, total bytes, and number of
        segments."""

        self.alarms = TierAlarms()
        """Current failures of tiered storage, as shown by `ottla status`."""
        self.orphan_count = 0
        """Number of orphans that this broker has deleted. Orphans are objects that belong to no
        copied segment."""

    def note_request(self, operation: str, topic: str) -> None:
        """Count an operation that begins. `operation` is copy, fetch or delete."""
        self.requests[operation, topic] += 1

    def note_bytes(self, operation: str, topic: str, count: int) -> None:
        """Count the bytes that a finished operation has transferred."""
        self.bytes[operation, topic] += count

    def note_failure(self, subject: str, topic: str) -> None:
        """Count a failed operation on a topic. `subject` is the kind of operation, such as
        "copies"."""
        self.failures[subject, topic] += 1

    def note_lag(
        self, partition: TopicIdPartition, topic: str, *, bytes_: int, segments: int
    ) -> None:
        """Set the total bytes and the number of a partition's closed segments that are not copied
        yet."""
        self.lags[partition] = (topic, bytes_, segments)

    def note_remote(
        self, partition: TopicIdPartition, topic: str, metadata: RemoteMetadata
    ) -> None:
        """Set the total bytes and the number of a partition's copied segments from its metadata."""
        sizes = [
            segment.size_bytes
            for segment in metadata.all_segments()
            if segment.state is RemoteSegmentState.COPY_FINISHED
        ]
        self.remote[partition] = (topic, sum(sizes), len(sizes))

    def forget(self, partition: TopicIdPartition) -> None:
        """Drop the current numbers of a partition that this broker no longer leads."""
        self.lags.pop(partition, None)
        self.remote.pop(partition, None)
        self.alarms.forget(partition)

    def metrics(self) -> dict[str, float]:
        """Return totals over all topics by metric name, for DescribeNode."""
        return {
            "tier.copied.bytes": _total(self.bytes, "copy"),
            "tier.fetched.bytes": _total(self.bytes, "fetch"),
            "tier.copies": _total(self.requests, "copy"),
            "tier.fetches": _total(self.requests, "fetch"),
            "tier.deletions": _total(self.requests, "delete"),
            "tier.failures": sum(self.failures.values()),
            "tier.lag.bytes": sum(size for _, size, _ in self.lags.values()),
            "tier.lag.segments": sum(count for _, _, count in self.lags.values()),
            "tier.remote.bytes": sum(size for _, size, _ in self.remote.values()),
            "tier.orphans.deleted": self.orphan_count,
            "tier.remote.segments": sum(count for _, _, count in self.remote.values()),
        }

    def families(self) -> Iterator[Family]:
        """Yield the metric families of tiered storage, with Kafka's names."""
        for operation, kafka in _KAFKA_NAMES.items():
            yield _counter(f"{kafka}RequestsPerSec", self.requests, operation)
            if operation != "delete":
                yield _counter(f"{kafka}BytesPerSec", self.bytes, operation)
        for kafka, subject in (
            ("RemoteCopyErrorsPerSec", "copies"),
            ("RemoteFetchErrorsPerSec", "fetches"),
            ("RemoteDeleteErrorsPerSec", "deletions"),
        ):
            yield _counter(kafka, self.failures, subject)
        yield _gauge("RemoteCopyLagBytes", self.lags, 1)
        yield _gauge("RemoteCopyLagSegments", self.lags, 2)
        yield _gauge("RemoteLogSizeBytes", self.remote, 1)
        yield _gauge("RemoteLogMetadataCount", self.remote, 2)


def _total(counts: Counter[tuple[str, str]], operation: str) -> int:
    return sum(count for (kind, _), count in counts.items() if kind == operation)


def _name(kafka: str) -> str:
    return prometheus_name(f"kafka.server:type=BrokerTopicMetrics,name={kafka}")


def _counter(kafka: str, counts: Counter[tuple[str, str]], operation: str) -> Family:
    return Family(
        _name(kafka),
        MetricKind.COUNTER,
        f"Tiered storage: {kafka} of Kafka.",
        ("topic",),
        [((topic,), count) for (kind, topic), count in sorted(counts.items()) if kind == operation],
    )


def _gauge(kafka: str, values: dict[TopicIdPartition, tuple[str, int, int]], at: int) -> Family:
    totals: Counter[str] = Counter()
    for row in values.values():
        totals[row[0]] += int(row[at])
    return Family(
        _name(kafka),
        MetricKind.GAUGE,
        f"Tiered storage: {kafka} of Kafka.",
        ("topic",),
        [((topic,), count) for topic, count in sorted(totals.items())],
    )
