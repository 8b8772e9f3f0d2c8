"""Parses numbers in paths and forms of pages. Pure."""

from ottla.model.errors import ConfigError

DIGITS_MAX = 9
"""Default maximum number of digits in a number, such as a partition or a node id."""


def number_in(text: str, *, digits_max: int = DIGITS_MAX) -> int | None:
    """Return the non-negative integer in a text, or None if the text is no such number. The length
    is checked first, because Python raises an error for integers of thousands of digits."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= digits_max
    return int(text) if is_number else None


def form_number(name: str, text: str, *, least: int = 0, digits_max: int = DIGITS_MAX) -> int:
    """Return the number in the value of a form's field. Raises ConfigError if the value is not a
    number or is less than `least`."""
    found = number_in(text.strip(), digits_max=digits_max)
    if found is None or found < least:
        raise ConfigError(name, f"is {text[:50]!r}; it must be a whole number from {least} on")
    return found
