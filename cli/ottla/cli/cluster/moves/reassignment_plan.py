"""Plans for reassignments of partitions. A plan spreads partitions over brokers, empties one
broker, or is read from the text of a file. Pure.

A plan moves few replicas. A replica is moved only if its broker is to be emptied or
has more than an equal share. Invariants: OneReplicaABroker, SharesWithinOne (the replica counts of
two brokers differ by at most one, as far as racks and hosts allow).
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ottla.insight.facts.replica_assignments import ReplicaAssignment
from ottla.model.errors import ConfigError
from ottla.model.ids import TopicPartition

VERSION = 1
"""Version of the JSON file that kafka-reassign-partitions reads and writes."""


@dataclass(frozen=True, slots=True)
class Move:
    """Reassignment of one partition: its replicas before and after it."""

    before: ReplicaAssignment
    after: ReplicaAssignment

    @property
    def at(self) -> TopicPartition:
        """Topic and partition that is reassigned."""
        return TopicPartition(self.before.topic, self.before.partition)

    @property
    def adding(self) -> tuple[int, ...]:
        """Ids of the brokers that must copy the partition in this reassignment."""
        return tuple(one for one in self.after.replicas if one not in self.before.replicas)

    @property
    def removing(self) -> tuple[int, ...]:
        """Ids of the brokers whose replica of the partition this reassignment removes."""
        return tuple(one for one in self.before.replicas if one not in self.after.replicas)


class Domain(NamedTuple):
    """Failure domain of a broker: its rack, and its host within the rack. Either is None if it is
    unknown."""

    rack: str | None
    host: str | None = None


Domains = Mapping[int, Domain]
"""Failure domains of brokers, by broker id."""


def spread(
    places: Iterable[ReplicaAssignment], domains: Domains, copies: int | None = None
) -> list[ReplicaAssignment]:
    """Return replica assignments that spread the partitions evenly over the brokers in `domains`.

    Each partition gets `copies` replicas. If `copies` is None, it keeps its present number of
    replicas.
    """
    ordered = sorted(places)
    wanted = {one: copies or len(one.replicas) for one in ordered}
    _check(domains, max(wanted.values(), default=1))
    kept = {
        one: [broker for broker in one.replicas if broker in domains][: wanted[one]]
        for one in ordered
    }
    load = Counter(dict.fromkeys(domains, 0))
    load.update(broker for replicas in kept.values() for broker in replicas)
    for place, replicas in kept.items():
        while len(replicas) < wanted[place]:
            newcomer = _best(domains, replicas, load)
            replicas.append(newcomer)
            load[newcomer] += 1
    _level(list(kept.values()), domains, load)
    return _with_leaders(kept, -(-len(ordered) // len(domains)))


def without(
    places: Iterable[ReplicaAssignment], broker: int, domains: Domains
) -> list[ReplicaAssignment]:
    """Return replica assignments without `broker`. Each replica of this broker is moved to one of
    the brokers in `domains`."""
    ordered = sorted(places)
    others = {one: domain for one, domain in domains.items() if one != broker}
    _check(others, max((len(one.replicas) for one in ordered if broker in one.replicas), default=1))
    load = Counter(one for place in ordered for one in place.replicas)
    moved = []
    for place in ordered:
        replicas = list(place.replicas)
        if broker in replicas:
            stays = [one for one in replicas if one != broker]
            newcomer = _best(others, stays, load)
            load[newcomer] += 1
            replicas[replicas.index(broker)] = newcomer
        moved.append(ReplicaAssignment(place.topic, place.partition, tuple(replicas)))
    return moved


def moves_of(before: Iterable[ReplicaAssignment], after: Iterable[ReplicaAssignment]) -> list[Move]:
    """Return a move for each partition whose replicas differ between the two assignments, in order
    of partitions."""
    known = {(one.topic, one.partition): one for one in before}
    moves = [
        Move(known[one.topic, one.partition], one)
        for one in sorted(after)
        if (one.topic, one.partition) in known
    ]
    return [move for move in moves if move.before != move.after]


def read_plan(text: str, name: str) -> list[ReplicaAssignment]:
    """Parse a JSON file in the format of kafka-reassign-partitions, and return its replica
    assignments. `name` is the file's name in errors. Raises ConfigError with the reason if the file
    is invalid."""
    try:
        found = json.loads(text)
        return [
            ReplicaAssignment(
                str(row["topic"]), int(row["partition"]), tuple(map(int, row["replicas"]))
            )
            for row in found["partitions"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            "--plan",
            f"{name} is no plan ({error!r}); it must be JSON such as "
            '{"version": 1, "partitions": [{"topic": "a", "partition": 0, "replicas": [1, 2]}]}',
        ) from None


def as_plan(places: Iterable[ReplicaAssignment]) -> dict[str, Any]:
    """Return replica assignments in the JSON form of kafka-reassign-partitions."""
    return {
        "version": VERSION,
        "partitions": [
            {"topic": one.topic, "partition": one.partition, "replicas": list(one.replicas)}
            for one in places
        ],
    }


def _check(brokers: Collection[int], copies: int) -> None:
    if len(brokers) < copies:
        names = ", ".join(map(str, sorted(brokers))) or "none"
        raise ConfigError(
            "--brokers",
            f"leaves {len(brokers)} ({names}) for {copies} replicas of a partition; name more",
        )


def _best(domains: Domains, taken: Sequence[int], load: Counter[int]) -> int:
    """Return the id of the best broker for one more replica of a partition.

    A broker in a rack without a replica of the partition is preferred, then a broker on a host
    without one, then the broker with the fewest replicas.
    """
    racks = Counter(domains[one].rack for one in taken if one in domains)
    hosts = Counter(domains[one] for one in taken if one in domains)

    def order(one: int) -> tuple[int, int, int, int]:
        domain = domains[one]
        return (
            racks[domain.rack] if domain.rack else 0,
            hosts[domain] if domain.host else 0,
            load[one],
            one,
        )

    return min((one for one in domains if one not in taken), key=order)


def _level(partitions: Sequence[list[int]], domains: Domains, load: Counter[int]) -> None:
    """Balance a plan by moving single replicas from the most to the least loaded broker, as long as
    that reduces the difference in replica counts."""
    is_stuck = False
    while not is_stuck:
        is_stuck = True
        for giver in sorted(domains, key=lambda one: (-load[one], one)):
            taker = min(domains, key=lambda one: (load[one], one))
            if load[giver] - load[taker] < 2:
                break
            found = _giving(partitions, domains, giver, taker)
            if found is not None:
                found[found.index(giver)] = taker
                load[giver] -= 1
                load[taker] += 1
                is_stuck = False
                break


def _giving(
    partitions: Sequence[list[int]], domains: Domains, giver: int, taker: int
) -> list[int] | None:
    """Return the replica list of a partition that can move a replica from broker `giver` to broker
    `taker`. Partitions whose preferred leader is another broker are chosen first. Returns None if
    no partition qualifies."""
    found = None
    for replicas in partitions:
        if giver not in replicas or taker in replicas:
            continue
        others = [domains[one] for one in replicas if one != giver and one in domains]
        if _collisions(others, domains[taker]) > _collisions(others, domains[giver]):
            continue  # the move would place two replicas on one rack or host
        if replicas[0] != giver:
            return replicas
        found = found or replicas
    return found


def _collisions(others: Sequence[Domain], one: Domain) -> tuple[bool, bool]:
    """Compare the failure domain of a new replica with the domains of the partition's other
    replicas. Returns whether another replica is in the same rack, and whether one is on the same
    host."""
    return (
        bool(one.rack) and any(other.rack == one.rack for other in others),
        bool(one.host) and one in others,
    )


def _with_leaders(
    kept: Mapping[ReplicaAssignment, Sequence[int]], share: int
) -> list[ReplicaAssignment]:
    leads: Counter[int] = Counter()
    placed = []
    for place, replicas in kept.items():
        first = replicas[0]
        if first != place.replicas[0] or leads[first] >= share:
            first = min(replicas, key=lambda one: (leads[one], replicas.index(one)))
        leads[first] += 1
        others = [one for one in replicas if one != first]
        placed.append(ReplicaAssignment(place.topic, place.partition, (first, *others)))
    return placed
