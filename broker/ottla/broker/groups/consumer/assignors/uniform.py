"""Uniform assignor: assigns partitions as evenly as subscriptions allow, with the fewest moves.
Pure.

Topics with the same subscribers form one pool, whose partitions are interchangeable.

1. Each member keeps its partitions.
2. Each unowned partition is assigned to the member with the fewest partitions.
3. A partition moves from one member to another if the second has at least two partitions fewer. If
   they share no topic, partitions move along a chain of members: each member in between receives a
   partition of one pool and passes on a partition of another pool.
4. Members in different racks exchange partitions that are nearer to each other (near.py).

When no such move is left, no assignment for these subscriptions is better balanced (Harvey et al.,
"Semi-matchings for bipartite graphs and load balancing", 2006).

With equal subscriptions there is one pool, loads differ by at most one, and no partition moves
unnecessarily.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple, TypeAlias
from uuid import UUID

from ottla.broker.groups.consumer.assignors.near import exchange
from ottla.broker.groups.consumer.assignors.subscription import (
    NO_RACKS,
    AssignedSubscription,
    Assignment,
    PartitionCounts,
    PartitionRacks,
    topics_by_subscribers,
)
from ottla.node.network.steps import StepPace, Steps, run_through

Partition: TypeAlias = tuple[UUID, int]

SEARCH_STEPS_MAX = 200_000
"""Maximum number of steps in the uniform assignor's search for moves of partitions through other
members. A search of this length takes about 50 ms.

