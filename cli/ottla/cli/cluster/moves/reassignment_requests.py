"""Sends the requests to brokers that start, cancel and measure reassignments of partitions."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import trio

from ottla.cli.cluster.moves.reassignment_plan import Move
from ottla.cli.outcomes import meaning_of
from ottla.client.admin import Admin
from ottla.client.network.cluster import raise_for
from ottla.insight.facts.replica_assignments import (
    OngoingMove,
    ReplicaAssignment,
    assignments_in,
)
from ottla.model.errors import OttlaError, RefusedError
from ottla.model.ids import NodeId, TopicPartition

SIZES_TIMEOUT_S = 3.0
"""Maximum seconds that the command waits for the log sizes of one broker. The sizes of a slower
broker are omitted."""


async def places_of(admin: Admin, names: Sequence[str] | None) -> list[ReplicaAssignment]:
    """Return the replica assignments of the partitions of the named topics, or of all topics if
    `names` is None."""
    wanted = None if names is None else list(dict.fromkeys(names))
    metadata = await admin.cluster.metadata(wanted)
    for topic in metadata.topics:
        raise_for(topic.error_code, f"topic {topic.name!r}: {meaning_of(topic.error_code)}")
    return assignments_in(metadata)


async def start(admin: Admin, moves: Iterable[Move]) -> dict[TopicPartition, RefusedError]:
    """Request partition reassignments from the cluster. Returns the refusals by partition."""
    return await _alter(admin, {move.at: move.after.replicas for move in moves})


async def cancel(admin: Admin, moving: Iterable[OngoingMove]) -> dict[TopicPartition, RefusedError]:
    """Cancel partition reassignments, so that each partition returns to its previous replicas.
    Returns the refusals by partition."""
    return await _alter(admin, dict.fromkeys(one.at for one in moving))


async def _alter(
    admin: Admin, wanted: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, RefusedError]:
    return {
        at: RefusedError(refusal.code, f"{at}: {refusal.message.rstrip('.')}")
        for at, refusal in (await admin.try_alter_reassignments(wanted)).items()
        if refusal is not None
    }


async def sizes_of(
    admin: Admin, partitions: Collection[TopicPartition], brokers: Collection[int]
) -> dict[TopicPartition, dict[int, int]]:
    """Return the size in bytes of each partition's replicas, by broker. Brokers that do not respond
    are omitted."""
    sizes: dict[TopicPartition, dict[int, int]] = {at: {} for at in partitions}

    async def ask(broker: int) -> None:
        with trio.move_on_after(SIZES_TIMEOUT_S):
            try:
                directories = await admin.describe_log_dirs(NodeId(broker), partitions)
            except OttlaError:
                return
            for directory in directories:
                for at, replica in directory.replicas.items():
                    sizes[at][broker] = replica.size_bytes

    async with trio.open_nursery() as nursery:
        for broker in brokers:
            nursery.start_soon(ask, broker)
    return sizes


async def copied_parts_of(
    admin: Admin, moving: Sequence[OngoingMove]
) -> dict[TopicPartition, float]:
    """Return the copied fraction of each reassignment in progress, from 0 to 1. The fraction is
    computed from the sizes of the replicas on disk."""
    brokers = {broker for one in moving for broker in one.replicas}
    sizes = await sizes_of(admin, [one.at for one in moving], brokers)
    return {one.at: copied_part(sizes[one.at], one.adding) for one in moving}


def copied_part(sizes: Mapping[int, int], adding: Sequence[int]) -> float:
    """Return the copied fraction of a reassignment, from 0 to 1. `sizes` has the partition's size
    in bytes on each broker, and `adding` the brokers that copy the partition."""
    whole = max((size for broker, size in sizes.items() if broker not in adding), default=0)
    if not adding or not whole:
        return 1.0
    return sum(min(sizes.get(one, 0), whole) for one in adding) / (whole * len(adding))
