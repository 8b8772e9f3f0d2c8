"""The features a cluster agrees on, the levels this release knows, and where a new one starts.

A finalised level never lies outside `SUPPORTED`, in any process of the cluster: a broker that
does not cover a finalised level is not registered.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.metadata.records import BROKER_RESOURCE, Record, config_record, feature_level_record

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
ELIGIBLE_LEADER_REPLICAS_VERSION = "eligible.leader.replicas.version"


class LevelRange(NamedTuple):
    """The levels of one feature a process can work with, both inclusive."""

    lowest: int
    highest: int


GROUP_VERSION_OF_CONSUMERS = 1
"""The level of group.version from which on groups may use the consumer protocol (KIP-848)."""

METADATA_VERSION_OF_RANGES = 32
"""The level of metadata.version from which on hosts of ACLs may be ranges (KIP-1276)."""

METADATA_VERSION_NAMES = {30: "4.3-IV0", 31: "4.4-IV0", 32: "4.4-IV1"}
LATER_VERSION_NAMES = {33: "4.4-IV2"}
"""Levels of metadata.version that Kafka has and this release does not."""

SUPPORTED = {
    ELIGIBLE_LEADER_REPLICAS_VERSION: LevelRange(0, 1),
    GROUP_VERSION: LevelRange(0, 1),
    KRAFT_VERSION: LevelRange(1, 1),
    METADATA_VERSION: LevelRange(30, 32),
    TRANSACTION_VERSION: LevelRange(0, 2),
}
"""What this release can do.  Level 0 means the feature is off."""

INITIAL_LEVELS = {
    METADATA_VERSION: METADATA_VERSION_OF_RANGES,
    ELIGIBLE_LEADER_REPLICAS_VERSION: 1,
    KRAFT_VERSION: 1,
    GROUP_VERSION: 1,
    TRANSACTION_VERSION: 2,
}
"""What a new cluster finalises, in the order the records are written: readers of the log learn
the metadata.version before anything else."""


def bootstrap_records(*, min_insync_replicas: int) -> tuple[Record, ...]:
    """Return the first records of a new cluster.

    With eligible leader replicas every controller must know the same min.insync.replicas, so the
    cluster-wide value is written down from the start (KIP-966).
    """
    levels = tuple(feature_level_record(name, level) for name, level in INITIAL_LEVELS.items())
    config = config_record(BROKER_RESOURCE, "", "min.insync.replicas", str(min_insync_replicas))
    return (*levels, config)


def uncovered(finalised: Iterable[tuple[str, int]], ranges: dict[str, LevelRange]) -> str | None:
    """Return the first finalised feature whose level `ranges` does not cover."""
    for name, level in finalised:
        lowest, highest = ranges.get(name, LevelRange(0, 0))
        if not lowest <= level <= highest:
            return name
    return None


assert all(
    SUPPORTED[name].lowest <= level <= SUPPORTED[name].highest
    for name, level in INITIAL_LEVELS.items()
)
