"""Metrics of a controller and of the cluster, which the controller exports at /metrics.  Pure.

The metrics have Kafka's names (`kafka.controller:type=KafkaController`, `ControllerStats`,
`ControllerEventManager`), so that existing dashboards work.  Every controller reports the state of
the cluster in its own image.  Only the active controller reports 1 as the number of active
controllers, so the sum over all controllers is 1.
"""

from collections.abc import Callable, Iterable, Iterator
from uuid import UUID

from ottla.controller.front.front_metrics import front_families
from ottla.controller.mutation_quotas import MutationQuotas
from ottla.metadata.image import EMPTY, BrokerRegistration, MetadataImage
from ottla.metadata.records import Record
from ottla.metadata.standard_authorizer import StandardAuthorizer
from ottla.model.ids import NO_NODE, NodeId
from ottla.model.quotas.rates import WindowShape, whole_ms
from ottla.model.settings.storage.disks import DiskConfig
from ottla.node.authorizer_metrics import AuthorizerMetrics
from ottla.node.free_space_metrics import free_space_families, reserve_families
from ottla.node.quorum.quorum_metrics import voter_families
from ottla.raft.transitions import Standing
from ottla.raft.voter_checkpoint import VoterVerdict
from ottla.storage.directories.free_space import FreeSpace, FreeSpaceReport
from ottla.telemetry.metrics.instruments import (
    Counter,
    Family,
    Histogram,
    MetricKind,
    Registry,
    Value,
    summary_of,
)
from ottla.telemetry.metrics.kafka_families import gauges
from ottla.telemetry.metrics.kafka_names import prometheus_name

TOPICS_PER_SLICE = 64
"""Number of topics that are counted for metrics before the event loop may run other tasks."""

PARTITIONS_PER_SLICE = 256

NS_PER_MS = 1_000_000
BOUNDS_NS = tuple(round(10_000 * 1.25**step) for step in range(76))
"""Upper bounds of the histograms' buckets in ns, from 10 µs to more than three minutes. The error
of a quantile is at most 12 %."""

WINDOW_MS = 60_000

MUTATION_SERIES_MAX = 1_000
"""Maximum number of clients for which a metric of partition mutations is exported. The limit is
needed because clients choose their own names, and each series uses memory of the metrics
collector."""

CONTROLLER = "kafka.controller:type=KafkaController,name="
STATS = "kafka.controller:type=ControllerStats,name="
EVENTS = "kafka.controller:type=ControllerEventManager,name="


class ControllerCounts:
    """Counters and histograms of one controller, from which its metrics are exported."""

    def __init__(self) -> None:
        self.turns = Counter()
        """Number of times that this node became the active controller."""
        self.expired_sessions = Counter()
        self.early_ends = Counter()
        """Number of broker sessions that were ended early because the broker's process had
        ended."""
        self.unclean_elections = Counter()
        self.eligible_elections = Counter()
        self.queued = Histogram(BOUNDS_NS)
        """Histogram of the waiting times of the controller's decisions in their queue, in
        nanoseconds."""
        self.decided = Histogram(BOUNDS_NS)
        """Histogram of the times from the start of a controller's decision until its records were
        appended, in nanoseconds."""

    def note_elections(self, image: MetadataImage, records: Iterable[Record]) -> None:
        """Count the unclean leader elections among metadata records. `image` is the metadata image
        before the records are applied."""
        for record in records:
            if not record.HasField("partition_change"):
                continue
            change = record.partition_change
            if not change.HasField("leader") or change.leader == NO_NODE:
                continue
            topic = image.topics.get(UUID(bytes=change.topic_id))
            state = None if topic is None else topic.partitions.get(change.partition_id)
            leader = NodeId(change.leader)
            if state is None or leader == state.leader or leader in state.isr:
                continue
            counter = self.eligible_elections if leader in state.elr else self.unclean_elections
            counter.value += 1


