"""Suggestion of a valid key for a key with one typing error. Pure."""

from collections.abc import Iterable

LENGTH_MIN = 6
"""Minimum length in characters of a key for which a suggestion is made. Shorter keys resemble too
many other words."""


def meant_key(key: str, known: Iterable[str]) -> str | None:
    """Return the valid key that differs from `key` by one typing error, or None if no key does."""
    if len(key) < LENGTH_MIN:
        return None
    return next((one for one in sorted(known) if is_one_edit(key, one)), None)


def is_one_edit(one: str, other: str) -> bool:
    """Return whether two words differ by one added, missing or changed letter, or by a swap of two
    adjacent letters."""
    if one == other or abs(len(one) - len(other)) > 1:
        return False
    short, long = sorted((one, other), key=len)
    at = next((i for i, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    if len(short) < len(long):
        return short[at:] == long[at + 1 :]
    is_swapped = short[at : at + 2] == long[at : at + 2][::-1]
    return short[at + 1 :] == long[at + 1 :] or (is_swapped and short[at + 2 :] == long[at + 2 :])
