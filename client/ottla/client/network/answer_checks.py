"""Validation of brokers' responses.

If a response has an unexpected structure or number, the validation raises an error of this client,
such as ProtocolError.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Any, TypeVar

from ottla.model.errors import ProtocolError

E = TypeVar("E", bound=Enum)
T = TypeVar("T")


def only(rows: Sequence[T], what: str) -> T:
    """Return the single row of a response. Raises ProtocolError if the response has no row or more
    than one."""
    if len(rows) != 1:
        raise ProtocolError(f"one {what} was requested, and {len(rows)} came")
    return rows[0]


def known(kind: type[E], value: Any, otherwise: T) -> E | T:
    """Return the enum member with a value from a response, or `otherwise` if this release does not
    know the value."""
    try:
        return kind(value)
    except ValueError:
        return otherwise
