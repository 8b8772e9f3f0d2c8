r"""Detection and replacement of lone surrogates in texts, which UTF-8 cannot encode.

Pure. Python's `str` may contain lone surrogates, for example from JSON escapes (`\ud800`), command
lines and file names. Code that accepts input refuses a text with lone surrogates (`is_encodable`).
Code whose output is read by other programs, such as `/metrics`, replaces them and raises no error
(`encodable`).
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def is_encodable(text: str) -> bool:
    """Return whether UTF-8 can encode a text. Returns False if the text contains lone
    surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def are_encodable(value: Any) -> bool:
    """Return whether UTF-8 can encode all texts in a value, including those in lists, mappings and
    dataclasses."""
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
    """Return a text with `?` in place of characters that UTF-8 cannot encode, as Java's encoder
    does."""
    return text if is_encodable(text) else text.encode(errors="replace").decode()
