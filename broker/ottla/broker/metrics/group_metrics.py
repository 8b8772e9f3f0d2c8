"""Computes the metrics of the groups that this broker coordinates, by protocol and state. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator

from ottla.broker.groups.classic.classic_group import CLASSIC, GroupState
from ottla.broker.groups.consumer.consumer_group import CONSUMER, ConsumerGroupState
from ottla.broker.groups.group_figures import Rebalances
from ottla.broker.groups.shard import GroupShard
from ottla.broker.groups.share.share_group import SHARE, ShareGroupState
from ottla.telemetry.metrics.instruments import Family
from ottla.telemetry.metrics.kafka_families import counter, gauge, gauges

BEAN = "kafka.server:type=group-coordinator-metrics,attribute="


def group_families(
    shards: Iterable[GroupShard], loading_count: int, rebalances: Rebalances, now_ms: int
) -> Iterator[Family]:
    """Yield the numbers of groups by protocol and state, of committed offsets, and of rebalances.

    `loading_count` is the number of partitions of `__consumer_offsets` that are still being loaded.
    `rebalances` contains the rebalances since the broker's start. `now_ms` is the monotonic time in
    milliseconds.
    """
    shards = list(shards)
    classic: Counter[str] = Counter()
    consumer: Counter[str] = Counter()
    share: Counter[str] = Counter()
    states_of = {CLASSIC: classic, CONSUMER: consumer, SHARE: share}
    for shard in shards:
        for group in shard.groups.values():
            states_of[group.type][group.state_name] += 1
    manager = "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups"
    count = classic.total() + consumer.total() + share.total()
    yield gauge(manager, "Groups of all protocols.", count)
    for state in GroupState:
        yield gauge(
            f"{manager}{state.value}", f"Classic groups: {state.value}.", classic[state.value]
        )
    yield gauge(
        "kafka.coordinator.group:type=GroupMetadataManager,name=NumOffsets",
        "Committed offsets.",
        sum(len(shard.offsets) for shard in shards),
    )
    yield gauges(
        f"{BEAN}group-count",
        "Groups by protocol.",
        ("protocol",),
        (
            (("classic",), classic.total()),
            (("consumer",), consumer.total()),
            (("share",), share.total()),
        ),
    )
    for protocol, text, states, counts in (
        ("classic", "Groups of the classic protocol by state.", GroupState, classic),
        ("consumer", "Groups of the consumer protocol by state.", ConsumerGroupState, consumer),
        ("share", "Share groups by state.", ShareGroupState, share),
    ):
        yield gauges(
            f"{BEAN}{protocol}-group-count",
            text,
            ("state",),
            [((state.value,), counts[state.value]) for state in states],
        )
    yield gauge(
        f"{BEAN}offset-count", "Committed offsets.", sum(len(shard.offsets) for shard in shards)
    )
    yield from _rebalance_families(rebalances, shards, now_ms)
    yield gauges(
        f"{BEAN}num-partitions",
        "Partitions of `__consumer_offsets` that are led here, by state.",
        ("state",),
        ((("active",), len(shards)), (("loading",), loading_count)),
    )


def _rebalance_families(
    rebalances: Rebalances, shards: list[GroupShard], now_ms: int
) -> Iterator[Family]:
    counts = rebalances.counts(shards)
    for kind, rate in rebalances.rates(counts, now_ms).items():
        yield counter(
            f"{BEAN}{kind}-group-rebalance-count",
            f"Number of times that the epoch of a {kind} group was incremented.",
            counts[kind],
        )
        yield gauge(
            f"{BEAN}{kind}-group-rebalance-rate",
            f"Increments of the epochs of {kind} groups per second, in the last minute.",
            rate,
        )
