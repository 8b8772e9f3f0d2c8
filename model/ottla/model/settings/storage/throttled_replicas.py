"""Replicas of a topic whose replication traffic is throttled, as listed in the topic's settings."""

import re

from ottla.model.values import frozen

_REPLICA = re.compile(r"(\d+):(\d+)", re.ASCII)

ALL = "*"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
LISTS = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
"""Keys of the topic settings that list throttled replicas."""


@frozen
class ThrottledReplicas:
    """Throttled replicas of one topic: none, all, or some by partition and broker."""

    named: frozenset[tuple[int, int]] = frozenset()
    """Pairs of partition number and broker id, one for each throttled replica."""
    is_all: bool = False

    def __bool__(self) -> bool:
        return self.is_all or bool(self.named)

    def __str__(self) -> str:
        if self.is_all:
            return ALL
        return ",".join(f"{partition}:{broker}" for partition, broker in sorted(self.named))

    def has(self, partition: int, broker: int) -> bool:
        """Return whether the replica of a partition on a broker is throttled."""
        return self.is_all or (partition, broker) in self.named


def throttled_replicas(text: str) -> ThrottledReplicas:
    """* or a list of PARTITION:BROKER.

    Returns the throttled replicas. Raises ValueError if the text is malformed. Error messages quote
    the first line as the description of valid texts.
    """
    parts = [part for part in (part.strip() for part in text.split(",")) if part]
    if parts == [ALL]:
        return ThrottledReplicas(is_all=True)
    found = [_REPLICA.fullmatch(part) for part in parts]
    if None in found:
        raise ValueError(text)
    return ThrottledReplicas(
        frozenset((int(match[1]), int(match[2])) for match in found if match is not None)
    )
