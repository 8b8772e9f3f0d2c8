"""What brokers tell, read as other people's words are: an answer of another shape than was asked
for, and numbers that mean nothing, are never more than an error of ours.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Any, TypeVar

from ottla.model.errors import ProtocolError

E = TypeVar("E", bound=Enum)
T = TypeVar("T")


def only(rows: Sequence[T], what: str) -> T:
    """Return the one row that was asked for; ProtocolError when none or several came."""
    if len(rows) != 1:
        raise ProtocolError(f"one {what} was asked for, and {len(rows)} came")
    return rows[0]


def known(kind: type[E], value: Any, otherwise: T) -> E | T:
    """Return what a value stands for; `otherwise` for one of a later release, or of none."""
    try:
        return kind(value)
    except ValueError:
        return otherwise