def controller_registry(
    counts: ControllerCounts,
    *,
    is_active: Callable[[], bool],
    image: Callable[[], MetadataImage],
    committed_offset: Callable[[], int],
    wall_ms: Callable[[], int],
    now_ms: Callable[[], int],
    mutations: MutationQuotas,
    free_space: Callable[[], FreeSpaceReport] = lambda: FreeSpace("", DiskConfig()).report(0),
    reserved_bytes: Callable[[], int] = lambda: 0,
    authorizer: StandardAuthorizer | None = None,
    voter_state: Callable[[], tuple[Standing, VoterVerdict | None]] = lambda: (Standing.FULL, None),
) -> Registry:
    """Return a registry of the controller's metrics, which are read from these counters and
    functions at each scrape."""
    registry = Registry()
    registry.register(lambda: _role(counts, is_active(), image(), committed_offset(), wall_ms()))
    registry.register(lambda: _cluster(image()))
    registry.register(lambda: _work(counts, now_ms()))
    registry.register(lambda: _mutations(mutations, now_ms()))
    registry.register(lambda: free_space_families([free_space()]))
    registry.register(lambda: reserve_families(reserved_bytes()))
    registry.register(lambda: voter_families(*voter_state()))
    decisions = AuthorizerMetrics("controller", authorizer, lambda: image().acls, now_ms)
    registry.register(decisions.families)
    return registry


def empty_controller_registry() -> Registry:
    """Return the metrics registry of a controller without activity: all metrics, with their
    descriptions."""
    registry = controller_registry(
        ControllerCounts(),
        is_active=lambda: True,
        image=lambda: EMPTY,
        committed_offset=lambda: 0,
        wall_ms=lambda: 0,
        now_ms=lambda: 0,
        mutations=MutationQuotas(WindowShape()),
    )
    registry.register(lambda: front_families({}))
    return registry


def _role(
    counts: ControllerCounts,
    is_active: bool,
    image: MetadataImage,
    committed_offset: int,
    wall_ms: int,
) -> Iterator[Family]:
    applied_ms = image.provenance.timestamp_ms
    yield _gauge(
        f"{CONTROLLER}ActiveControllerCount", "1 on the active controller.", int(is_active)
    )
    yield _counter(
        f"{CONTROLLER}NewActiveControllersCount",
        "Number of times that this controller became the active one.",
        counts.turns.value,
    )
    yield _gauge(
        f"{CONTROLLER}LastAppliedRecordOffset",
        "Offset of the last metadata record in this node's image.",
        image.provenance.offset,
    )
    yield _gauge(
        f"{CONTROLLER}LastAppliedRecordTimestamp",
        "Timestamp of that record, in milliseconds since 1970.",
        applied_ms,
    )
    yield _gauge(
        f"{CONTROLLER}LastAppliedRecordLagMs",
        "Age of that record; 0 on the active controller.",
        0 if is_active or applied_ms < 0 else max(0, wall_ms - applied_ms),
    )
    yield _gauge(
        f"{CONTROLLER}LastCommittedRecordOffset",
        "Offset of the last record that is known to be committed.",
        committed_offset,
    )


def _cluster(image: MetadataImage) -> Iterator[Family | None]:
    """Yield the metrics that count the cluster's topics, partitions and brokers, by state."""
    partition_count = offline_count = unpreferred_count = 0
    topic_ids = image.topics.keys_by(_order)
    for topic_at, topic_id in enumerate(topic_ids):
        if not topic_at % TOPICS_PER_SLICE:
            yield None
        for at, state in enumerate(image.topics[topic_id].partitions.values()):
            if at % PARTITIONS_PER_SLICE == PARTITIONS_PER_SLICE - 1:
                yield None
            partition_count += 1
            offline_count += state.leader == NO_NODE
            unpreferred_count += state.leader != state.preferred_leader
    brokers = list(image.brokers.values())
    fenced_count = sum(broker.is_fenced for broker in brokers)
    leaving_count = sum(broker.in_controlled_shutdown for broker in brokers)
    for name, text, value in (
        ("GlobalTopicCount", "Topics of the cluster.", len(topic_ids)),
        ("GlobalPartitionCount", "Partitions of the cluster.", partition_count),
        ("OfflinePartitionsCount", "Partitions without a leader.", offline_count),
        (
            "PreferredReplicaImbalanceCount",
            "Partitions whose leader is not their first replica.",
            unpreferred_count,
        ),
        ("ActiveBrokerCount", "Brokers that are not fenced.", len(brokers) - fenced_count),
        ("FencedBrokerCount", "Brokers that are fenced.", fenced_count),
        (
            "ControlledShutdownBrokerCount",
            "Brokers that hand over their partitions before they stop.",
            leaving_count,
        ),
    ):
        yield _gauge(f"{CONTROLLER}{name}", text, value)
    yield gauges(
        f"{CONTROLLER}BrokerRegistrationState",
        "State of a registered broker: 10 fenced, 20 in its controlled shutdown, 30 active.",
        ("broker",),
        [((str(broker.id),), _registration_state(broker)) for broker in brokers],
    )


