"""Parses durations and points in time in the forms that people write on a command line."""

import re
from datetime import UTC, datetime

from ottla.model.errors import ConfigError

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def parse_duration(option: str, text: str) -> float:
    """Parse a duration such as 90s, 10m or 1h, the value of `option`. Returns seconds. Raises
    ConfigError, with the name of the option, if the text is not a duration."""
    found = re.fullmatch(r"(\d+)(ms|s|m|h|d|w)", text)
    if found is None:
        raise ConfigError(option, f"is {text!r}; it must be a duration such as 90s, 10m or 1h")
    return int(found[1]) * UNITS_MS[found[2]] / 1_000


def parse_time(option: str, text: str, now_ms: int) -> int:
    """Parse a point in time. Returns milliseconds since 1970.

    The text is one of: a date; a date and time (UTC if no zone is given, as in Kafka's tools); a
    duration before now; milliseconds since 1970. Raises ConfigError if it is none of these.
    """
    if text.isdecimal():
        return int(text)
    ago = re.fullmatch(r"(\d+)(ms|s|m|h|d|w)", text)
    if ago is not None:
        return now_ms - int(ago[1]) * UNITS_MS[ago[2]]
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            option,
            f"is {text!r}; it must be a time (2026-07-31T12:00 or with a zone), how long ago (90s, "
            "30m, 36h, 7d), or milliseconds since 1970",
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1_000)
