"""Keys that are one edit away from a known one: somebody meant that one.

Pure.
"""

from collections.abc import Iterable

LENGTH_MIN = 6
"""Shorter keys are one edit from too many words."""


def meant_key(key: str, known: Iterable[str]) -> str | None:
    """Return the known key that an unknown one stands for by one slip of the keyboard, if any."""
    if len(key) < LENGTH_MIN:
        return None
    return next((one for one in sorted(known) if is_one_edit(key, one)), None)


def is_one_edit(one: str, other: str) -> bool:
    """Return whether a letter was added, left out or replaced, or two neighbours were swapped."""
    if one == other or abs(len(one) - len(other)) > 1:
        return False
    short, long = sorted((one, other), key=len)
    at = next((i for i, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    if len(short) < len(long):
        return short[at:] == long[at + 1 :]
    is_swapped = short[at : at + 2] == long[at : at + 2][::-1]
    return short[at + 1 :] == long[at + 1 :] or (is_swapped and short[at + 2 :] == long[at + 2 :])
