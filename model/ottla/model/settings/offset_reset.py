"""`auto.offset.reset`: the offset at which a consumer starts if it has no offset, or an invalid
one.

Pure. `by_duration:` takes an ISO-8601 duration as `java.time.Duration` parses it (KIP-1106).
"""

import re
from typing import NamedTuple

EARLIEST, LATEST, NONE, BY_DURATION = "earliest", "latest", "none", "by_duration"

NUMBER = "[-+]?[0-9]{1,19}"
DURATION = re.compile(
    rf"([-+]?)P(?:({NUMBER})D)?"
    rf"(?:T(?=[-+0-9])(?:({NUMBER})H)?(?:({NUMBER})M)?(?:({NUMBER})(?:[.,]([0-9]{{0,9}}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
"""Groups: sign, days, hours, minutes, seconds and their fraction."""

SECONDS_MAX = 2**63 - 1
"""Longest duration of Java, in seconds."""


class OffsetReset(NamedTuple):
    """A strategy of `auto.offset.reset`, and the duration if the strategy is `by_duration`."""

    strategy: str
    duration_ms: int | None = None


def parse_offset_reset(text: str) -> OffsetReset:
    """Return the strategy in a setting's text. Raises ValueError if it is invalid."""
    strategy, colon, duration = text.partition(":")
    if strategy == BY_DURATION and colon:
        return OffsetReset(strategy, parse_duration_ms(duration))
    if text in (EARLIEST, LATEST, NONE):
        return OffsetReset(text)
    raise ValueError(text)


def offset_reset_text(text: str) -> str:
    """earliest, latest, none or by_duration:DURATION, an ISO-8601 duration such as PT1H30M."""
    parse_offset_reset(text)
    return text


def parse_duration_ms(text: str) -> int:
    """Return the milliseconds of an ISO-8601 duration of days, hours, minutes and seconds.

    Raises ValueError if the text is malformed, or the duration is negative.
    """
    found = DURATION.fullmatch(text)
    if found is None or not any(found.group(2, 3, 4, 5)):
        raise ValueError(text)
    sign, days, hours, minutes, seconds, fraction = found.groups()
    whole = int(days or 0) * 86_400 + int(hours or 0) * 3_600 + int(minutes or 0) * 60
    whole += int(seconds or 0)
    if abs(whole) > SECONDS_MAX:
        raise ValueError(text)
    nanoseconds = int((fraction or "").ljust(9, "0")) if fraction else 0
    if seconds and seconds.startswith("-"):
        nanoseconds = -nanoseconds
    total_ns = (whole * 1_000_000_000 + nanoseconds) * (-1 if sign == "-" else 1)
    if total_ns < 0:
        raise ValueError(text)
    return total_ns // 1_000_000
