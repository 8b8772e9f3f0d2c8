"""Conditions under which the planner of a balance must not make any move, or must not move a
certain partition. Pure.

A move copies a partition while clients use it. The planner makes no move that could reduce
availability. It therefore moves nothing during an upgrade or while more than one host of the
cluster is down, and no partition that already lacks replicas.
"""

from collections.abc import Collection, Mapping

from ottla.model.balance.cluster_load import BalanceLimits, BrokerLoad, ClusterLoad, PartitionLoad
from ottla.model.ids import NO_NODE, NodeId


def refusal_of_cluster(load: ClusterLoad) -> str | None:
    """Return the reason why no partition of the cluster may move now, or None if moves are
    permitted."""
    versions: dict[str, list[int]] = {}
    for broker in load.brokers:
        if broker.version:
            versions.setdefault(broker.version, []).append(broker.id)
    if len(versions) > 1:
        texts = [f"{version} on broker {_ids(ids)}" for version, ids in sorted(versions.items())]
        return f"the brokers run different releases ({'; '.join(texts)}); finish the upgrade first"
    gone = [one for one in load.brokers if not one.is_active and one.id not in load.leaving]
    hosts = {one.host or str(one.id) for one in gone}
    if len(hosts) > 1:
        ids = _ids([one.id for one in gone])
        return f"{len(hosts)} hosts are gone (broker {ids}); start their brokers first"
    silent = [one.id for one in load.brokers if one.is_active and one.volumes is None]
    if silent:
        return f"broker {_ids(silent)} did not report the sizes of its logs; try again"
    return None


def refusal_of_partition(
    partition: PartitionLoad,
    brokers: Mapping[NodeId, BrokerLoad],
    leaving: Collection[NodeId],
    limits: BalanceLimits,
) -> str | None:
    """Return the reason why a partition may not move, or None if a move is permitted.

    Offline replicas on brokers that leave the cluster do not prevent a move, because these replicas
    must be moved.
    """
    throttle = limits.throttle_bytes_per_s
    staying = [one for one in partition.replicas if one not in leaving]
    offline = [one for one in staying if one not in brokers or not brokers[one].is_active]
    in_sync_min = min(partition.min_insync_replicas, len(partition.replicas))
    if partition.is_moving:
        return "it is being reassigned"
    if partition.leader == NO_NODE:
        return "it has no leader"
    if offline:
        return f"broker {_ids(offline)} is down"
    if len(partition.isr) < in_sync_min and len(staying) == len(partition.replicas):
        return f"it has fewer than {in_sync_min} replicas in sync"
    late = [one for one in staying if one not in partition.isr]
    if late:
        return f"broker {_ids(late)} is not in sync"
    if partition.has_throttle:
        return "its topic has throttled replicas; 'ottla topic reassign --verify' removes those"
    if throttle is not None and 2 * partition.produce_bytes_per_s > throttle:
        return "its producers write more than half of the throttle, so a copy would not catch up"
    return None


def _ids(brokers: Collection[int]) -> str:
    return ", ".join(map(str, sorted(brokers)))
