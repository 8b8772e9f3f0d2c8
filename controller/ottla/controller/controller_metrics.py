"""What a controller tells of itself and of the cluster: the registry behind its /metrics.  Pure.

Names are Kafka's (`kafka.controller:type=KafkaController`, `ControllerStats`,
`ControllerEventManager`), as dashboards know them.  Every controller tells how the cluster is by
its own image; which of them is active is one number, and who sums it over all expects 1.
"""

from collections.abc import Callable, Iterable, Iterator
from uuid import UUID

from ottla.controller.mutation_quotas import MutationQuotas
from ottla.metadata.image import EMPTY, MetadataImage
from ottla.metadata.records import Record
from ottla.metadata.standard_authorizer import StandardAuthorizer
from ottla.model.ids import NO_NODE, NodeId
from ottla.model.rates import WindowShape, whole_ms
from ottla.model.settings.disks import DiskConfig
from ottla.node.authorizer_metrics import AuthorizerMetrics
from ottla.node.quorum_metrics import voter_families
from ottla.node.room_metrics import reserve_families, room_families
from ottla.raft.transitions import Standing
from ottla.raft.voter_checkpoint import VoterVerdict
from ottla.storage.disk_room import DiskRoom, RoomReport
from ottla.telemetry.instruments import (
    Counter,
    Family,
    Histogram,
    MetricKind,
    Registry,
    Value,
    summary_of,
)
from ottla.telemetry.kafka_names import prometheus_name

TOPICS_PER_SLICE = 64
"""Topics looked through before a pause is offered."""

PARTITIONS_PER_SLICE = 256

NS_PER_MS = 1_000_000
BOUNDS_NS = tuple(round(10_000 * 1.25**step) for step in range(76))
"""From 10 µs to more than three minutes, so that a quantile is off by 12 % at most."""

WINDOW_MS = 60_000

MUTATION_SERIES_MAX = 1_000
"""Limited clients shown: they choose their names, and every series costs the collector memory."""

CONTROLLER = "kafka.controller:type=KafkaController,name="
STATS = "kafka.controller:type=ControllerStats,name="
EVENTS = "kafka.controller:type=ControllerEventManager,name="


class ControllerCounts:
    """What has to be counted as it happens."""

    def __init__(self) -> None:
        self.turns = Counter()
        """How often this node became the active controller."""
        self.expired_sessions = Counter()
        self.early_ends = Counter()
        """Sessions that ended before their time, their broker's process being gone."""
        self.unclean_elections = Counter()
        self.eligible_elections = Counter()
        self.queued = Histogram(BOUNDS_NS)
        """How long decisions waited for those before them, in nanoseconds."""
        self.decided = Histogram(BOUNDS_NS)
        """How long they took until they were appended."""

    def note_elections(self, image: MetadataImage, records: Iterable[Record]) -> None:
        """Count the leaders that records make which were not in sync, by the image before them."""
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
    room: Callable[[], RoomReport] = lambda: DiskRoom("", DiskConfig()).report(0),
    reserved_bytes: Callable[[], int] = lambda: 0,
    authorizer: StandardAuthorizer | None = None,
    voter_state: Callable[[], tuple[Standing, VoterVerdict | None]] = lambda: (Standing.FULL, None),
) -> Registry:
    """Return a registry that reads these, each when it is asked."""
    registry = Registry()
    registry.register(lambda: _role(counts, is_active(), image(), committed_offset(), wall_ms()))
    registry.register(lambda: _cluster(image()))
    registry.register(lambda: _work(counts, now_ms()))
    registry.register(lambda: _mutations(mutations, now_ms()))
    registry.register(lambda: room_families([room()]))
    registry.register(lambda: reserve_families(reserved_bytes()))
    registry.register(lambda: voter_families(*voter_state()))
    decisions = AuthorizerMetrics("controller", authorizer, lambda: image().acls, now_ms)
    registry.register(decisions.families)
    return registry


def empty_controller_registry() -> Registry:
    """Return the registry of a controller that has done nothing: every name, each with its text."""
    return controller_registry(
        ControllerCounts(),
        is_active=lambda: True,
        image=lambda: EMPTY,
        committed_offset=lambda: 0,
        wall_ms=lambda: 0,
        now_ms=lambda: 0,
        mutations=MutationQuotas(WindowShape()),
    )


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
        "How often this controller became the active one.",
        counts.turns.value,
    )
    yield _gauge(
        f"{CONTROLLER}LastAppliedRecordOffset",
        "The last record of the metadata log that this node's image has.",
        image.provenance.offset,
    )
    yield _gauge(
        f"{CONTROLLER}LastAppliedRecordTimestamp",
        "When it was written, in milliseconds since 1970.",
        applied_ms,
    )
    yield _gauge(
        f"{CONTROLLER}LastAppliedRecordLagMs",
        "How long ago that was; 0 on the active controller.",
        0 if is_active or applied_ms < 0 else max(0, wall_ms - applied_ms),
    )
    yield _gauge(
        f"{CONTROLLER}LastCommittedRecordOffset",
        "The last record known to be committed.",
        committed_offset,
    )


def _cluster(image: MetadataImage) -> Iterator[Family | None]:
    """Look through the image, then tell how many there are of each kind."""
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
    for name, text, value in (
        ("GlobalTopicCount", "Topics of the cluster.", len(topic_ids)),
        ("GlobalPartitionCount", "Partitions of the cluster.", partition_count),
        ("OfflinePartitionsCount", "Partitions that nobody leads.", offline_count),
        (
            "PreferredReplicaImbalanceCount",
            "Partitions led by another than their first replica.",
            unpreferred_count,
        ),
        ("ActiveBrokerCount", "Brokers that serve.", len(brokers) - fenced_count),
        ("FencedBrokerCount", "Registered brokers that do not.", fenced_count),
    ):
        yield _gauge(f"{CONTROLLER}{name}", text, value)


def _work(counts: ControllerCounts, now_ms: int) -> Iterator[Family]:
    yield _counter(
        f"{CONTROLLER}TimedOutBrokerHeartbeatCount",
        "Brokers fenced because they fell silent.",
        counts.expired_sessions.value,
    )
    yield Family(
        "ottla_controller_sessions_ended_early_total",
        MetricKind.COUNTER,
        "Sessions of brokers that ended before their time, since the broker's process was gone.",
        (),
        (((), counts.early_ends.value),),
    )
    yield _counter(
        f"{STATS}UncleanLeaderElectionsPerSec",
        "Leaders elected without all that was committed.",
        counts.unclean_elections.value,
    )
    yield _counter(
        f"{STATS}ElectionFromEligibleLeaderReplicasPerSec",
        "Leaders elected of the eligible replicas, none being in sync.",
        counts.eligible_elections.value,
    )
    for name, text, histogram in (
        ("EventQueueTimeMs", "Time a decision waits for those before it.", counts.queued),
        ("EventQueueProcessingTimeMs", "Time it takes until it is appended.", counts.decided),
    ):
        summary = summary_of([histogram], now_ms, window_ms=WINDOW_MS, unit=NS_PER_MS)
        mbean = f"{EVENTS}{name}"
        yield Family(prometheus_name(mbean), MetricKind.SUMMARY, text, (), (((), summary),))


def _mutations(quotas: MutationQuotas, now_ms: int) -> Iterator[Family]:
    """Yield the tokens of clients that have not all of them, the latest ones.

    A client whose bucket is full again has no series.
    """
    # A list at once: a decision beside the loop may add a bucket.
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
            "Milliseconds until a limited client has paid off its debt.",
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
