"""Options `--release-version` and `--feature` of `ottla storage format`: parses the feature levels
of a new cluster."""

from collections.abc import Iterable, Sequence

from ottla.metadata.features import (
    INITIAL_LEVELS,
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_NAMES,
    METADATA_VERSION_OF_DEAD_LETTERS,
    SHARE_VERSION,
    SHARE_VERSION_OF_GROUPS,
    SUPPORTED,
)
from ottla.metadata.records import Record, feature_level_record
from ottla.model.errors import ConfigError

RELEASE_OPTION = "--release-version"
FEATURE_OPTION = "--feature"


def initial_features(release: str | None, features: Sequence[str]) -> list[Record]:
    """Return metadata records of the feature levels that differ from the defaults of a new cluster.

    `release` is a release of Kafka, such as 4.4 or 4.4-IV1. `features` are texts NAME=LEVEL. Raises
    ConfigError if a text is invalid, or if this release of Ottla does not support a level.
    """
    levels = dict(_level(text) for text in features)
    if release is not None:
        if METADATA_VERSION in levels:
            raise ConfigError(RELEASE_OPTION, f"excludes {FEATURE_OPTION} {METADATA_VERSION}=…")
        level = levels[METADATA_VERSION] = _level_of_release(release)
        if level < METADATA_VERSION_OF_DEAD_LETTERS:
            levels.setdefault(SHARE_VERSION, SHARE_VERSION_OF_GROUPS)
    # metadata.version is first, so that a reader of the log can interpret the rest.
    names = sorted(levels, key=lambda name: (name != METADATA_VERSION, name))
    return [
        feature_level_record(name, levels[name])
        for name in names
        if levels[name] != INITIAL_LEVELS.get(name, 0)
    ]


def check_voters_may_be_fixed(levels: Iterable[Record], *, is_static: bool) -> None:
    """Raise ConfigError if the feature levels require that the set of voters is configured, but the
    node's settings name no voters."""
    for record in levels:
        level = record.feature_level
        if level.name == KRAFT_VERSION and level.level == 0 and not is_static:
            raise ConfigError(
                FEATURE_OPTION,
                f"has {KRAFT_VERSION}=0, which fixes the voters; it needs controller.quorum.voters,"
                " and neither --standalone nor --no-initial-controllers",
            )


def _level_of_release(release: str) -> int:
    """Return the metadata.version of a Kafka release, as a number. A release without `-IV…` has its
    highest level."""
    found = [
        level
        for level, name in METADATA_VERSION_NAMES.items()
        if release in (name, name.partition("-")[0])
    ]
    if not found:
        names = ", ".join(METADATA_VERSION_NAMES.values())
        raise ConfigError(RELEASE_OPTION, f"is {release!r}; it must be one of {names}")
    return max(found)


def _level(text: str) -> tuple[str, int]:
    name, equals, level = (part.strip() for part in text.partition("="))
    if not equals or name not in SUPPORTED or not level.isdecimal():
        raise ConfigError(
            FEATURE_OPTION,
            f"is {text!r}; it must be NAME=LEVEL, NAME one of {', '.join(SUPPORTED)}",
        )
    lowest, highest = SUPPORTED[name]
    if not lowest <= int(level) <= highest:
        raise ConfigError(
            FEATURE_OPTION, f"is {text!r}; the supported levels are {lowest} to {highest}"
        )
    return name, int(level)
