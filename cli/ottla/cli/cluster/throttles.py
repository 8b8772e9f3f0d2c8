"""Which replicas a throttled move names, and which of the throttles that are set it needs.  Pure.

A move that adds replicas is throttled as kafka-reassign-partitions does it: on the leader's side at
every replica that is there, since each may lead, on the follower's side at those that are added;
the rates are set at all of these brokers.  Rates come before lists and lists go before rates, so
that a command which is killed leaves rates behind whatever else it leaves: they are what `ottla
status` looks for.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.cli.common import number_of
from ottla.model.errors import ConfigError
from ottla.model.ids import NodeId, TopicPartition
from ottla.model.settings.throttled_replicas import ThrottledReplicas

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"

RATES = (LEADER_RATE, FOLLOWER_RATE)
LISTS = (LEADER_REPLICAS, FOLLOWER_REPLICAS)


class MovingReplicas(NamedTuple):
    """A partition that moves: who holds it, and who is to copy it."""

    at: TopicPartition
    holding: tuple[int, ...]
    adding: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReassignmentThrottle:
    """What is set for some moves."""

    brokers: tuple[NodeId, ...]
    """Where the rates are set."""
    lists: Mapping[str, Mapping[str, ThrottledReplicas]]
    """The replicas by topic, and there by the setting that names them."""


@dataclass(frozen=True, slots=True)
class SetLists:
    """The lists of one topic, as they are set."""

    topic: str
    lists: Mapping[str, ThrottledReplicas]


@dataclass(slots=True)
class LeftOver:
    """What no move needs."""

    removals: dict[str, dict[str, ThrottledReplicas]] = field(default_factory=dict)
    """What is to go, by topic and setting."""
    emptied: set[tuple[str, str]] = field(default_factory=set)
    """(topic, setting) of lists of which nothing stays."""
    every: list[str] = field(default_factory=list)
    """Topics that throttle all their replicas, which no command of ours sets."""


def rate_of(option: str, text: str) -> int:
    """Read a rate such as 20M (millions of bytes a second) or 20Mi.

    Raises ConfigError for anything that is no rate above 0.
    """
    value = number_of(text)
    if value is None or not 1 <= value < 1 << 63:
        raise ConfigError(option, f"is {text!r}; give bytes a second, such as 20M or 20Mi")
    return int(value)


def throttle_of(moves: Iterable[MovingReplicas]) -> ReassignmentThrottle:
    """Return what throttles these moves; those that copy nothing need nothing."""
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


def left_over(found: Iterable[SetLists], moving: Collection[TopicPartition]) -> LeftOver:
    """Return what of the lists names partitions that do not move."""
    left = LeftOver()
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
