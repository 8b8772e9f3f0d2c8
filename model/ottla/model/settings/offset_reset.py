"""The setting `auto.offset.reset`: the offset at which a consumer starts if its group has no valid
committed offset.

Pure. The value `by_duration:` is followed by an ISO-8601 duration in the form that
`java.time.Duration` accepts (KIP-1106).
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
"""Pattern of an ISO-8601 duration. Its groups are the sign, days, hours, minutes, seconds and the
fraction of seconds."""

SECONDS_MAX = 2**63 - 1
"""Longest duration that Java's Duration can represent, in seconds."""


class OffsetReset(NamedTuple):
    """Value of `auto.offset.reset`: a strategy and, for the strategy `by_duration`, a duration."""

    strategy: str
    duration_ms: int | None = None


def parse_offset_reset(text: str) -> OffsetReset:
    """Parse the text of `auto.offset.reset`. Raises ValueError if it is invalid."""
    strategy, colon, duration = text.partition(":")
    if strategy == BY_DURATION and colon:
        return OffsetReset(strategy, parse_duration_ms(duration))
    if text in (EARLIEST, LATEST, NONE):
        return OffsetReset(text)
    raise ValueError(text)


def offset_reset_text(text: str) -> str:
    """earliest, latest, none or by_duration:DURATION, an ISO-8601 duration such as PT1H30M.

    Checks the text of `auto.offset.reset` and returns it. Raises ValueError for any other text.
    Error messages quote the first line as the description of valid texts.
    """
    parse_offset_reset(text)
    return text


def parse_duration_ms(text: str) -> int:
    """Return the length, in ms, of an ISO-8601 duration of days, hours, minutes and seconds.

    Raises ValueError if the text is malformed or the duration is negative.
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
