"""Explains, as text, the reasons that delay the removal of a broker. Pure."""

from collections.abc import Mapping, Sequence

from ottla.insight.facts.replica_assignments import OngoingMove
from ottla.model.amounts import counted
from ottla.model.ids import TopicPartition

NAMED_MAX = 5
"""Maximum number of partitions that a message about a broker's removal lists."""


def catch_up_text(
    moving: Sequence[OngoingMove], in_sync: Mapping[TopicPartition, tuple[int, ...] | None]
) -> str:
    """Return an error message about the partitions that were not moved away from a broker in time.
    It names the brokers that have not caught up.

    `in_sync` has the in-sync replicas of each partition, or None if the partition has no leader.
    """
    waiting = []
    for one in moving[:NAMED_MAX]:
        found = in_sync.get(one.at)
        if found is None:
            waiting.append(f"{one.name} waits for a leader (replicas: {_ids(one.replicas)})")
        else:
            late = [broker for broker in one.target if broker not in found]
            waiting.append(f"{one.name} waits for {_ids(late) or 'the controller'}")
    more = f", and {len(moving) - NAMED_MAX} more" if len(moving) > NAMED_MAX else ""
    return f"{counted(len(moving), 'partition')} did not move in time: {', '.join(waiting)}{more}"


def _ids(brokers: Sequence[int]) -> str:
    return ", ".join(f"broker {one}" for one in brokers)
