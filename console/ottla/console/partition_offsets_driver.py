"""Reads partition offsets by a separate request to each leader. If a leader does not respond, only
its own partitions lack offsets."""

from collections import defaultdict
from collections.abc import Mapping

import trio

from ottla.client.admin import Admin
from ottla.client.fetch.offset_lookup import find_offsets
from ottla.model.errors import ErrorCode, OttlaError, RefusedError
from ottla.model.ids import NodeId, TopicPartition

OFFSETS_S = 3.0
"""Maximum seconds for one leader's response with the offsets of its partitions."""


async def known_offsets(
    admin: Admin,
    leaders: Mapping[TopicPartition, NodeId | None],
    time_ms: int,
    *,
    isolation_level: str = "read_uncommitted",
) -> dict[TopicPartition, int]:
    """Return an offset of each partition: the first offset whose record has a timestamp at or after
    a time in ms since 1970. The offset is -1 if the partition has no such record. EARLIEST and
    LATEST are special times.

    `leaders` contains the leader of each partition. Partitions without a leader, or whose leader
    does not respond in time, are not in the result. Raises RefusedError if the user may not read
    the topic.
    """
    by_leader: defaultdict[NodeId, list[TopicPartition]] = defaultdict(list)
    for at, leader in leaders.items():
        if leader is not None:
            by_leader[leader].append(at)
    found: dict[TopicPartition, int] = {}
    denials: list[RefusedError] = []

    async def ask(places: list[TopicPartition]) -> None:
        try:
            with trio.move_on_after(OFFSETS_S):
                answer = await find_offsets(
                    admin.cluster,
                    dict.fromkeys(places, time_ms),
                    isolation_level=isolation_level,
                    timeout_s=OFFSETS_S,
                )
                found.update((at, int(one.offset)) for at, one in answer.items())
        except OttlaError as error:
            if isinstance(error, RefusedError) and error.code in DENIALS:
                denials.append(error)

    async with trio.open_nursery() as nursery:
        for places in by_leader.values():
            nursery.start_soon(ask, places)
    if denials:
        raise denials[0]
    return found


DENIALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
