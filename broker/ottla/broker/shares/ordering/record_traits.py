"""Reads the due time, key and priority of a record, for share groups with delays, order by key or
priorities. Pure.

Headers are text in ASCII. A header that cannot be read counts as absent.
"""

from enum import IntEnum
from typing import NamedTuple

from ottla.broker.shares.ordering.ordering_rules import OrderingRules
from ottla.wire.records import RecordHeaders

DUE_HEADER = "ottla.due.ms"
"""Name of the record header with the earliest time of the first delivery, in milliseconds since
1970."""
DELAY_HEADER = "ottla.delay.ms"
"""Name of the record header with the delay of the first delivery, in milliseconds from the record's
timestamp. The header `ottla.due.ms` takes precedence."""
PRIORITY_HEADER = "ottla.priority"
"""Name of the record header with the priority of a record: high, normal or low."""

DIGITS_MAX = 15
"""Maximum number of digits of a time in a record header. The latest time in milliseconds with 15
digits is in the year 33658."""


class Priority(IntEnum):
    """Priority of a record in a share group. A record with a lower number is delivered earlier."""

    HIGH = 0
    NORMAL = 1
    LOW = 2


PRIORITIES = {b"high": Priority.HIGH, b"normal": Priority.NORMAL, b"low": Priority.LOW}


class Traits(NamedTuple):
    """Key and priority of one record, by which a share group orders its delivery."""

    priority: Priority = Priority.NORMAL
    key: int | None = None
    """Hash of the record's key. None if the record has no key, or if records are not ordered by
    key. Keys with equal hash are treated as one key, which reduces concurrency but never breaks the
    order."""


PLAIN = Traits()
"""Traits of a record that has neither a key nor a priority."""


def due_ms_of(rules: OrderingRules, timestamp_ms: int, headers: RecordHeaders) -> int:
    """Return the wall time in milliseconds at which a record may first be delivered to a share
    group, or 0 if it is not delayed."""
    if not rules.has_delay:
        return 0
    delay_ms = rules.delay_ms
    for name, text in headers:
        if name == DUE_HEADER:
            due_ms = _number(text)
            if due_ms is not None:
                return due_ms
        elif name == DELAY_HEADER:
            found = _number(text)
            delay_ms = delay_ms if found is None else found
    return max(0, timestamp_ms + delay_ms) if delay_ms else 0


def traits_of(rules: OrderingRules, key: bytes | None, headers: RecordHeaders) -> Traits:
    """Return the key and priority of a record, which determine the order of delivery in a share
    group. A field that the group's rules do not use is left out."""
    priority = Priority.NORMAL
    if rules.has_priority:
        for name, text in headers:
            if name == PRIORITY_HEADER and text is not None:
                priority = PRIORITIES.get(text, priority)
    hashed = hash(key) if rules.key_concurrency and key is not None else None
    if hashed is None and priority is Priority.NORMAL:
        return PLAIN
    return Traits(priority, hashed)


def _number(text: bytes | None) -> int | None:
    if text is None or len(text) > DIGITS_MAX or not text.isdigit():
        return None
    return int(text)
