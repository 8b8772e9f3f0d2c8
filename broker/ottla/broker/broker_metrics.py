"""Registers the metrics and status values of a broker's core, and of this node as a member of the
quorum. Pure.

Metric families have the names of Kafka's MBeans (`ottla.telemetry.metrics.kafka_names`), in the
groups of Kafka's documentation. Families that Kafka does not have start with the prefix `ottla_`.
Each driver registers its own metrics in its method `register_with`.
"""

from collections.abc import Callable, Iterator, Mapping

from ottla.broker.broker_core import BrokerCore
from ottla.broker.cluster.settings.dynamic_settings import throttles_of
from ottla.broker.logs.fetch_session import FetchSessionCache
from ottla.broker.metrics.group_metrics import group_families
from ottla.broker.metrics.partition_metrics import partition_families
from ottla.broker.metrics.share_metrics import share_families
from ottla.broker.metrics.share_state_metrics import share_state_families
from ottla.broker.metrics.transaction_metrics import transaction_families
from ottla.broker.metrics.transactional_partitions import transactional_partition_families
from ottla.node.authorizer_metrics import AuthorizerMetrics
from ottla.node.network.purgatory import Purgatory
from ottla.node.part_registry import PartRegistry
from ottla.node.process_metrics_driver import unexpected_error_families
from ottla.node.quorum.quorum_driver import QuorumMember
from ottla.node.quorum.quorum_metrics import metadata_families, quorum_families
from ottla.node.quotas.quota_metrics import client_families
from ottla.telemetry.metrics.instruments import Family, Histogram
from ottla.telemetry.metrics.kafka_families import counter, gauge, gauges

DELAYED_OPERATIONS = (
    "Produce",
    "Fetch",
    "ShareFetch",
    "DeleteRecords",
    "WriteTxnMarkers",
    "GroupCommit",
    "TransactionCommit",
    "TransactionLoad",
    "Metadata",
)
"""Names of the kinds of delayed requests in metrics, such as a Produce request that waits for its
replicas. The first four names are Kafka's."""


def register_metrics(
    parts: PartRegistry,
    core: BrokerCore,
    member: QuorumMember,
    *,
    transaction_figures: Callable[[], Mapping[str, float]],
    verifications: Histogram,
) -> None:
    """Register the metrics and status values of a broker's core (its parts that decide) and of its
    member of the controller quorum.

    `verifications` is a histogram of the durations of requests to transaction coordinators, which
    verify that a transaction may write to a partition.
    """
    clock, now_ms = parts.clock, parts.clock.monotonic_ms
    authorizer = core.authorization.by_acls
    decisions = AuthorizerMetrics("broker", authorizer, lambda: member.image.acls, now_ms)
    for families in (
        lambda: _waiting(core.sessions, core.purgatory),
        lambda: partition_families(core.table),
        lambda: transactional_partition_families(
            core.table,
            transaction_figures(),
            verifications,
            now_ms=now_ms(),
            wall_ms=clock.wall_ms(),
            timeout_ms_max=core.config.transactions.timeout_ms_max,
        ),
        core.traffic.families,
        lambda: core.dispatcher.times.families(now_ms()),
        lambda: client_families(core.quotas, now_ms()),
        decisions.families,
        lambda: group_families(
            core.groups.shards(), core.groups.loading_count, core.groups.rebalances, now_ms()
        ),
        lambda: share_families(core.shares.delivery),
        lambda: share_state_families(core.share_states),
        lambda: transaction_families(core.transactions.shards(), transaction_figures()),
        lambda: quorum_families(member, now_ms()),
        lambda: metadata_families(member, clock.wall_ms()),
        lambda: unexpected_error_families(core.errors),
    ):
        parts.families(families)
    parts.figures(lambda: _figures(core, member))
    parts.problems(lambda: member.problems)


def _figures(core: BrokerCore, member: QuorumMember) -> dict[str, float]:
    return {
        "fetch.sessions": len(core.sessions),
        "fetch.sessions.evicted": core.sessions.eviction_count,
        "metadata.applied.offset": member.applied_end_offset - 1,
        **throttles_of(member.image, core.config.node_id),
        "requests.waiting": core.purgatory.waiting_count,
        "requests.answered": core.dispatcher.times.count(),
        "errors.unexpected": core.errors.counts.total(),
        **{
            f"errors.unexpected.{kind.replace(' ', '.')}": count
            for kind, count in core.errors.counts.items()
        },
    }


def _waiting(sessions: FetchSessionCache, purgatory: Purgatory) -> Iterator[Family]:
    server = "kafka.server:type="
    yield gauge(
        f"{server}FetchSessionCache,name=NumIncrementalFetchSessions",
        "Open fetch sessions.",
        len(sessions),
    )
    yield counter(
        f"{server}FetchSessionCache,name=IncrementalFetchSessionEvictionsPerSec",
        "Fetch sessions evicted in favour of others.",
        sessions.eviction_count,
    )
    counts = purgatory.waiting_by_kind()
    yield gauges(
        f"{server}DelayedOperationPurgatory,name=PurgatorySize",
        "Requests waiting for records, for replicas, or for a deadline.",
        ("delayedOperation",),
        [((kind,), counts.get(kind, 0)) for kind in DELAYED_OPERATIONS],
    )
