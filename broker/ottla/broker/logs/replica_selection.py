"""Selects the replica from which a consumer fetches (KIP-392).

Pure. If `replica.selector.class` is set, the leader of a partition names a preferred read replica
in the consumer's rack, and the consumer fetches from that replica. Candidates are the leader and
the in-sync replicas whose log contains the fetch offset, because other replicas would refuse the
fetch.
"""

from ottla.broker.logs.fetch_read import NO_REPLICA
from ottla.broker.logs.leader_hints import endpoints_of
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.model.ids import NodeId


class RackAwareSelector:
    """Replica selector with the rule of Kafka's RackAwareReplicaSelector: the most caught-up
    replica in the consumer's rack."""

    __slots__ = ("_table",)

    def __init__(self, table: PartitionTable) -> None:
        self._table = table

    def preferred(
        self, partition: Partition, rack: str, fetch_offset: int, listener_name: str, now_ms: int
    ) -> int:
        """Return the id of the follower from which a consumer in `rack` should fetch, or NO_REPLICA
        if the consumer should fetch from the leader.

        The leader is chosen if it is in that rack, or if no other candidate is in that rack. Among
        several followers, the follower with the highest log end offset is chosen, then the follower
        that caught up last, then the follower with the highest id. A follower is not a candidate
        if it is fenced or has no endpoint on the consumer's listener.
        """
        if not partition.is_leader:
            return NO_REPLICA
        image = self._table.image
        leader = image.brokers.get(partition.local_id)
        if leader is not None and leader.rack == rack:
            return NO_REPLICA
        found: list[tuple[int, int, NodeId]] = []
        for replica, follower in partition.followers.items():
            broker = image.brokers.get(replica)
            if (
                broker is not None
                and broker.rack == rack
                and not broker.is_fenced
                and replica in partition.isr
                and follower.log_start_offset <= fetch_offset <= follower.end_offset
                and endpoints_of(image, (replica,), listener_name)
            ):
                found.append((follower.end_offset, follower.caught_up_ms - now_ms, replica))
        return max(found)[-1] if found else NO_REPLICA
