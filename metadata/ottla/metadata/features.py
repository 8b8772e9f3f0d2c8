"""Features of a cluster: the levels that this release supports, and the initial levels of a new
cluster.

In every process of the cluster, a finalised level is within `SUPPORTED`. The controller does not
register a node that does not support all finalised levels. A node stops when it reads an
unsupported level in the metadata log.

Feature `ottla.version` is not Kafka's. Its level decides which of Ottla's own records are written
to the metadata log. Until the level is raised, a cluster can therefore return to the previous
release.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.metadata.records import BROKER_RESOURCE, Record, config_record, feature_level_record
from ottla.model.errors import NewerReleaseError
from ottla.model.version import VERSION

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
ELIGIBLE_LEADER_REPLICAS_VERSION = "eligible.leader.replicas.version"
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"
OTTLA_VERSION = "ottla.version"


class LevelRange(NamedTuple):
    """Range of supported levels of one feature, both ends inclusive."""

    lowest: int
    highest: int

    def __str__(self) -> str:
        """Return the range of feature levels in Kafka's notation."""
        return str(self.lowest) if self.lowest == self.highest else f"{self.lowest}-{self.highest}"


GROUP_VERSION_OF_CONSUMERS = 1
"""First level of group.version at which groups may use the consumer rebalance protocol
(KIP-848)."""

SHARE_VERSION_OF_GROUPS = 1
"""First level of share.version at which share groups are served (KIP-932)."""

SHARE_VERSION_OF_DEAD_LETTERS = 2
"""First level of share.version at which a share group may have a dead letter topic (KIP-1191)."""

KRAFT_VERSION_OF_VOTER_CHANGES = 1
"""First level of kraft.version at which the voters of the quorum may change (KIP-853)."""

METADATA_VERSION_OF_DEAD_LETTERS = 31
"""Lowest metadata.version of the Kafka releases whose new clusters have share.version 2 (dead
letter topics)."""

METADATA_VERSION_OF_RANGES = 32
"""First level of metadata.version at which the host of an ACL may be a range of addresses
(KIP-1276)."""

METADATA_VERSION_OF_UNREGISTERED_CONTROLLERS = 33
"""First level of metadata.version at which controllers can be unregistered (KIP-1312)."""

OTTLA_VERSION_OF_CONTROLLERS = 1
"""First level of ottla.version at which controllers are registered in the metadata log, and the
voters of the quorum may change. Release 0.2.0 supports neither."""

METADATA_VERSION_NAMES = {30: "4.3-IV0", 31: "4.4-IV0", 32: "4.4-IV1", 33: "4.4-IV2"}
"""Kafka's name of each level of metadata.version that this release supports."""

OTTLA_VERSION_NAMES = {0: "0.2.0", 1: "0.3.0"}
"""First Ottla release that supports each level of ottla.version. Earlier releases do not start in a
cluster of that level."""

LEVEL_NAMES = {METADATA_VERSION: METADATA_VERSION_NAMES, OTTLA_VERSION: OTTLA_VERSION_NAMES}

DIGITS_MAX = 5
"""Maximum number of digits in the text of a feature level, which is an int16."""

SUPPORTED = {
    ELIGIBLE_LEADER_REPLICAS_VERSION: LevelRange(0, 1),
    GROUP_VERSION: LevelRange(0, 1),
    KRAFT_VERSION: LevelRange(0, 1),
    METADATA_VERSION: LevelRange(min(METADATA_VERSION_NAMES), max(METADATA_VERSION_NAMES)),
    OTTLA_VERSION: LevelRange(min(OTTLA_VERSION_NAMES), max(OTTLA_VERSION_NAMES)),
    SHARE_VERSION: LevelRange(0, 2),
    STREAMS_VERSION: LevelRange(0, 0),
    TRANSACTION_VERSION: LevelRange(0, 2),
}
"""Range of levels that this release supports, for each feature. Level 0 means that the feature is
off."""

OFFERED = {name: levels for name, levels in SUPPORTED.items() if levels.highest > 0}
"""Supported features that nodes register and report to clients. As in Kafka, a feature whose only
level is 0 is not reported."""

RECORD_CHANGES: Mapping[str, frozenset[int]] = {
    METADATA_VERSION: frozenset((30, 32, 33)),
    OTTLA_VERSION: frozenset((OTTLA_VERSION_OF_CONTROLLERS,)),
}
"""Feature levels that changed the format of records in the metadata log, by feature, as in Kafka's
MetadataVersion. A feature is never lowered below such a level, because the log may contain records
of that level."""

