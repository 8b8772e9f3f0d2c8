"""Types of the input and output of an assignor: subscriptions and target assignments. Pure."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import NamedTuple, TypeAlias
from uuid import UUID

from ottla.node.network.steps import StepPace, Steps

Assignment: TypeAlias = Mapping[UUID, frozenset[int]]
"""Assigned partitions by topic id. A topic without partitions has no entry."""


class AssignedSubscription(NamedTuple):
    """Subscription of one group member, and its current target assignment."""

    instance_id: str | None
    rack: str | None
    topic_ids: frozenset[UUID]
    assigned: Assignment
    """Current target assignment of the member, which may include topics that it has
    unsubscribed."""


PartitionCounts: TypeAlias = Mapping[UUID, int]
"""Number of partitions of each topic, by topic id. Topics without an entry are not assigned."""

Racks: TypeAlias = frozenset[str]

PartitionRacks: TypeAlias = Mapping[UUID, Sequence[Racks]]
"""Racks of each partition's replicas, for each topic id. The mapping is empty if no member has a
rack."""

NO_RACKS: PartitionRacks = {}

Assignor: TypeAlias = Callable[
    [Mapping[str, AssignedSubscription], PartitionCounts, PartitionRacks],
    Steps[dict[str, Assignment]],
]
"""Function that assigns each subscribed partition to exactly one of its subscribers.

The assignment depends only on the members, counts and racks, not on their order.
"""

number_of = attrgetter("int")
"""Sort key that orders topic ids by their integer value. Comparing ids directly would run slow
Python code."""


def topics_by_subscribers(
    order: Sequence[str], members: Mapping[str, AssignedSubscription]
) -> Steps[dict[tuple[str, ...], list[UUID]]]:
    """Return the topics grouped by their subscribers. Each key is a tuple of member ids, ordered as
    in `order`.

    Most members share one subscription, so each distinct subscription is processed once.
    """
    pace = StepPace()
    places: dict[frozenset[UUID], list[int]] = {}
    for place, member_id in enumerate(order):
        places.setdefault(members[member_id].topic_ids, []).append(place)
    takers: dict[UUID, list[list[int]]] = {}
    for topic_ids, found in places.items():
        for topic_id in topic_ids:
            takers.setdefault(topic_id, []).append(found)
            if pace.is_due():
                yield
    topics: dict[tuple[int, ...], list[UUID]] = {}
    for topic_id in sorted(takers, key=number_of):
        # The first index of each subscription represents all members with that subscription.
        topics.setdefault(tuple(found[0] for found in takers[topic_id]), []).append(topic_id)
        if pace.is_due(1 + len(takers[topic_id])):
            yield
    by_subscribers = {}
    for alike in topics.values():
        subscribers = tuple(order[place] for place in sorted(chain(*takers[alike[0]])))
        by_subscribers[subscribers] = alike
        if pace.is_due(len(subscribers)):
            yield
    return by_subscribers
