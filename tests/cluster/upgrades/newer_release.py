"""`ottla` as a later release: ottla.version has another level, which the command may set."""

from ottla.metadata import features, record_levels
from ottla.metadata.features import INITIAL_LEVELS, OTTLA_VERSION, OTTLA_VERSION_NAMES, LevelRange

LEVEL = max(OTTLA_VERSION_NAMES) + 1


def become_newer() -> None:
    """Support a further level, which new clusters have."""
    features.OTTLA_VERSION_NAMES[LEVEL] = "later"
    features.SUPPORTED[OTTLA_VERSION] = LevelRange(0, LEVEL)
    features.OFFERED[OTTLA_VERSION] = LevelRange(0, LEVEL)
    INITIAL_LEVELS[OTTLA_VERSION] = LEVEL
    record_levels.HIGHEST = LEVEL


if __name__ == "__main__":
    become_newer()
    from ottla.cli.main import main

    main()
