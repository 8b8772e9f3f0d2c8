"""Texts that UTF-8 cannot encode: those with lone surrogates.

Pure.  Python's `str` may contain them: JSON escapes (`\\ud800`), command lines and file names bring
them in.  The rule: an entrance refuses such a text (`is_encodable`), and an exit whose reader is
not its writer, as `/metrics` is, never raises for one (`encodable`).
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def is_encodable(text: str) -> bool:
    """Return True if UTF-8 can encode a text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def are_encodable(value: Any) -> bool:
    """Return True if UTF-8 can encode all texts of a value: of a list, a mapping, a dataclass."""
    if isinstance(value, str):
        return is_encodable(value)
    if isinstance(value, Mapping):
        return all(map(are_encodable, (*value, *value.values())))
    if isinstance(value, list | tuple):
        return all(map(are_encodable, value))
    if is_dataclass(value):
        return all(are_encodable(getattr(value, one.name)) for one in fields(value))
    return True


def encodable(text: str) -> str:
    """Return a text with `?` for what UTF-8 cannot encode, as Java's encoder has it."""
    return text if is_encodable(text) else text.encode(errors="replace").decode()
