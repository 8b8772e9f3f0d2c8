"""Everything a broker tells of itself, put together: the registry behind /metrics.

It only reads: nearly all where it is at the moment somebody asks; what has to be counted as it
happens is a plain integer of the part that it happens to.  Families are declared by Kafka's MBean
names (`ottla.telemetry.kafka_names` says what becomes of them and who asks for it), in the groups
that Kafka's documentation of its metrics has; what is ours alone is `ottla_…`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from ottla.broker.authentication.authenticators import Authenticators
from ottla.broker.cluster.lifecycle import Lifecycle
from ottla.broker.groups.classic_group import ClassicGroup, GroupState
from ottla.broker.groups.consumer_group import ConsumerGroupState
from ottla.broker.groups.shard import GroupShard
from ottla.broker.logs.fetch_session import FetchSessionCache
from ottla.broker.metrics.cleaner_metrics import cleaner_families
from ottla.broker.metrics.families import counter, gauge, gauges
from ottla.broker.metrics.login_metrics import login_families
from ottla.broker.metrics.partition_metrics import partition_families
from ottla.broker.metrics.quota_metrics import client_families, connection_families
from ottla.broker.metrics.tls_metrics import tls_families
from ottla.broker.metrics.transaction_metrics import transaction_families
from ottla.broker.metrics.transactional_partitions import transactional_partition_families
from ottla.broker.network.purgatory import Purgatory
from ottla.broker.network.request_times import RequestTimes
from ottla.broker.quotas.connection_quotas import ConnectionQuotas
from ottla.broker.quotas.replication_quota import ReplicationQuotas
from ottla.broker.quotas.request_quotas import RequestQuotas
from ottla.broker.replicas.flush_driver import Flusher
from ottla.broker.replicas.isr_keeper import IsrKeeper
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.broker.replicas.replica_fetcher_driver import ReplicaFetchers
from ottla.broker.replicas.topic_traffic import BrokerTraffic
from ottla.broker.transactions.transaction_shard import TransactionShard
from ottla.metadata.standard_authorizer import StandardAuthorizer
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.model.values import frozen
from ottla.node.authorizer_metrics import AuthorizerMetrics
from ottla.node.process_metrics_driver import unexpected_error_families
from ottla.node.quorum_driver import QuorumMember
from ottla.node.quorum_metrics import metadata_families, quorum_families
from ottla.node.room_metrics import reserve_families, room_families
from ottla.storage.disk_room import RoomReport
from ottla.storage.log_losses import LossKind
from ottla.storage.log_manager_driver import LogManager
from ottla.storage.losses.known_losses_driver import count_by_kind
from ottla.telemetry.instruments import (
    Family,
    Histogram,
    MetricKind,
    Registry,
    Value,
    summary_of,
)
from ottla.telemetry.kafka_names import prometheus_name

DELAYED_OPERATIONS = (
    "Produce",
    "Fetch",
    "DeleteRecords",
    "WriteTxnMarkers",
    "GroupCommit",
    "TransactionCommit",
    "TransactionLoad",
    "Metadata",
)
"""The kinds of entries in the purgatory; the first three are Kafka's names."""

FLUSH_WINDOW_MS = 60_000

PARTITIONS_PER_SLICE = 1_000


@frozen(kw_only=True)
class BrokerParts:
    """What of a broker is read."""

    lifecycle: Lifecycle
    table: PartitionTable
    logs: LogManager
    rooms: Callable[[], Iterable[RoomReport]]
    traffic: BrokerTraffic
    times: RequestTimes
    now_ms: Callable[[], int]
    """The monotonic clock, by which quantiles forget."""
    wall_ms: Callable[[], int]
    transaction_timeout_ms_max: int
    isr: IsrKeeper
    fetchers: ReplicaFetchers
    replication_quotas: ReplicationQuotas
    flusher: Flusher
    sessions: FetchSessionCache
    purgatory: Purgatory
    member: QuorumMember
    shards: Callable[[], Iterable[GroupShard]]
    transaction_shards: Callable[[], Iterable[TransactionShard]]
    transactions: Callable[[], Mapping[str, float]]
    verifications: Histogram
    """Times of questions to coordinators of transactions."""
    network: Callable[[], Mapping[str, float]]
    authenticators: Authenticators
    authorizer: StandardAuthorizer | None
    connections: ConnectionQuotas
    quotas: RequestQuotas
    heartbeats: Callable[[], Mapping[str, float]]
    errors: UnexpectedErrors


