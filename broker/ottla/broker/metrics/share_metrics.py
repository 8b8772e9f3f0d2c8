"""Computes the metrics of share partitions led by this broker, of share sessions and of share
requests, with Kafka's names (KIP-932). Pure."""

from collections.abc import Iterator

from ottla.broker.shares.led_share import LedShare
from ottla.broker.shares.share_delivery import ShareDelivery
from ottla.broker.shares.share_partition import AckType, SharePartition
from ottla.telemetry.metrics.instruments import Family, MetricKind, Summary
from ottla.telemetry.metrics.kafka_families import counter, gauge, gauges
from ottla.telemetry.metrics.kafka_names import prometheus_name

ACK_TYPES = (
    (AckType.GAP, "Gap"),
    (AckType.ACCEPT, "Accept"),
    (AckType.RELEASE, "Release"),
    (AckType.REJECT, "Reject"),
    (AckType.RENEW, "Renew"),
)
LABELS = ("group", "topic", "partition")


def share_families(delivery: ShareDelivery) -> Iterator[Family]:
    """Yield the metric families of the delivery of records to share groups."""
    yield from _request_families(delivery)
    sessions, cache = delivery.sessions, "kafka.server:type=ShareSessionCache,name="
    yield gauge(f"{cache}ShareSessionsCount", "Share sessions.", len(sessions))
    yield gauge(
        f"{cache}SharePartitionsCount",
        "Partitions of all share sessions.",
        sessions.partition_count,
    )
    yield counter(
        f"{cache}ShareSessionEvictionsPerSec",
        "Share sessions that ended with their connection.",
        sessions.eviction_count,
    )
    bean = "kafka.server:type=SharePartitionMetrics,name="
    loaded = [(_labels(led), led) for led in delivery.shares if led.has_state]
    shares = [(labels, led.share) for labels, led in loaded]
    yield gauges(
        f"{bean}InFlightMessageCount",
        "Records that count towards `group.share.partition.max.record.locks`.",
        LABELS,
        [(labels, _in_flight_count(share)) for labels, share in shares],
    )
    yield gauges(
        f"{bean}InFlightBatchCount",
        "Ranges of records with equal delivery state between start and end offset.",
        LABELS,
        [(labels, len(share.window.spans)) for labels, share in shares],
    )
    yield Family(
        prometheus_name(f"{bean}InFlightBatchMessageCount"),
        MetricKind.SUMMARY,
        "Records of each range that entered the window between start and end offset.",
        LABELS,
        [
            (labels, Summary(share.window.batch_count, share.window.batch_record_count, ()))
            for labels, share in shares
        ],
    )
    yield Family(
        prometheus_name(f"{bean}FetchLockTimeMs"),
        MetricKind.SUMMARY,
        "Time in milliseconds in which a ShareFetch request reads a share partition.",
        LABELS,
        [
            (labels, Summary(led.read_times.count, led.read_times.sum_ms, ()))
            for labels, led in loaded
        ],
    )
    yield Family(
        prometheus_name(f"{bean}FetchLockRatio"),
        MetricKind.SUMMARY,
        "Percentage of time in which a ShareFetch request reads a share partition, since the "
        "request before it.",
        LABELS,
        [
            (labels, Summary(led.read_times.count, led.read_times.percent_sum, ()))
            for labels, led in loaded
        ],
    )
    yield Family(
        prometheus_name(f"{bean}AcquisitionLockTimeoutPerSec"),
        MetricKind.COUNTER,
        "Records whose acquisition lock ended by time.",
        LABELS,
        [(labels, share.lock_end_count) for labels, share in shares],
    )


def _request_families(delivery: ShareDelivery) -> Iterator[Family]:
    figures = delivery.figures
    topics, groups = "kafka.server:type=BrokerTopicMetrics,name=", "kafka.server:type="
    yield counter(
        f"{topics}TotalShareFetchRequestsPerSec", "ShareFetch requests.", figures.fetch_count
    )
    yield counter(
        f"{topics}FailedShareFetchRequestsPerSec",
        "Partitions of ShareFetch requests that were answered with an error.",
        figures.failed_fetch_count,
    )
    yield counter(
        f"{topics}TotalShareAcknowledgementRequestsPerSec",
        "Requests with acknowledgements.",
        figures.acknowledge_count,
    )
    yield counter(
        f"{topics}FailedShareAcknowledgementRequestsPerSec",
        "Partitions whose acknowledgements were answered with an error.",
        figures.failed_acknowledge_count,
    )
    yield Family(
        prometheus_name(f"{groups}ShareGroupMetrics,name=RecordAcknowledgementsPerSec"),
        MetricKind.COUNTER,
        "Acknowledged records by type.",
        ("ackType",),
        [((name,), figures.acknowledged_records[kind]) for kind, name in ACK_TYPES],
    )
    yield gauges(
        f"{groups}ShareGroupMetrics,name=RequestTopicPartitionsFetchRatio",
        "Percentage of the partitions of ShareFetch requests that gave records.",
        ("group",),
        [
            ((group,), 100 * one.acquired_partition_count / max(1, one.partition_count))
            for group, one in figures.by_group.items()
        ],
    )
    yield Family(
        prometheus_name(f"{groups}ShareGroupMetrics,name=TopicPartitionsAcquireTimeMs"),
        MetricKind.SUMMARY,
        "Time from the arrival of a ShareFetch request until it acquired records.",
        ("group",),
        [
            ((group,), Summary(one.acquisition_count, one.acquisition_ms, ()))
            for group, one in figures.by_group.items()
        ],
    )
    yield gauge(
        f"{groups}ShareGroupMetrics,name=PartitionLoadTimeMs",
        "Longest time in milliseconds to load the state of a share partition.",
        figures.load_ms_max,
    )
    yield counter(
        f"{groups}DelayedShareFetchMetrics,name=ExpiresPerSec",
        "ShareFetch requests that waited until their timeout.",
        figures.expired_count,
    )


def _in_flight_count(share: SharePartition) -> int:
    """Return the number of records that count towards the in-flight limit of a share partition.
    These are all records in its delivery window."""
    if share.order is None:
        return share.window.size
    return share.order.taken_count + len(share.letters)


def _labels(led: LedShare) -> tuple[str, str, str]:
    return led.key.group_id, led.partition.topic, str(led.key.partition)
