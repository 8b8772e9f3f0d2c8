"""Metrics of groups: their number by protocol and state."""

from typing import Any

from ottla.broker.metrics.group_metrics import group_families
from tests.broker.groups.share.test_share_groups import ShareBench


def _samples(bench: ShareBench) -> dict[str, dict[tuple[str, ...], Any]]:
    return {
        family.name: {tuple(one[0]): one[1] for one in family.samples if one is not None}
        for family in group_families([bench.shard])
    }


def test_share_groups_are_counted_by_state_and_their_rebalances() -> None:
    shares = ShareBench()
    shares.make_topic("orders", 1)
    shares.settled("a")
    found = _samples(shares)
    (by_protocol,) = (found[name] for name in found if name.endswith("metrics_group_count"))
    assert by_protocol == {("classic",): 0, ("consumer",): 0, ("share",): 1}
    (by_state,) = (found[name] for name in found if name.endswith("share_group_count"))
    assert by_state == {("empty",): 0, ("stable",): 1, ("dead",): 0}
    (rebalances,) = (found[name] for name in found if "share_group_rebalance" in name)
    assert rebalances == {(): shares.share.group_epoch}
    shares.share_heartbeat("a", -1)
    found = _samples(shares)
    (by_state,) = (found[name] for name in found if name.endswith("share_group_count"))
    assert by_state == {("empty",): 1, ("stable",): 0, ("dead",): 0}