def broker_registry(parts: BrokerParts) -> Registry:
    """Return a registry that reads these parts."""
    registry = Registry()
    registry.register(lambda: _server(parts))
    registry.register(lambda: partition_families(parts.table))
    registry.register(lambda: _replicas(parts))
    registry.register(lambda: _losses(parts))
    registry.register(
        lambda: transactional_partition_families(
            parts.table,
            parts.transactions(),
            parts.verifications,
            now_ms=parts.now_ms(),
            wall_ms=parts.wall_ms(),
            timeout_ms_max=parts.transaction_timeout_ms_max,
        )
    )
    registry.register(parts.traffic.families)
    registry.register(lambda: parts.times.families(parts.now_ms()))
    registry.register(lambda: _followers(parts.fetchers))
    registry.register(lambda: _throttles(parts.replication_quotas))
    registry.register(lambda: _logs(parts.logs))
    registry.register(lambda: room_families(parts.rooms()))
    registry.register(lambda: reserve_families(parts.member.reserved_bytes))
    registry.register(lambda: cleaner_families(parts.logs))
    registry.register(lambda: _flushes(parts))
    registry.register(lambda: _network(parts.network()))
    registry.register(lambda: client_families(parts.quotas, parts.now_ms()))
    registry.register(lambda: connection_families(parts.connections, parts.now_ms()))
    registry.register(lambda: login_families(parts.authenticators, parts.network()))
    decisions = AuthorizerMetrics(
        "broker", parts.authorizer, lambda: parts.member.image.acls, parts.now_ms
    )
    registry.register(decisions.families)
    registry.register(lambda: tls_families(parts.network()))
    registry.register(lambda: _groups(list(parts.shards())))
    registry.register(
        lambda: transaction_families(parts.transaction_shards(), parts.transactions())
    )
    registry.register(lambda: quorum_families(parts.member, parts.now_ms()))
    registry.register(lambda: metadata_families(parts.member))
    registry.register(lambda: _heartbeats(parts.heartbeats()))
    registry.register(lambda: unexpected_error_families(parts.errors))
    return registry


def _server(parts: BrokerParts) -> Iterator[Family]:
    server = "kafka.server:type="
    yield gauge(
        f"{server}KafkaServer,name=BrokerState",
        "0 not running, 1 starting, 2 recovery, 3 running, 6 controlled shutdown, 7 shutting down; "
        "100 draining, 101 drained.",
        int(parts.lifecycle.state),
    )
    yield gauge(
        f"{server}FetchSessionCache,name=NumIncrementalFetchSessions",
        "Fetch sessions held.",
        len(parts.sessions),
    )
    yield counter(
        f"{server}FetchSessionCache,name=IncrementalFetchSessionEvictionsPerSec",
        "Fetch sessions that had to make room for others.",
        parts.sessions.eviction_count,
    )
    counts = parts.purgatory.waiting_by_kind()
    yield gauges(
        f"{server}DelayedOperationPurgatory,name=PurgatorySize",
        "Requests that wait for records, for replicas, or for time to pass.",
        ("delayedOperation",),
        [((kind,), counts.get(kind, 0)) for kind in DELAYED_OPERATIONS],
    )


