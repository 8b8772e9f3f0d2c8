r"""Detection and replacement of texts that UTF-8 cannot encode because they contain lone
surrogates.

Pure. Python's `str` may contain lone surrogates. They originate from JSON escapes (`\ud800`),
command lines and file names. The rule: code that accepts input refuses such a text
(`is_encodable`). Code whose output is read by others, such as `/metrics`, replaces these characters
and raises no error (`encodable`).
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def is_encodable(text: str) -> bool:
    """Return whether UTF-8 can encode a text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def are_encodable(value: Any) -> bool:
    """Return whether UTF-8 can encode all texts in a value: in a list, a mapping or a dataclass."""
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
