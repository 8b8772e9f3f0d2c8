"""Looks up partition offsets by timestamp (ListOffsets requests), for `ottla consume`, `ottla
group` and `ottla topic trim`."""

from collections.abc import Iterable

from ottla.client.fetch.offset_lookup import find_offsets
from ottla.client.network.cluster import Cluster
from ottla.model.ids import TopicPartition

TIMEOUT_S = 10.0
"""Time, in seconds, within which each partition's leader must respond to a look-up of offsets."""


async def offsets_at(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    timestamp: int,
    *,
    isolation_level: str = "read_uncommitted",
) -> dict[TopicPartition, int]:
    """Return each partition's first offset whose record has a timestamp at or after `timestamp` in
    ms, or -1 if the partition has no such record.

    `EARLIEST` and `LATEST` are special timestamps for the first and the end offset. For
    "read_committed", the end is the start of the first open transaction. Raises RefusedError if the
    request for a partition is refused, or if a partition has no leader within TIMEOUT_S.
    """
    wanted = dict.fromkeys(partitions, timestamp)
    found = await find_offsets(
        cluster, wanted, isolation_level=isolation_level, timeout_s=TIMEOUT_S
    )
    return {at: found[at].offset for at in wanted}
