"""Replicas of all partitions during the search for moves, and the rules that no move may break.
Pure.

Invariants, which are true after each move and while moves are in progress:
- OneReplicaABroker.
- DistinctFailureDomains: a move never places two replicas of a partition in one rack, or on one
  host, if they were apart before.
- RoomOnDisk: a volume that receives replicas is at most `disk_percent_max` full even if no other
  move has freed space on it.  The moves may therefore be made in any order.
- Brokers that are down, cordoned or leaving receive nothing.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from enum import Enum

from ottla.model.balance.cluster_load import BalanceLimits, ClusterLoad, PartitionLoad
from ottla.model.balance.domains import Collisions, collisions
from ottla.model.balance.move_plan import BrokerTotals
from ottla.model.ids import NodeId


class Obstacle(Enum):
    """Rule of the balance planner that forbids a move of a replica."""

    HELD = "the other brokers have replicas of the same partitions"
    DOMAIN = "replicas would share a rack or a host"
    DISK = "disks would become too full"
    EFFECT = "no single move improves it"
    BYTES = "the bytes on the brokers would become uneven"


class ReplicaTable:
    """The replicas of all partitions during the search for moves, with indexes by broker."""

    def __init__(self, load: ClusterLoad, limits: BalanceLimits) -> None:
        self.brokers = {
            broker.id: broker for broker in sorted(load.brokers, key=lambda one: one.id)
        }
        self.partitions = sorted(load.partitions, key=lambda one: one.at)
        self.replicas = [one.replicas for one in self.partitions]
        known = {*self.brokers, *(one for replicas in self.replicas for one in replicas)}
        self.bytes = dict.fromkeys(sorted(known), 0)
        self.counts = dict(self.bytes)
        self.leaders = dict(self.bytes)
        self.held: dict[NodeId, list[tuple[int, int]]] = {broker: [] for broker in self.bytes}
        """For each broker, the partitions on it that may move, as pairs of size in bytes and
        partition index, sorted."""
        self._rooms = {
            broker.id: broker.room_bytes(limits.disk_percent_max) for broker in load.brokers
        }
        self._domains = {broker.id: broker.domain for broker in load.brokers}
        for one in self.partitions:
            self.leaders[one.replicas[0]] += 1
            for broker in one.replicas:
                self.bytes[broker] += one.size_bytes
                self.counts[broker] += 1

    def allow(self, indexes: Iterable[int]) -> None:
        """Permit moves of the partitions with these indexes in `partitions`."""
        for index in indexes:
            for broker in self.replicas[index]:
                self.held[broker].append((self.partitions[index].size_bytes, index))
        for held in self.held.values():
            held.sort()

    def totals(self) -> dict[NodeId, BrokerTotals]:
        """Return the load of each broker: the bytes of its replicas, their number, and the number
        of partitions whose preferred leader it is."""
        return {
            broker: BrokerTotals(size, self.counts[broker], self.leaders[broker])
            for broker, size in self.bytes.items()
        }

    def collisions(self, replicas: tuple[NodeId, ...]) -> Collisions:
        """Return two numbers of replicas: those in the same rack as an earlier replica of the
        partition, and those on the same host as an earlier replica."""
        return collisions(self._domains, replicas)

    def obstacle(self, index: int, giver: NodeId, taker: NodeId) -> Obstacle | None:
        """Return the rule that forbids moving a partition's replica from broker `giver` to broker
        `taker`, or None if the move is allowed."""
        replicas = self.replicas[index]
        if taker in replicas:
            return Obstacle.HELD
        room = self._rooms[taker]
        if room is not None and self.partitions[index].size_bytes > room:
            return Obstacle.DISK
        after = tuple(taker if one == giver else one for one in replicas)
        now_racks, now_hosts = self.collisions(replicas)
        racks, hosts = self.collisions(after)
        return Obstacle.DOMAIN if racks > now_racks or hosts > now_hosts else None

    def replace(self, index: int, giver: NodeId, taker: NodeId) -> None:
        """Move a partition's replica from broker `giver` to broker `taker`. The new replica has the
        same position in the order of preference."""
        replicas = self.replicas[index]
        partition = self.partitions[index]
        if replicas[0] == giver:
            self.leaders[giver] -= 1
            self.leaders[taker] += 1
        self.replicas[index] = tuple(taker if one == giver else one for one in replicas)
        self._count(partition, giver, -1)
        self._count(partition, taker, 1)
        room = self._rooms[taker]
        if room is not None:
            self._rooms[taker] = room - partition.size_bytes
        key = (partition.size_bytes, index)
        held = self.held[giver]
        del held[bisect_left(held, key)]
        insort(self.held[taker], key)

    def _count(self, partition: PartitionLoad, broker: NodeId, sign: int) -> None:
        self.bytes[broker] += sign * partition.size_bytes
        self.counts[broker] += sign

    def lead(self, index: int, leader: NodeId) -> None:
        """Make the replica on broker `leader` the preferred leader of a partition."""
        replicas = self.replicas[index]
        self.leaders[replicas[0]] -= 1
        self.leaders[leader] += 1
        self.replicas[index] = (leader, *(one for one in replicas if one != leader))