A larger value makes the search slower, and finds moves in larger groups with different
subscriptions. A smaller value leaves members less balanced than possible.
"""


class _Pool(NamedTuple):
    """Pool of partitions: the topics with the same subscribers, and the owner of each of their
    partitions."""

    topic_ids: tuple[UUID, ...]
    subscribers: tuple[str, ...]
    unowned: dict[Partition, None]
    """Partitions of the pool without an owner, in the order of topics and partitions."""
    owned: dict[str, list[Partition]]
    """Partitions of the pool by member, oldest assignment first. A member gives up partitions from
    the end of its list, so it keeps its oldest assignments."""

    def move(self, giver: str, taker: str) -> None:
        self.owned[taker].append(self.owned[giver].pop())


def assign(
    members: Mapping[str, AssignedSubscription],
    partition_counts: PartitionCounts,
    racks: PartitionRacks = NO_RACKS,
) -> dict[str, Assignment]:
    """Compute the whole uniform assignment of a group in one call. Returns the assignment of each
    member by member id."""
    return run_through(assign_in_steps(members, partition_counts, racks))


def assign_in_steps(
    members: Mapping[str, AssignedSubscription],
    partition_counts: PartitionCounts,
    racks: PartitionRacks = NO_RACKS,
) -> Steps[dict[str, Assignment]]:
    """Assign all partitions of a group, in steps, so that the members' numbers of partitions differ
    as little as possible. Returns the assignments by member id."""
    pools = yield from _pools_of(members, partition_counts)
    loads = dict.fromkeys(sorted(members), 0)
    yield from _keep(members, pools, loads)
    pace = StepPace()
    for pool in pools:
        yield from _fill(pool, loads, pace)
    for pool in pools:
        yield from _level(pool, loads, pace)
    if len(pools) > 1:
        yield from _level_over_others(pools, loads)
    if racks:
        for pool in pools:
            yield from _bring_nearer(pool, members, racks, pace)
    return (yield from _assignments(members, pools))


def _pools_of(
    members: Mapping[str, AssignedSubscription], partition_counts: PartitionCounts
) -> Steps[list[_Pool]]:
    """Return the pools of partitions: each has the topics with the same subscribers. The pools are
    ordered by their number of subscribers, because partitions of a pool with few subscribers can be
    assigned to the fewest members."""
    found = yield from topics_by_subscribers(sorted(members), members)
    pace = StepPace()
    pools = []
    for subscribers, topic_ids in found.items():
        unowned: dict[Partition, None] = {}
        for topic_id in topic_ids:
            for index in range(partition_counts.get(topic_id, 0)):
                unowned[topic_id, index] = None
                if pace.is_due():
                    yield
        owned: dict[str, list[Partition]] = {member_id: [] for member_id in subscribers}
        pools.append(_Pool(tuple(topic_ids), subscribers, unowned, owned))
        if pace.is_due(len(subscribers)):
            yield
    # Each topic is in exactly one pool, so that the first topic of a pool breaks ties.
    return sorted(pools, key=lambda pool: (len(pool.subscribers), pool.topic_ids[0].int))


def _keep(
    members: Mapping[str, AssignedSubscription], pools: Iterable[_Pool], loads: dict[str, int]
) -> Steps[None]:
    """Keep the current assignment of each group member, without the topics to which it no longer
    subscribes."""
    pace = StepPace()
    pool_of = {topic_id: pool for pool in pools for topic_id in pool.topic_ids}
    for member_id in loads:
        assigned = members[member_id].assigned
        # Partitions are released from the end: first those of the topics of which it has most.
        ranked = sorted(
            (rank, topic_id.int, index, topic_id)
            for topic_id, indexes in assigned.items()
            for rank, index in enumerate(sorted(indexes))
        )
        for _, _, index, topic_id in ranked:
            if pace.is_due():
                yield
            pool = pool_of.get(topic_id)
            if pool and member_id in pool.owned and (topic_id, index) in pool.unowned:
                del pool.unowned[topic_id, index]
                pool.owned[member_id].append((topic_id, index))
                loads[member_id] += 1


def _fill(pool: _Pool, loads: dict[str, int], pace: StepPace) -> Steps[None]:
    """Assign each unowned partition of a pool to the member with the fewest partitions."""
    heap = [(loads[member_id], member_id) for member_id in pool.subscribers]
    heapify(heap)
    for partition in pool.unowned:
        load, member_id = heappop(heap)
        pool.owned[member_id].append(partition)
        loads[member_id] = load + 1
        heappush(heap, (load + 1, member_id))
        if pace.is_due():
            yield
    pool.unowned.clear()


def _level(pool: _Pool, loads: dict[str, int], pace: StepPace) -> Steps[None]:
    """Move partitions within a pool (topics with the same subscribers) from the members with the
    most partitions to the members with the fewest."""
    takers = [(loads[member_id], member_id) for member_id in pool.subscribers]
    givers = [(-loads[member_id], member_id) for member_id in pool.subscribers]
    heapify(takers)
    heapify(givers)
    if pace.is_due(len(takers)):
        yield
    while givers:
        giver, taker = givers[0][1], takers[0][1]
        if not pool.owned[giver]:
            heappop(givers)
        elif loads[giver] - loads[taker] < 2:
            return
        else:
            _move(pool, giver, taker, loads)
            # Neither member can become the most or least loaded again: each stays on its side of
            # the mean.
            heappop(givers)
            heappop(takers)
            heappush(givers, (-loads[giver], giver))
            heappush(takers, (loads[taker], taker))
        if pace.is_due():
            yield


def _move(pool: _Pool, giver: str, taker: str, loads: dict[str, int]) -> None:
    pool.move(giver, taker)
    loads[giver] -= 1
    loads[taker] += 1


def _level_over_others(pools: list[_Pool], loads: dict[str, int]) -> Steps[None]:
    """Balance members without a common topic. Partitions move between these members through other
    members that share a topic with each.

    If no path of moves starts at the member with the most partitions, this member is finished. All
    members that the search reached are then finished too. Their numbers of partitions differ by at
    most one, and no other member has enough partitions to pass one on to them.
    """
    ways = _PathSearch(pools, loads)
    heap = [(-load, member_id) for member_id, load in loads.items()]
    heapify(heap)
    while heap and ways.step_count < SEARCH_STEPS_MAX:
        load, giver = heappop(heap)
        if giver in ways.done or -load != loads[giver]:
            continue
        way = yield from ways.shortest_from(giver)
        for step in way:
            _move(step.pool, step.giver, step.taker, loads)
        for step in way:
            heappush(heap, (-loads[step.taker], step.taker))
            heappush(heap, (-loads[step.giver], step.giver))


class _Step(NamedTuple):
    """Move of one partition of a pool from one member to another."""

    giver: str
    pool: _Pool
    taker: str


class _PathSearch:
    """Search for paths of partition moves between members. It stores the finished members, at which
    no path starts, and the cost of the search so far."""

    def __init__(self, pools: list[_Pool], loads: dict[str, int]) -> None:
        self.done: set[str] = set()
        self.step_count = 0
        self._pace = StepPace()
        self._loads = loads
        self._pools_of: dict[str, list[_Pool]] = {member_id: [] for member_id in loads}
        for pool in pools:
            for member_id in pool.subscribers:
                self._pools_of[member_id].append(pool)

    def shortest_from(self, giver: str) -> Steps[list[_Step]]:
        """Return moves that together transfer one partition from a member to a member with at least
        two partitions fewer.

        The last move of the path comes first, so that each member owns the partition that it passes
        on. If no path exists, the list is empty, and all members that were searched are finished.
        """
        came_by: dict[str, _Step | None] = {giver: None}
        seen: set[int] = set()
        waiting = deque([giver])
        while waiting:
            member_id = waiting.popleft()
            for pool in self._pools_of[member_id]:
                if id(pool) in seen or not pool.owned[member_id]:
                    continue
                seen.add(id(pool))
                self.step_count += len(pool.subscribers)
                if self._pace.is_due(1 + len(pool.subscribers)):
                    yield
                for other in pool.subscribers:
                    if other not in came_by and other not in self.done:
                        came_by[other] = _Step(member_id, pool, other)
                        waiting.append(other)
                taker = min(pool.subscribers, key=lambda other: (self._loads[other], other))
                if self._loads[taker] <= self._loads[giver] - 2:
                    return list(_back(came_by, taker))
        self.done.update(came_by)
        return []


def _back(came_by: Mapping[str, _Step | None], taker: str) -> Iterable[_Step]:
    step = came_by[taker]
    while step is not None:
        yield step
        step = came_by[step.giver]


def _bring_nearer(
    pool: _Pool,
    members: Mapping[str, AssignedSubscription],
    racks: PartitionRacks,
    pace: StepPace,
) -> Steps[None]:
    """Swap partitions of a pool between members in different racks, so that more partitions have a
    replica in the rack of the consuming member.

    Two partitions that this rebalance has moved are swapped even if only one of them benefits. Any
    other partition is swapped only if both partitions then have a replica in the rack of their new
    member.
    """
    owners: dict[Partition, str] = {}
    new = []
    for member_id, partitions in pool.owned.items():
        assigned = members[member_id].assigned
        for topic_id, index in partitions:
            owners[topic_id, index] = member_id
            if index not in assigned.get(topic_id, ()):
                new.append((topic_id, index))
            if pace.is_due():
                yield
        partitions.clear()
    near = {}
    for topic_id, index in owners:
        near[topic_id, index] = racks[topic_id][index]
        if pace.is_due():
            yield
    yield from exchange(owners, new, near, members, pace)
    for partition, member_id in owners.items():
        pool.owned[member_id].append(partition)
        if pace.is_due():
            yield


def _assignments(members: Iterable[str], pools: Iterable[_Pool]) -> Steps[dict[str, Assignment]]:
    pace = StepPace()
    found: dict[str, dict[UUID, set[int]]] = {member_id: {} for member_id in members}
    for pool in pools:
        for member_id, partitions in pool.owned.items():
            for topic_id, index in partitions:
                found[member_id].setdefault(topic_id, set()).add(index)
                if pace.is_due():
                    yield
    assignments: dict[str, Assignment] = {}
    for member_id, topics in found.items():
        assignments[member_id] = {
            topic_id: frozenset(indexes) for topic_id, indexes in topics.items()
        }
        if pace.is_due(1 + len(topics)):
            yield
    return assignments
