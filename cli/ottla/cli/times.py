"""Parses durations in the forms that people write on a command line."""

import re

from ottla.model.errors import ConfigError
from ottla.model.points_in_time import UNITS_MS


def parse_duration(option: str, text: str) -> float:
    """Parse a duration such as 90s, 10m or 1h, and return it in seconds. Raises ConfigError, which
    names the option `option`, if the text is not a duration."""
    found = re.fullmatch(r"(\d+)(ms|s|m|h|d|w)", text)
    if found is None:
        raise ConfigError(option, f"is {text!r}; it must be a duration such as 90s, 10m or 1h")
    return int(found[1]) * UNITS_MS[found[2]] / 1_000
