"""Features of a cluster: the levels that this release supports, and those of a new cluster.

A finalised level is always within `SUPPORTED`, in every process of the cluster: a broker that does
not support a finalised level is not registered.
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
    """Range of supported levels of one feature, both ends inclusive."""

    lowest: int
    highest: int


GROUP_VERSION_OF_CONSUMERS = 1
"""First level of group.version at which groups may use the consumer protocol (KIP-848)."""

METADATA_VERSION_OF_RANGES = 32
"""First level of metadata.version at which hosts of ACLs may be ranges (KIP-1276)."""

METADATA_VERSION_NAMES = {30: "4.3-IV0", 31: "4.4-IV0", 32: "4.4-IV1"}
LATER_VERSION_NAMES = {33: "4.4-IV2"}
"""Levels of metadata.version in Kafka that this release does not support."""

SUPPORTED = {
    ELIGIBLE_LEADER_REPLICAS_VERSION: LevelRange(0, 1),
    GROUP_VERSION: LevelRange(0, 1),
    KRAFT_VERSION: LevelRange(1, 1),
    METADATA_VERSION: LevelRange(30, 32),
    TRANSACTION_VERSION: LevelRange(0, 2),
}
"""Levels that this release supports.  Level 0 means that the feature is off."""

INITIAL_LEVELS = {
    METADATA_VERSION: METADATA_VERSION_OF_RANGES,
    ELIGIBLE_LEADER_REPLICAS_VERSION: 1,
    KRAFT_VERSION: 1,
    GROUP_VERSION: 1,
    TRANSACTION_VERSION: 2,
}
"""Initial levels of a new cluster, in the order of their records: metadata.version is first, so
that a reader of the log can interpret the rest."""


def bootstrap_records(*, min_insync_replicas: int) -> tuple[Record, ...]:
    """Return the first records of a new cluster.

    With eligible leader replicas every controller must know the same min.insync.replicas, so the
    cluster-wide value is recorded from the start (KIP-966).
    """
    levels = tuple(feature_level_record(name, level) for name, level in INITIAL_LEVELS.items())
    config = config_record(BROKER_RESOURCE, "", "min.insync.replicas", str(min_insync_replicas))
    return (*levels, config)


def uncovered(finalised: Iterable[tuple[str, int]], ranges: dict[str, LevelRange]) -> str | None:
    """Return the first finalised feature whose level is outside `ranges`, or None if all are
    supported."""
    for name, level in finalised:
        lowest, highest = ranges.get(name, LevelRange(0, 0))
        if not lowest <= level <= highest:
            return name
    return None


assert all(
    SUPPORTED[name].lowest <= level <= SUPPORTED[name].highest
    for name, level in INITIAL_LEVELS.items()
)
