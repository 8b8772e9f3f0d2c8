"""Parser of points in time, in the forms that people write on a command line or in a web form.
Pure."""

import re
from datetime import UTC, datetime

from ottla.model.errors import ConfigError

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
TEXT_CHARS_MAX = 40
"""Maximum length of a number, in characters. Python refuses to convert numbers that are much
longer."""


def parse_time(option: str, text: str, now_ms: int) -> int:
    """Parse a point in time. Returns milliseconds since 1970.

    The text is a date, a date and time (in UTC if no zone is given, as in Kafka's tools), a
    duration before now, or a number of milliseconds since 1970. Raises ConfigError for any other
    text.
    """
    if len(text) <= TEXT_CHARS_MAX and text.isascii() and text.isdecimal():
        return int(text)
    ago = re.fullmatch(r"(\d+)(ms|s|m|h|d|w)", text)
    if ago is not None and len(text) <= TEXT_CHARS_MAX:
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
