"""Points in time in fields of forms. Pure."""

import re
from datetime import UTC, datetime

from ottla.model.errors import ConfigError

UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
TEXT_CHARS_MAX = 40


def parse_moment(name: str, text: str, now_ms: int) -> int:
    """Return a point in time in ms since 1970, such as 2026-07-31T12:00 (UTC without a zone), 30m
    (ago), or a number of ms. Raises ConfigError with the field's name for other texts."""
    if len(text) <= TEXT_CHARS_MAX:
        if re.fullmatch(r"[0-9]{1,18}", text):
            return int(text)
        ago = re.fullmatch(r"([0-9]{1,9})(s|m|h|d)", text)
        if ago is not None:
            return max(0, now_ms - int(ago[1]) * UNITS_MS[ago[2]])
        try:
            moment = datetime.fromisoformat(text)
            in_zone = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return max(0, round(in_zone.timestamp() * 1_000))
        except (ValueError, OverflowError):
            pass
    raise ConfigError(
        name, f"is {text[:TEXT_CHARS_MAX]!r}; it must be as 2026-07-31T12:00, 30m or 36h"
    )
