"""Parser of points in time, in the forms that people write on a command line or in a web form.
Pure."""

import re
from datetime import UTC, datetime

from ottla.model.errors import ConfigError

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
TEXT_CHARS_MAX = 40
"""Maximum length of a text, in characters. Python refuses to convert numbers that are much
longer."""
TIME_MAX_MS = 2**63 - 1
"""Maximum of a timestamp in Kafka's requests, in milliseconds since 1970."""


def parse_time(option: str, text: str, now_ms: int) -> int:
    """Parse a point in time. Returns milliseconds since 1970.

    The text is a date, a date and time, a duration before now, or a number of milliseconds since
    1970. Times without a zone are in UTC, as in Kafka's tools. A time before 1970 becomes 0,
    because Kafka's requests use negative timestamps for other purposes. Raises ConfigError for any
    other text, and for times that do not fit into 64 bits.
    """
    moment_ms = _parse(text, now_ms) if len(text) <= TEXT_CHARS_MAX else None
    if moment_ms is None or moment_ms > TIME_MAX_MS:
        raise ConfigError(
            option,
            f"is {text[:TEXT_CHARS_MAX]!r}; it must be a time (2026-07-31T12:00 or with a zone), "
            "how long ago (90s, 30m, 36h, 7d), or milliseconds since 1970",
        )
    return max(0, moment_ms)


def _parse(text: str, now_ms: int) -> int | None:
    if text.isascii() and text.isdecimal():
        return int(text)
    ago = re.fullmatch(r"([0-9]+)(ms|s|m|h|d|w)", text)
    if ago is not None:
        return now_ms - int(ago[1]) * UNITS_MS[ago[2]]
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    in_zone = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return round(in_zone.timestamp() * 1_000)