def _replicas(parts: BrokerParts) -> Iterator[Family]:
    manager = "kafka.server:type=ReplicaManager,name="
    isr = parts.isr
    yield gauge(
        f"{manager}OfflineReplicaCount", "Replicas that do not serve.", len(parts.logs.offline)
    )
    yield counter(
        f"{manager}IsrShrinksPerSec", "Replicas that fell out of sync.", isr.shrinks.value
    )
    yield counter(f"{manager}IsrExpandsPerSec", "Replicas that came in sync.", isr.expands.value)
    yield counter(
        f"{manager}FailedIsrUpdatesPerSec",
        "Changes of in-sync replicas that the controller did not make.",
        isr.failures.value,
    )


def _losses(parts: BrokerParts) -> Iterator[Family]:
    found = parts.logs.known_losses.found_counts
    lacking = count_by_kind(parts.logs.losses)
    yield Family(
        "ottla_log_losses_found_total",
        MetricKind.COUNTER,
        "Replicas that this start found to lack records that they had, by kind.",
        ("kind",),
        tuple(((kind.value,), found[kind]) for kind in LossKind),
    )
    yield Family(
        "ottla_log_recovery_cut_bytes_total",
        MetricKind.COUNTER,
        "Bytes at the ends of logs that this start cut off, for they were no whole records.",
        (),
        (((), parts.logs.known_losses.cut_bytes),),
    )
    yield Family(
        "ottla_log_losses",
        MetricKind.GAUGE,
        "Replicas that lack records that they had, and are not whole again yet, by kind.",
        ("kind",),
        tuple(((kind.value,), lacking[kind]) for kind in LossKind),
    )


def _followers(fetchers: ReplicaFetchers) -> Iterator[Family | None]:
    """Look through all that is followed, then tell how far behind it is."""
    longest = 0
    for at, followed in enumerate(fetchers.followed()):
        if not at % PARTITIONS_PER_SLICE:
            yield None
        longest = max(longest, followed.lag)
    manager = "kafka.server:type=ReplicaFetcherManager,name="
    for name, text, value in (
        ("MaxLag", "Committed records that the furthest follower here lacks.", longest),
        (
            "FailedPartitionsCount",
            "Partitions that do not follow for now.",
            fetchers.set_aside_count,
        ),
    ):
        yield gauges(f"{manager}{name}", text, ("clientId",), ((("Replica",), value),))


def _throttles(quotas: ReplicationQuotas) -> Iterator[Family]:
    for name, text, quota in (
        ("LeaderReplication", "sent to throttled replicas", quotas.leader),
        ("FollowerReplication", "fetched for throttled replicas", quotas.follower),
        ("AlterLogDirsReplication", "copied between log directories", quotas.log_dirs),
    ):
        yield gauge(
            f"kafka.server:type={name},attribute=byte-rate",
            f"Bytes a second {text}, where a limit is set.",
            quota.per_second(),
        )


def _flushes(parts: BrokerParts) -> Iterator[Family]:
    summary = summary_of([parts.flusher.flushes], parts.now_ms(), window_ms=FLUSH_WINDOW_MS)
    yield Family(
        prometheus_name("kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs"),
        MetricKind.SUMMARY,
        "Flushes that acknowledgements wait for (flush.messages).",
        (),
        (((), summary),),
    )


