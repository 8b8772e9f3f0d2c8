"""Metrics of groups: their number by protocol and state."""

from typing import Any

from ottla.broker.groups.group_figures import Rebalances
from ottla.broker.metrics.group_metrics import group_families
from tests.broker.groups.share.test_share_groups import ShareBench


def _samples(
    bench: ShareBench, rebalances: Rebalances | None = None, *, now_ms: int = 60_000
) -> dict[str, dict[tuple[str, ...], Any]]:
    return {
        family.name: {tuple(one[0]): one[1] for one in family.samples if one is not None}
        for family in group_families([bench.shard], 0, rebalances or Rebalances(0), now_ms)
    }


def test_share_groups_are_counted_by_state_and_their_rebalances() -> None:
    shares = ShareBench()
    shares.make_topic("orders", 1)
    shares.settled("a")
    found = _samples(shares)
    (by_protocol,) = (found[name] for name in found if name.endswith("metrics_group_count"))
    assert by_protocol == {("classic",): 0, ("consumer",): 0, ("share",): 1}
    (by_state,) = (found[name] for name in found if name.endswith("share_group_count"))
    assert by_state == {("Empty",): 0, ("Stable",): 1, ("Dead",): 0}
    (rebalances,) = (found[name] for name in found if name.endswith("share_group_rebalance_count"))
    assert rebalances == {(): shares.share.group_epoch}
    shares.share_heartbeat("a", -1)
    found = _samples(shares)
    (by_state,) = (found[name] for name in found if name.endswith("share_group_count"))
    assert by_state == {("Empty",): 1, ("Stable",): 0, ("Dead",): 0}


def test_rebalances_are_counted_on_after_their_shard_has_moved_to_another_broker() -> None:
    shares, rebalances = ShareBench(), Rebalances(0)
    shares.make_topic("orders", 1)
    shares.settled("a")
    epoch = shares.share.group_epoch
    prefix = "kafka_server_group_coordinator_metrics_share_group_rebalance"
    found = _samples(shares, rebalances, now_ms=60_000)
    assert found[f"{prefix}_rate"] == {(): epoch / 60}
    rebalances.keep(shares.shard)
    found = _samples(ShareBench(), rebalances, now_ms=120_000)
    assert found[f"{prefix}_count"] == {(): epoch}
    assert found[f"{prefix}_rate"] == {(): 0}


def test_numbers_of_the_coordinator_have_the_names_of_kafka_4_4() -> None:
    """Kafka's MBean is `kafka.server:type=group-coordinator-metrics`."""
    shares = ShareBench()
    found = _samples(shares)
    prefix = "kafka_server_group_coordinator_metrics_"
    of_coordinator = {name.removeprefix(prefix) for name in found if name.startswith(prefix)}
    assert of_coordinator == {
        *(f"{kind}group_count" for kind in ("", "classic_", "consumer_", "share_")),
        *(
            f"{kind}_group_rebalance_{what}"
            for kind in ("consumer", "share")
            for what in ("count", "rate")
        ),
        "num_partitions",
        "offset_count",
    }
    assert found[f"{prefix}num_partitions"] == {("active",): 1, ("loading",): 0}
    states = {state for (state,) in found[f"{prefix}classic_group_count"]}
    assert states == {"Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"}
