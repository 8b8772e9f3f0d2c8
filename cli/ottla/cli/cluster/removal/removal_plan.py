"""Reasons that prevent or delay the removal of a broker.  Pure."""

from collections.abc import Collection, Mapping, Sequence

from ottla.cli.cluster.moves.reassignment_plan import ReplicaAssignment
from ottla.cli.cluster.moves.reassignment_requests import OngoingMove
from ottla.cli.common import counted
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicPartition

NAMED_MAX = 5
"""Maximum number of partitions that one message names."""


def leaving_moves(
    broker: int,
    places: Sequence[ReplicaAssignment],
    ongoing: Sequence[OngoingMove],
    alive: Collection[int],
    *,
    is_alive: bool,
    leaderless: Collection[TopicPartition] = (),
) -> set[TopicPartition]:
    """Return the partitions that a reassignment in progress moves away from the broker. The caller
    waits for these instead of starting another move.

    Raises RefusedError if a partition cannot keep its number of replicas. Raises it also if the
    broker is down and has the only copy of a partition, or a copy of a partition without a leader
    to copy from.
    """
    targets = {one.at: one.target for one in ongoing}
    wanted = [
        ReplicaAssignment(
            one.topic,
            one.partition,
            targets.get(TopicPartition(one.topic, one.partition), one.replicas),
        )
        for one in places
    ]
    held = [one for one in wanted if broker in one.replicas]
    others = {one for one in alive if one != broker}
    for one in held:
        if len(one.replicas) > len(others):
            raise RefusedError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"broker {broker} cannot be removed: partition {one.name} has "
                f"{counted(len(one.replicas), 'replica')}, and only {len(others)} other "
                "brokers are alive; start or add a broker first",
            )
        if not is_alive and one.replicas == (broker,):
            raise RefusedError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"broker {broker} cannot be removed: it has the only copy of partition "
                f"{one.name} and is down; start it again, then remove it",
            )
    for place in places:
        at = TopicPartition(place.topic, place.partition)
        if not is_alive and broker in place.replicas and at in leaderless:
            raise RefusedError(
                ErrorCode.LEADER_NOT_AVAILABLE,
                f"broker {broker} cannot be removed: it is down, and partition {place.name} (on "
                f"{', '.join(map(str, place.replicas))}) has no leader to copy from; start it "
                "again, then remove it",
            )
    return {one.at for one in ongoing if broker in one.replicas and broker not in one.target}


def catch_up_text(
    moving: Sequence[OngoingMove], in_sync: Mapping[TopicPartition, tuple[int, ...] | None]
) -> str:
    """Return an error message with the partitions that have not moved in time, and the brokers that
    have not caught up.

    `in_sync` has the in-sync replicas of each partition, or None if it has no leader.
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
