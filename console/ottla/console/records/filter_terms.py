"""Evaluates the terms of a parsed filter for one record. Pure.

A term never raises an error for a record. Values that cannot be compared do not match.
"""

import json
import re
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Final, Protocol, TypeAlias

from ottla.model.values import frozen

Scalar: TypeAlias = str | int | float | Decimal | bool | None
"""Type of a literal in a filter of records."""


class _AbsentProperty:
    """Type of the value MISSING, which stands for an absent field or header."""


MISSING: Final = _AbsentProperty()
"""Value of a field or header that a record does not have."""

NUMBER = re.compile(r"-?\d{1,40}(\.\d{1,40})?")
"""Pattern of texts that a filter compares with numbers as numbers, such as the key b"17"."""


class FilteredRecord(Protocol):
    """A record as a filter reads it. Keys, values and headers are decoded only when the filter
    reads them."""

    @property
    def offset(self) -> int:
        """Offset of the filtered record."""
        ...

    @property
    def partition(self) -> int:
        """Partition number of the filtered record."""
        ...

    @property
    def timestamp_ms(self) -> int:
        """Timestamp of the filtered record in ms since 1970."""
        ...

    @property
    def size_bytes(self) -> int:
        """Size of the filtered record's key, value and headers in bytes."""
        ...

    @property
    def key_text(self) -> str | None:
        """Record key as text, or None if the record has no key."""
        ...

    @property
    def value_text(self) -> str | None:
        """Record value as text, or None for a tombstone."""
        ...

    @property
    def key_object(self) -> object:
        """Record key decoded to dicts, lists and scalars."""
        ...

    @property
    def value_object(self) -> object:
        """Record value decoded to dicts, lists and scalars."""
        ...

    def header_text(self, name: str) -> str | _AbsentProperty | None:
        """Return the record's last header with this name as text. Returns None if its value is
        null, or MISSING if the record has no such header."""
        ...


Read: TypeAlias = Callable[[FilteredRecord], object]
"""Function that reads an operand of a filter, such as a field, from a record."""
Test: TypeAlias = Callable[[FilteredRecord], bool]
"""Function that returns whether a record matches a filter or a part of it."""

ATTRIBUTES: dict[str, Read] = {
    "offset": lambda record: record.offset,
    "partition": lambda record: record.partition,
    "timestamp": lambda record: record.timestamp_ms,
    "size": lambda record: record.size_bytes,
    "key": lambda record: record.key_text,
    "value": lambda record: record.value_text,
}
"""Functions that read the operands of a filter without a path, by name. The first four do not read
the content of a record."""
CONTENT = frozenset({"key", "value", "header"})


@frozen
class Operand:
    """Property of a record in a filter: `offset`, `header["trace"]`, or a field such as
    `value.user.id`."""

    root: str
    path: tuple[str | int, ...] = ()

    @property
    def is_content(self) -> bool:
        """True if the operand reads the key, value or headers of a record."""
        return self.root in CONTENT

    def read(self, record: FilteredRecord) -> object:
        """Return the property of a record that this operand names, or MISSING if the record lacks
        the property."""
        if self.root == "header":
            return record.header_text(str(self.path[0]))
        if not self.path:
            return ATTRIBUTES[self.root](record)
        found = record.key_object if self.root == "key" else record.value_object
        for step in self.path:
            if isinstance(found, dict):
                found = found.get(step if isinstance(step, str) else str(step), MISSING)
            elif isinstance(found, list) and isinstance(step, int):
                found = found[step] if -len(found) <= step < len(found) else MISSING
            else:
                return MISSING
        return found


def is_equal(found: object, literal: Scalar) -> bool:
    """Return whether a property of a record equals a literal of the filter. Integers and decimals
    are compared exactly, and a text that is a number equals this number. A missing property equals
    `null`."""
    if literal is None:
        return found is None or found is MISSING
    if isinstance(literal, bool) or isinstance(found, bool):
        return found is literal
    pair = _comparable(found, literal)
    return pair is not None and bool(pair[0] == pair[1])


def is_ordered(found: object, literal: Scalar, signs: str) -> bool:
    """Return whether the comparison of a record's property with a literal has one of the results in
    `signs`: "<", ">" or "=". Texts are compared by the code points of their characters."""
    if isinstance(literal, bool) or isinstance(found, bool):
        return False
    pair = _comparable(found, literal)
    if pair is None:
        return False
    left, right = pair
    try:
        sign = "<" if left < right else ">" if left > right else "=" if left == right else "?"
    except InvalidOperation:
        return False  # a Decimal that is not a number
    return sign in signs


def _comparable(found: object, literal: Scalar) -> tuple[Decimal, Decimal] | None:
    """Return a property of a record and a literal as two values that Python can compare, or None if
    they are not comparable. Numbers of different types are comparable, and so are two texts."""
    pair: object = None
    if literal is None:
        return None
    if isinstance(literal, str):
        pair = (found, literal) if isinstance(found, str) else None
    elif isinstance(found, str):
        pair = (Decimal(found), literal) if NUMBER.fullmatch(found) else None
    elif isinstance(found, float):
        try:
            pair = (found, float(literal))  # a literal such as 0.1 stands for the nearest double
        except OverflowError:
            pair = None
    elif isinstance(found, int | Decimal):
        pair = (found, literal)
    return pair  # type: ignore[return-value]  # both are numbers, or both are texts


def text_of(found: object) -> str | None:
    """Return a property of a record as the text that the filter's operators `contains`, `starts`,
    `ends` and `~` search. Objects and lists are converted to JSON. Returns None if the record lacks
    the property."""
    if found is None or found is MISSING:
        return None
    if isinstance(found, str):
        return found
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, int | float | Decimal):
        return str(found)
    try:
        return json.dumps(found, ensure_ascii=False, default=str, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return None


def all_of(tests: Sequence[Test]) -> Test:
    """Return a test that a record passes if it passes all of `tests`."""
    return lambda record: all(test(record) for test in tests)


def any_of(tests: Sequence[Test]) -> Test:
    """Return a test that a record passes if it passes at least one of `tests`."""
    return lambda record: any(test(record) for test in tests)
