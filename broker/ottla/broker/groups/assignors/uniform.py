"""The assignor that is as even as subscriptions allow, and moves as little as that takes.  Pure.

Topics with the same subscribers are one pool: what matters of a partition is only which pool it is
from.  Everybody keeps what it has; what nobody has goes to whoever has least; then members who have
two more than another give up a partition.  Where they have no topic in common with that other, it
goes over members between: one takes from them and gives of something else.  Where no such way is
left, no assignment of these subscriptions is more even (Harvey et al., "Semi-matchings for
bipartite graphs and load balancing", 2006).

Where all subscriptions are equal there is one pool, members are even to within one partition, and
no partition moves that could have stayed.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple, TypeAlias
from uuid import UUID

from ottla.broker.groups.assignors.subscription import (
    AssignedSubscription,
    Assignment,
    PartitionCounts,
    topics_by_subscribers,
)
from ottla.broker.network.steps import StepPace, Steps, run_through

Partition: TypeAlias = tuple[UUID, int]

SEARCH_STEPS_MAX = 200_000
"""How much is looked at for ways over other members: some 50 ms.

More finds ways in larger groups of unlike subscriptions, and takes longer; with less these stay
less even than they could be.
"""


class _Pool(NamedTuple):
    """Topics with the same subscribers, and who has which of their partitions."""

    topic_ids: tuple[UUID, ...]
    subscribers: tuple[str, ...]
    unowned: dict[Partition, None]
    """In the order of topics and partitions."""
    owned: dict[str, list[Partition]]
    """What a member has kept comes first, so that it gives up last what it has had longest."""

    def move(self, giver: str, taker: str) -> None:
        self.owned[taker].append(self.owned[giver].pop())


def assign(
    members: Mapping[str, AssignedSubscription], partition_counts: PartitionCounts
) -> dict[str, Assignment]:
    """Do at once what `assign_in_steps` does."""
    return run_through(assign_in_steps(members, partition_counts))


def assign_in_steps(
    members: Mapping[str, AssignedSubscription], partition_counts: PartitionCounts
) -> Steps[dict[str, Assignment]]:
    """Share all partitions out so that the loads of members differ as little as can be."""
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
    return (yield from _assignments(members, pools))


def _pools_of(
    members: Mapping[str, AssignedSubscription], partition_counts: PartitionCounts
) -> Steps[list[_Pool]]:
    """Return the pools, those with the fewest subscribers first: they have the least choice."""
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
    # A topic is in one pool alone: the first of each says which comes first.
    return sorted(pools, key=lambda pool: (len(pool.subscribers), pool.topic_ids[0].int))


def _keep(
    members: Mapping[str, AssignedSubscription], pools: Iterable[_Pool], loads: dict[str, int]
) -> Steps[None]:
    """Leave everybody what it has."""
    pace = StepPace()
    pool_of = {topic_id: pool for pool in pools for topic_id in pool.topic_ids}
    for member_id in loads:
        assigned = members[member_id].assigned
        # Given up from the end: first of the topics of which it has most.
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
    """Give each partition that nobody has to whoever has least then."""
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
    """Move partitions of a pool from those who have most to those who have least."""
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
            # Neither is the most or the least loaded twice: both stay on their side of the middle.
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
    """Move partitions between members who have no topic in common, over those between them.

    Whoever has most and finds no way is done with, and so is everybody it could reach: their loads
    are even to within one, and nobody who is left has enough more to give to them.
    """
    ways = _Ways(pools, loads)
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
    """One partition of a pool goes from one member to another."""

    giver: str
    pool: _Pool
    taker: str


class _Ways:
    """Looks for ways from one member to another; owns who is done and how much it looked at."""

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
        """Return the moves that take one partition from a member to one with two less.

        The last move is the first: so nobody has to give what it does not have yet.  With no such
        way there are none, and all that were looked at are done.
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