def _registration_state(broker: BrokerRegistration) -> int:
    """Return the number by which Kafka's metrics report the state of a registered broker."""
    if broker.is_fenced:
        return 10
    return 20 if broker.in_controlled_shutdown else 30


def _work(counts: ControllerCounts, now_ms: int) -> Iterator[Family]:
    yield _counter(
        f"{CONTROLLER}TimedOutBrokerHeartbeatCount",
        "Brokers that were fenced because their heartbeats stopped.",
        counts.expired_sessions.value,
    )
    yield Family(
        "ottla_controller_sessions_ended_early_total",
        MetricKind.COUNTER,
        "Sessions of brokers that were ended early because the broker's process was gone.",
        (),
        (((), counts.early_ends.value),),
    )
    yield _counter(
        f"{STATS}UncleanLeaderElectionsPerSec",
        "Elected leaders that may lack committed records.",
        counts.unclean_elections.value,
    )
    yield _counter(
        f"{STATS}ElectionFromEligibleLeaderReplicasPerSec",
        "Leaders elected from the eligible replicas because none was in sync.",
        counts.eligible_elections.value,
    )
    for name, text, histogram in (
        ("EventQueueTimeMs", "Time that a decision waits for earlier ones.", counts.queued),
        (
            "EventQueueProcessingTimeMs",
            "Time from a decision's start until its append.",
            counts.decided,
        ),
    ):
        summary = summary_of([histogram], now_ms, window_ms=WINDOW_MS, unit=NS_PER_MS)
        mbean = f"{EVENTS}{name}"
        yield Family(prometheus_name(mbean), MetricKind.SUMMARY, text, (), (((), summary),))


def _mutations(quotas: MutationQuotas, now_ms: int) -> Iterator[Family]:
    """Yield two metrics of the clients that create and delete partitions: the remaining tokens of a
    client, and its throttle time.

    Only the most recent clients have series, and only if their token buckets are not full.
    """
    # A copy, because a decision in a thread may add a bucket.
    found = [
        (names, tokens, bucket.per_second)
        for names, bucket in list(quotas.buckets.items())[-MUTATION_SERIES_MAX:]
        if (tokens := bucket.tokens_at(now_ms)) < bucket.burst
    ]
    for attribute, text, values in (
        (
            "tokens",
            "Partitions that a limited client may still create and delete.",
            [(names, tokens) for names, tokens, _ in found],
        ),
        (
            "throttle-time",
            "Milliseconds until a limited client is no longer in debt.",
            [
                (names, whole_ms(max(0.0, -tokens) / per_second * 1_000))
                for names, tokens, per_second in found
            ],
        ),
    ):
        name = prometheus_name(f"kafka.server:type=ControllerMutation,attribute={attribute}")
        yield Family(name, MetricKind.GAUGE, text, ("user", "client_id"), values)


def _order(topic_id: UUID) -> int:
    return topic_id.int


def _gauge(mbean: str, text: str, value: Value) -> Family:
    return Family(prometheus_name(mbean), MetricKind.GAUGE, text, (), (((), value),))


def _counter(mbean: str, text: str, value: Value) -> Family:
    return Family(prometheus_name(mbean), MetricKind.COUNTER, text, (), (((), value),))