def _logs(logs: LogManager) -> Iterator[Family]:
    manager = "kafka.log:type=LogManager,name="
    directories = logs.directories
    yield gauge(
        f"{manager}OfflineLogDirectoryCount",
        "Directories of log.dirs that failed.",
        sum(not directory.is_live for directory in directories),
    )
    yield gauges(
        f"{manager}LogDirectoryOffline",
        "1 for a directory that failed.",
        ("logDirectory",),
        [((directory.path,), int(not directory.is_live)) for directory in directories],
    )
    yield gauge(
        f"{manager}CordonedLogDirectoryCount",
        "Directories of log.dirs that take no new replica.",
        sum(directory.is_cordoned for directory in directories),
    )
    yield gauges(
        f"{manager}LogDirectoryCordoned",
        "1 for a directory that takes no new replica.",
        ("logDirectory",),
        [((directory.path,), int(directory.is_cordoned)) for directory in directories],
    )
    yield gauges(
        f"{manager}remainingLogsToRecover",
        "Logs still to be recovered.",
        ("dir",),
        [((directory.path,), directory.progress.remaining_log_count) for directory in directories],
    )
    yield gauges(
        f"{manager}remainingSegmentsToRecover",
        "Segments left of the log that a recovery thread checks.",
        ("dir", "threadNum"),
        [
            ((directory.path, str(thread)), count)
            for directory in directories
            for thread, count in enumerate(directory.progress.segment_counts_by_thread)
        ],
    )


def _network(counts: Mapping[str, float]) -> Iterator[Family]:
    bean = "kafka.server:type=socket-server-metrics,attribute="
    yield gauge(f"{bean}connection-count", "Open connections.", counts["network.connections"])
    yield counter(
        f"{bean}connection-creation-total",
        "Connections accepted.",
        counts["network.connections.accepted"],
    )
    yield Family(
        "ottla_network_connections_closed_total",
        MetricKind.COUNTER,
        "Connections that this broker closed, by reason.",
        ("reason",),
        (
            (("bad_input",), counts["network.connections.closed.bad.input"]),
            (("idle",), counts["network.connections.closed.idle"]),
            (("slow",), counts["network.connections.closed.slow"]),
            (("unread",), counts["network.connections.closed.unread"]),
        ),
    )
    yield _plain(
        "ottla_network_request_held_bytes",
        "Bytes of requests that are not answered yet.",
        counts["network.request.bytes.held"],
    )


def _groups(shards: list[GroupShard]) -> Iterator[Family]:
    """Yield how many groups this broker coordinates, and in which states."""
    classic: Counter[str] = Counter()
    consumer: Counter[str] = Counter()
    for shard in shards:
        for group in shard.groups.values():
            states = classic if isinstance(group, ClassicGroup) else consumer
            states[group.state] += 1
    manager = "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups"
    yield gauge(manager, "Groups of both protocols.", classic.total() + consumer.total())
    for state in GroupState:
        yield gauge(f"{manager}{state.value}", f"Classic groups: {state.value}.", classic[state])
    yield gauge(
        "kafka.coordinator.group:type=GroupMetadataManager,name=NumOffsets",
        "Committed offsets.",
        sum(len(shard.offsets) for shard in shards),
    )
    bean = "kafka.coordinator.group:type=group-coordinator-metrics,attribute="
    yield gauges(
        f"{bean}group-count",
        "Groups by protocol.",
        ("protocol",),
        (
            (("classic",), classic.total()),
            (("consumer",), consumer.total()),
        ),
    )
    yield gauges(
        f"{bean}consumer-group-count",
        "Groups of the consumer protocol by state.",
        ("state",),
        [((state.value.lower(),), consumer[state]) for state in ConsumerGroupState],
    )


def _heartbeats(delays: Mapping[str, float]) -> Iterator[Family]:
    yield Family(
        "ottla_broker_heartbeats_total",
        MetricKind.COUNTER,
        "Heartbeats that the controller answered.",
        (),
        (((), delays["heartbeats"]),),
    )
    yield _plain(
        "ottla_broker_heartbeat_delay_p99_seconds",
        "From when a heartbeat was due to its answer, of the last thousand.",
        delays["heartbeat.delay.p99.ms"] / 1_000,
    )
    yield _plain(
        "ottla_broker_heartbeat_delay_longest_seconds",
        "The longest of these.",
        delays["heartbeat.delay.longest.ms"] / 1_000,
    )


def _plain(name: str, text: str, value: Value) -> Family:
    return Family(name, MetricKind.GAUGE, text, (), (((), value),))
