"""Offsets of many partitions by time."""

from collections.abc import Iterable

from ottla.client.fetch.offset_lookup import find_offsets
from ottla.client.network.cluster import Cluster
from ottla.model.ids import TopicPartition

TIMEOUT_S = 10.0
"""Time in which a partition must have had a leader that answers."""


async def offsets_at(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    timestamp: int,
    *,
    isolation_level: str = "read_uncommitted",
) -> dict[TopicPartition, int]:
    """Return each partition's first offset at or after a time in ms; -1 where there is none.

    `EARLIEST` and `LATEST` are timestamps too; for "read_committed" the end lies before the first
    open transaction.  Raises RefusedError if a partition refuses, or has
    no leader within TIMEOUT_S.
    """
    wanted = dict.fromkeys(partitions, timestamp)
    found = await find_offsets(
        cluster, wanted, isolation_level=isolation_level, timeout_s=TIMEOUT_S
    )
    return {at: found[at].offset for at in wanted}
