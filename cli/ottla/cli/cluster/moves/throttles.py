"""Computes the throttle of a reassignment, and the throttles in a cluster that no reassignment
needs. Pure.

A move that adds replicas is throttled as by kafka-reassign-partitions. Every present replica is
added to the list of throttled leaders, because each may become the leader. The new replicas are
added to the list of throttled followers. The rates are set on all brokers of these replicas.

Rates are set before lists, and lists are removed before rates. If a command is killed, remaining
lists are therefore accompanied by rates, which `ottla status` detects.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.cli.common import number_of
from ottla.model.errors import ConfigError
from ottla.model.ids import NodeId, TopicPartition
from ottla.model.settings.storage.throttled_replicas import (
    FOLLOWER_REPLICAS,
    LEADER_REPLICAS,
    LISTS,
    ThrottledReplicas,
)

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"

RATES = (LEADER_RATE, FOLLOWER_RATE)


class MovingReplicas(NamedTuple):
    """A partition that is reassigned: its present replicas, and the replicas that are being
    added."""

    at: TopicPartition
    holding: tuple[int, ...]
    adding: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReassignmentThrottle:
    """The throttle for several reassignments: brokers whose rates are set, and lists of throttled
    replicas."""

    brokers: tuple[NodeId, ...]
    """Brokers on which the replication throttle rates are set."""
    lists: Mapping[str, Mapping[str, ThrottledReplicas]]
    """The throttled replicas, by topic and key of the topic setting that lists them."""


@dataclass(frozen=True, slots=True)
class ThrottledReplicaLists:
    """The lists of throttled replicas that are currently set for one topic."""

    topic: str
    lists: Mapping[str, ThrottledReplicas]


@dataclass(slots=True)
class UnneededThrottles:
    """Throttled replicas in a cluster that no replica move needs."""

    removals: dict[str, dict[str, ThrottledReplicas]] = field(default_factory=dict)
    """Entries to remove from lists of throttled replicas, by topic and setting key."""
    emptied: set[tuple[str, str]] = field(default_factory=set)
    """Lists of throttled replicas that are empty after the removal of unneeded entries, as pairs of
    topic and setting key."""
    every: list[str] = field(default_factory=list)
    """Topics whose throttle setting is `*`, which throttles all of their replicas. No command of
    `ottla` sets this value."""


def rate_of(option: str, text: str) -> int:
    """Parse a rate such as 20M or 20Mi, and return it in bytes per second. `option` is the name of
    the option in errors.

    Raises ConfigError if the text is not a rate of at least 1.
    """
    value = number_of(text)
    if value is None or not 1 <= value < 1 << 63:
        raise ConfigError(option, f"is {text!r}; give bytes a second, such as 20M or 20Mi")
    return int(value)


def throttle_of(moves: Iterable[MovingReplicas]) -> ReassignmentThrottle:
    """Return the throttle for moves of partitions. Moves that add no replica are not throttled."""
    named: dict[str, dict[str, set[tuple[int, int]]]] = defaultdict(
        lambda: {key: set() for key in LISTS}
    )
    brokers: set[int] = set()
    for at, holding, adding in moves:
        if not adding:
            continue
        brokers.update(holding, adding)
        sides = named[at.topic]
        sides[LEADER_REPLICAS].update((at.partition, broker) for broker in holding)
        sides[FOLLOWER_REPLICAS].update((at.partition, broker) for broker in adding)
    return ReassignmentThrottle(
        tuple(NodeId(broker) for broker in sorted(brokers)),
        {
            topic: {key: ThrottledReplicas(frozenset(found)) for key, found in sides.items()}
            for topic, sides in sorted(named.items())
        },
    )


def left_over(
    found: Iterable[ThrottledReplicaLists], moving: Collection[TopicPartition]
) -> UnneededThrottles:
    """Return the entries in the lists of throttled replicas whose partitions are not in
    `moving`."""
    left = UnneededThrottles()
    for topic, lists in ((one.topic, one.lists) for one in found):
        for key, replicas in lists.items():
            if replicas.is_all:
                left.every += [topic] if topic not in left.every else []
                continue
            gone = frozenset(
                one for one in replicas.named if TopicPartition(topic, one[0]) not in moving
            )
            if gone:
                left.removals.setdefault(topic, {})[key] = ThrottledReplicas(gone)
                if gone == replicas.named:
                    left.emptied.add((topic, key))
    return left
