"""Placement of new replicas: striped over brokers, spread over racks and hosts.

The first replicas (leaders) are assigned to brokers in turn, interleaved by rack and host, so that
each broker leads the same number of partitions. The position of a topic's first leader depends on a
count of topics, so that many topics with one partition are also distributed evenly.

Each further replica is placed in the rack with the fewest replicas of the partition. Within the
rack, it is placed on the host with the fewest replicas of the partition. Within the host, it is
placed on the broker that got the fewest replicas in this placement.

Brokers that are fenced or shutting down are used only if the other brokers do not suffice, and
never for the first replica. Brokers whose log directories are all cordoned are not used. Invariant
DistinctFailureDomains: two replicas share a rack or host only if there are more replicas than racks
or hosts.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from ottla.metadata.image import BrokerRegistration
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId

T = TypeVar("T")


class Placement:
    """Placement of new replicas on a fixed set of brokers."""

    def __init__(self, brokers: Iterable[BrokerRegistration]) -> None:
        registered = list(brokers)
        self._usable = _uncordoned(registered)
        self._cordoned_count = len(registered) - len(self._usable)
        self._ring = _interleaved([broker for broker in self._usable if broker.is_active])
        self._spare = _interleaved([broker for broker in self._usable if not broker.is_active])

    def place(
        self, *, partition_count: int, replication_factor: int, turn: int
    ) -> list[tuple[NodeId, ...]]:
        """Return the brokers of each new partition's replicas, preferred leader first.

        `turn` is the position of the first partition's leader in the order of brokers. The caller
        increases it from one placement to the next. Raises RefusedError(INVALID_REPLICATION_FACTOR)
        if there are too few brokers.
        """
        assert partition_count >= 0
        assert turn >= 0
        _check(self._usable, replication_factor, cordoned_count=self._cordoned_count)
        load = dict.fromkeys((broker.id for broker in self._usable), 0)
        placed = []
        for index in range(partition_count):
            replicas = _replicas(self._ring, self._spare, turn + index, replication_factor, load)
            for replica in replicas:
                load[replica] += 1
            placed.append(replicas)
        return placed


def turn_after(
    brokers: Iterable[BrokerRegistration], leader: NodeId, partition_count: int
) -> int | None:
    """Return the position after the leader of a topic's last partition, in the order of brokers.
    Placement of further partitions continues there. Returns None if that leader is not active.

    `partition_count` is the number of the topic's partitions.
    """
    active = [broker for broker in _uncordoned(brokers) if broker.is_active]
    ring = [broker.id for broker in _interleaved(active)]
    if leader not in ring:
        return None
    return ring.index(leader) + 1 + partition_count // len(ring) * len(ring)


def _check(
    usable: Sequence[BrokerRegistration], replication_factor: int, *, cordoned_count: int
) -> None:
    problem = None
    active_count = sum(broker.is_active for broker in usable)
    alive = f", {active_count} of them alive" if active_count < len(usable) else ""
    if cordoned_count:
        alive += f"; {cordoned_count} more have all their log directories cordoned"
    if replication_factor < 1:
        problem = f"Invalid replication factor {replication_factor}: it must be positive."
    elif not active_count:
        cordoned = ", or have all their log directories cordoned" if cordoned_count else ""
        problem = f"All brokers are currently fenced{cordoned}."
    elif replication_factor > len(usable):
        problem = (
            f"The target replication factor of {replication_factor} cannot be reached because "
            f"only {len(usable)} broker(s) are registered{alive}."
        )
    if problem is not None:
        raise RefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): {problem}",
        )


def _uncordoned(brokers: Iterable[BrokerRegistration]) -> list[BrokerRegistration]:
    return [broker for broker in brokers if not broker.is_cordoned]


def _replicas(
    ring: Sequence[BrokerRegistration],
    spare: Sequence[BrokerRegistration],
    turn: int,
    replication_factor: int,
    load: Mapping[NodeId, int],
) -> tuple[NodeId, ...]:
    leader = ring[turn % len(ring)]
    chosen = [leader.id]
    racks: dict[str | None, int] = {leader.rack: 1}
    hosts: dict[tuple[str | None, str | None], int] = {(leader.rack, leader.host): 1}

    def order(broker: BrokerRegistration) -> tuple[int, int, int]:
        host = (broker.rack, broker.host)
        return racks.get(broker.rack, 0), hosts.get(host, 0), load[broker.id]

    # In each round over the brokers, the followers start one broker further, so that a leader's
    # partitions have different followers.
    shift = turn // len(ring)
    for pool in (ring, spare):
        if len(chosen) == replication_factor:
            break
        walk = _rotated(pool, turn + 1 + shift)
        while len(chosen) < replication_factor:
            candidates = [broker for broker in walk if broker.id not in chosen]
            if not candidates:
                break
            best = candidates[0] if len(candidates) == 1 else min(candidates, key=order)
            chosen.append(best.id)
            racks[best.rack] = racks.get(best.rack, 0) + 1
            host = (best.rack, best.host)
            hosts[host] = hosts.get(host, 0) + 1
    return tuple(chosen)


def _interleaved(brokers: Sequence[BrokerRegistration]) -> list[BrokerRegistration]:
    """Return the brokers in an order in which neighbours have different racks if possible,
    otherwise different hosts."""
    racks: dict[str, dict[str, list[BrokerRegistration]]] = {}
    for broker in sorted(brokers, key=lambda broker: broker.id):
        racks.setdefault(broker.rack or "", {}).setdefault(broker.host or "", []).append(broker)
    return _round_robin([_round_robin(list(hosts.values())) for hosts in racks.values()])


def _round_robin(groups: Sequence[Sequence[T]]) -> list[T]:
    longest = max(map(len, groups), default=0)
    return [group[index] for index in range(longest) for group in groups if index < len(group)]


def _rotated(items: Sequence[T], by: int) -> list[T]:
    by = by % len(items) if items else 0
    return [*items[by:], *items[:by]]
