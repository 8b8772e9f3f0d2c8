"""Parses the query parameters of a page of records. They select the records to read, and the
formats in which to show the records. Pure.

| parameter | meaning |
|---|---|
| `from` | `newest` (default), `oldest`, `offset` or `time` |
| `at` | an offset, or a time as in `ottla consume`: `2026-11-29T07:00`, `36h`, ms since 1970 |
| `partition` | number of the only partition; empty for all |
| `key` | only records with this key, in the partition of keys of the default partitioner |
| `filter` | see `filter_language` |
| `count` | number of records to show |
| `level` | `read_committed` hides records of open and aborted transactions |
| `kf`, `vf` | formats of keys and values |
| `cursor` | end of the previous page: `PARTITION:OFFSET,…` |
"""

import re
from collections.abc import Mapping
from enum import Enum

from ottla.console.form_values import form_number
from ottla.console.records.filter_language import RecordFilter, parse_filter
from ottla.model.amounts import MOMENT_MS_MAX
from ottla.model.errors import ConfigError
from ottla.model.points_in_time import parse_time
from ottla.model.values import frozen

COUNT = 50
COUNT_MAX = 100
DOWNLOAD_COUNT_MAX = 10_000
KEY_CHARS_MAX = 4_000
CURSOR_CHARS_MAX = 4_000
INT64_DIGITS_MAX = 19
_CURSOR = re.compile(r"\d{1,9}:\d{1,18}(,\d{1,9}:\d{1,18})*", re.ASCII)
LEVELS = ("read_uncommitted", "read_committed")


class Start(Enum):
    """Position at which a page of records begins."""

    NEWEST = "newest"
    OLDEST = "oldest"
    OFFSET = "offset"
    TIME = "time"


@frozen(kw_only=True)
class ReadQuery:
    """Parsed query of a page of records. It selects the records of a topic that the page shows."""

    start: Start
    offset: int = 0
    """First offset of the records to show, if the page begins at Start.OFFSET."""
    time_ms: int = 0
    """Earliest timestamp of the records to show, in ms since 1970, if the page begins at
    Start.TIME."""
    partition: int | None = None
    key: str | None = None
    """Key that all shown records have, or None if any key is accepted."""
    filter: RecordFilter | None = None
    count: int = COUNT
    level: str = LEVELS[0]
    key_format: str = "auto"
    value_format: str = "auto"
    cursor: Mapping[int, int] | None = None
    """Offset of each partition at which this page of records continues. It is the first offset to
    read or, for Start.NEWEST, the lowest offset that the previous page has shown. None for the
    first page."""

    @property
    def is_backward(self) -> bool:
        """True if the page shows the newest records first."""
        return self.start is Start.NEWEST

    @property
    def reads_content(self) -> bool:
        """True if the selection of records depends on their keys, values or headers."""
        return self.key is not None or (self.filter is not None and self.filter.reads_content)


def parse_query(query: Mapping[str, str], *, now_ms: int, count_max: int = COUNT_MAX) -> ReadQuery:
    """Parse the query parameters of a page of records. Raises ConfigError if a parameter is
    invalid."""
    start = _one_of("from", query.get("from", ""), [one.value for one in Start])
    at = query.get("at", "").strip()
    offset = time_ms = 0
    if start == Start.OFFSET.value:
        offset = _number("at", at or "0")
    elif start == Start.TIME.value:
        if not at:
            raise ConfigError("at", "is missing; give a time such as 2026-11-29T07:00 or 36h")
        time_ms = max(0, _time(at, now_ms))
    key = query.get("key", "")
    if len(key) > KEY_CHARS_MAX:
        raise ConfigError("key", f"is longer than {KEY_CHARS_MAX:,} characters")
    partition = query.get("partition", "").strip()
    count = _number("count", query.get("count", "").strip() or str(min(COUNT, count_max)))
    return ReadQuery(
        start=Start(start),
        offset=offset,
        time_ms=time_ms,
        partition=_number("partition", partition, digits_max=9) if partition else None,
        key=key or None,
        filter=parse_filter(query.get("filter", ""), now_ms=now_ms),
        count=max(1, min(count, count_max)),
        level=_one_of("level", query.get("level", ""), LEVELS),
        key_format=query.get("kf", "") or "auto",
        value_format=query.get("vf", "") or "auto",
        cursor=_cursor(query.get("cursor", "")),
    )


def cursor_text(offsets: Mapping[int, int]) -> str:
    """Return the value of the query parameter `cursor` for offsets by partition."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))


def _cursor(text: str) -> dict[int, int] | None:
    if not text:
        return None
    if len(text) > CURSOR_CHARS_MAX or not _CURSOR.fullmatch(text):
        raise ConfigError("cursor", "is not the address of a further page; begin with the first")
    pairs = (one.split(":") for one in text.split(","))
    return {int(partition): int(offset) for partition, offset in pairs}


def _time(text: str, now_ms: int) -> int:
    try:
        found = parse_time("at", text, now_ms)
    except OverflowError:
        found = MOMENT_MS_MAX + 1
    if found > MOMENT_MS_MAX:
        raise ConfigError("at", f"is {text[:50]!r}; it must be a time before the year 10000")
    return found


def _one_of(name: str, text: str, values: list[str] | tuple[str, ...]) -> str:
    """Return the value of a query parameter, which must be one of `values`. An empty value means
    the first of `values`. Raises ConfigError for other values."""
    if text and text not in values:
        raise ConfigError(name, f"is {text[:50]!r}; it must be one of {', '.join(values)}")
    return text or values[0]


def _number(name: str, text: str, *, digits_max: int = INT64_DIGITS_MAX - 1) -> int:
    return form_number(name, text, digits_max=digits_max)
