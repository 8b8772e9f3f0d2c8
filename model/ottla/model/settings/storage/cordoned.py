"""The setting `cordoned.log.dirs`: log directories that receive no new replicas (KIP-1066)."""

from collections.abc import Iterable

from ottla.model.errors import ConfigError
from ottla.model.settings.declare import items

CORDONED_LOG_DIRS = "cordoned.log.dirs"
ALL_DIRECTORIES = "*"


def parse_cordoned(text: str) -> tuple[str, ...]:
    """a comma-separated list of directories, or * alone.

    Returns the directories. Raises ValueError for any other text. Error messages quote the first
    line as the description of valid texts.
    """
    found = items(text)
    if ALL_DIRECTORIES in found and len(found) > 1:
        raise ValueError(text)
    return found


def check_cordoned(cordoned: Iterable[str], log_dirs: Iterable[str]) -> None:
    """Raise ConfigError if `cordoned.log.dirs` contains a directory that is not in `log.dirs`."""
    known = [path.rstrip("/") for path in log_dirs]
    for path in cordoned:
        if path != ALL_DIRECTORIES and path.rstrip("/") not in known:
            raise ConfigError(
                CORDONED_LOG_DIRS, f"names {path}, which is not one of log.dirs: {', '.join(known)}"
            )


def is_cordoned(path: str, cordoned: Iterable[str]) -> bool:
    """Return whether a directory receives no new replicas."""
    return any(one == ALL_DIRECTORIES or one.rstrip("/") == path.rstrip("/") for one in cordoned)
