"""Functions that write numbers of bytes, durations and times as text. Log lines, messages and
tables all use these forms.

Pure. A space separates a number from its unit. Times are in UTC, in a form that Ottla's commands
accept as input.
"""

from datetime import UTC, datetime

from ottla.model.limits import GIB, KIB, MIB

LARGE_UNITS = ((1024 * GIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))
SPANS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"))
SECOND_MS = 1_000
MOMENT_MS_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999, as milliseconds since 1970. Later times have no ISO 8601
form with a year of four digits."""


def amount(size_bytes: int) -> str:
    """Return a number of bytes as text: `512 bytes`, `1.5 KiB`, `2,048 GiB`."""
    for unit, name in LARGE_UNITS:
        if size_bytes >= unit:
            count = size_bytes / unit
            return f"{count:,.0f} {name}" if count >= 100 else f"{count:.3g} {name}"
    return "1 byte" if size_bytes == 1 else f"{size_bytes} bytes"


def counted(count: int, noun: str) -> str:
    """Return a count followed by its noun, in the plural unless the count is 1."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def duration(span_ms: float) -> str:
    """Return a duration as text: `850 ms`, `12.3 s`, `5 min`. A unit of minutes or longer is used
    if the duration is at least two of that unit."""
    for unit_ms, name in SPANS:
        if span_ms >= 2 * unit_ms:
            return f"{int(span_ms // unit_ms):,} {name}"
    if span_ms >= SECOND_MS:
        return f"{span_ms // 100 / 10:.1f}".removesuffix(".0") + " s"
    return f"{span_ms:.3g} ms" if isinstance(span_ms, float) else f"{span_ms} ms"


def moment(time_ms: int) -> str:
    """Return a time, given in milliseconds since 1970, as text: `2026-07-31T12:00:00Z`.

    Milliseconds are shown only if they are not zero. A time outside the years 1970 to 9999 is shown
    as its number of milliseconds.
    """
    if not 0 <= time_ms <= MOMENT_MS_MAX:
        return f"{time_ms} ms"
    seconds, rest_ms = divmod(time_ms, SECOND_MS)
    text = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"
    return f"{text}.{rest_ms:03}Z" if rest_ms else f"{text}Z"
