"""What an assignor is told of a group's members, and what it answers.  Pure."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import NamedTuple, TypeAlias
from uuid import UUID

from ottla.broker.network.steps import StepPace, Steps

Assignment: TypeAlias = Mapping[UUID, frozenset[int]]
"""Partitions by the id of their topic; no topic stands in it with none."""


class AssignedSubscription(NamedTuple):
    """What one member wants, and what it is to have now."""

    instance_id: str | None
    rack: str | None
    topic_ids: frozenset[UUID]
    assigned: Assignment
    """Its target up to now: it need not be subscribed to all of that any more."""


PartitionCounts: TypeAlias = Mapping[UUID, int]
"""Of each topic that there is; others are passed over, whoever is subscribed to them."""

Assignor: TypeAlias = Callable[
    [Mapping[str, AssignedSubscription], PartitionCounts], Steps[dict[str, Assignment]]
]
"""Answers for every member, and gives each partition that somebody wants to exactly one of those.

The same members and counts give the same answer, in whatever order they come.
"""

number_of = attrgetter("int")
"""The key to sort ids by: the order of the ids themselves, which compare in Python code."""


def topics_by_subscribers(
    order: Sequence[str], members: Mapping[str, AssignedSubscription]
) -> Steps[dict[tuple[str, ...], list[UUID]]]:
    """Return the topics that the same members subscribe, by these members in their order.

    Members mostly have one subscription in common, so it looks at each subscription once.
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
        # The first place of each subscription stands for the members who have it.
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