INITIAL_LEVELS = {
    METADATA_VERSION: max(METADATA_VERSION_NAMES),
    OTTLA_VERSION: max(OTTLA_VERSION_NAMES),
    ELIGIBLE_LEADER_REPLICAS_VERSION: 1,
    KRAFT_VERSION: 1,
    GROUP_VERSION: 1,
    TRANSACTION_VERSION: 2,
    SHARE_VERSION: SHARE_VERSION_OF_DEAD_LETTERS,
}
"""Initial feature levels of a new cluster, in the order of their records. metadata.version is
first, because a reader of the log needs it to interpret the other records."""


FORMER_RELEASE = OTTLA_VERSION_NAMES[0]
"""Previous release of Ottla. Nodes can return to it until an operator raises ottla.version."""

FORMER_HIGHEST = {METADATA_VERSION: 32, OTTLA_VERSION: 0, SHARE_VERSION: 0}
"""Highest feature levels that Ottla's release 0.2.0 supports. Contains only features for which this
release supports a higher level."""


def bootstrap_records(
    *, min_insync_replicas: int, more: Iterable[Record] = ()
) -> tuple[Record, ...]:
    """Return the first metadata records of a new cluster, followed by `more`. Feature levels in
    `more` replace the default initial levels.

    The cluster-wide min.insync.replicas is recorded from the start, because all controllers must
    know the same value for eligible leader replicas (KIP-966).
    """
    chosen, others = dict(INITIAL_LEVELS), []
    for record in more:
        if record.HasField("feature_level"):
            chosen[record.feature_level.name] = record.feature_level.level
        else:
            others.append(record)
    levels = tuple(feature_level_record(name, level) for name, level in chosen.items())
    config = config_record(BROKER_RESOURCE, "", "min.insync.replicas", str(min_insync_replicas))
    return (*levels, config, *others)


def is_share_enabled(levels: Mapping[str, int]) -> bool:
    """Return whether brokers serve share groups at the given finalised feature levels."""
    return levels.get(SHARE_VERSION, 0) >= SHARE_VERSION_OF_GROUPS


def has_dead_letters(levels: Mapping[str, int]) -> bool:
    """Return whether share groups may have a dead letter topic at the given finalised feature
    levels."""
    return levels.get(SHARE_VERSION, 0) >= SHARE_VERSION_OF_DEAD_LETTERS


def uncovered(finalised: Iterable[tuple[str, int]], ranges: Mapping[str, LevelRange]) -> str | None:
    """Return the name of the first finalised feature whose level is outside its range in `ranges`,
    or None if all levels are inside."""
    for name, level in finalised:
        lowest, highest = ranges.get(name, LevelRange(0, 0))
        if not lowest <= level <= highest:
            return name
    return None


def check_supported(levels: Iterable[tuple[str, int]]) -> None:
    """Check the finalised feature levels that a node reads in the metadata log.

    Raises NewerReleaseError if this release does not support one of the levels, because it could
    misread the records that follow.
    """
    finalised = dict(levels)
    name = uncovered(finalised.items(), SUPPORTED)
    if name is not None:
        raise NewerReleaseError(
            f"the cluster has level {finalised[name]} of {name}, and Ottla {VERSION} supports "
            f"{SUPPORTED.get(name, LevelRange(0, 0))}; start this node with the newer release"
        )


def changes_records(feature: str, *, above: int, up_to: int) -> bool:
    """Return whether any level of the feature in the range above `above` and up to `up_to` changed
    the format of metadata records."""
    return any(above < level <= up_to for level in RECORD_CHANGES.get(feature, ()))


def levels_before_return(finalised: Mapping[str, int]) -> dict[str, int]:
    """Return the feature levels that an operator must set before a node can return to release
    0.2.0. If a feature cannot be lowered that far, a return is impossible."""
    return {
        name: highest
        for name, highest in FORMER_HIGHEST.items()
        if finalised.get(name, 0) > highest
    }


def level_name(feature: str, level: int) -> str:
    """Return the text of a feature level for operators: the number, followed by the release to
    which it belongs, if any."""
    name = LEVEL_NAMES.get(feature, {}).get(level)
    if name is None:
        return str(level)
    # A level of ottla.version is no release: all later releases have it, too.
    return f"{level} (since {name})" if feature == OTTLA_VERSION else f"{level} ({name})"


def level_named(feature: str, text: str) -> int | None:
    """Return the feature level that a text denotes: either a number, or the name of a release.
    Returns None if the text is neither."""
    for level, name in LEVEL_NAMES.get(feature, {}).items():
        if name == text:
            return level
    return int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX else None


assert all(
    SUPPORTED[name].lowest <= level <= SUPPORTED[name].highest
    for name, level in INITIAL_LEVELS.items()
)
