"""Subscriptions to the metrics of clients: the settings of the resource CLIENT_METRICS (KIP-714).

A subscription has a name and three settings: the metrics, the push interval, and the clients that
it matches.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.settings.declare import Definition, definitions, setting
from ottla.model.values import frozen

if TYPE_CHECKING:
    import re2

INTERVAL_MS_MIN = 100
INTERVAL_MS_MAX = 3_600_000

MATCHABLE = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
"""Client properties by which a subscription can select clients, such as the client id."""


@frozen(kw_only=True)
class SubscriptionConfig:
    """Settings of one subscription to the metrics of clients: the metrics, the push interval, and
    the clients that it matches."""

    metrics: tuple[str, ...] = setting(
        (),
        key="metrics",
        doc="Prefixes of the requested metric names; * for all metrics.",
    )
    interval_ms: int = setting(
        300_000,
        key="interval.ms",
        doc=f"How often clients push, {INTERVAL_MS_MIN} to {INTERVAL_MS_MAX}.",
    )
    match: tuple[str, ...] = setting(
        (),
        key="match",
        doc="Clients that are selected, as NAME=REGULAR EXPRESSION, all of which must match; empty "
        "is every client. Names are client_instance_id, client_id, client_software_name, "
        "client_software_version, client_source_address and client_source_port. The expressions "
        "have RE2's syntax, so there is no look-around.",
    )


CLIENT_METRICS_DEFINITIONS: Mapping[str, Definition] = definitions(SubscriptionConfig)
"""Declarations of all settings of a subscription, by key."""


def check_subscription_texts(texts: Mapping[str, str]) -> None:
    """Raise RefusedError if a setting of a subscription to client metrics is invalid.

    The error code is INVALID_REQUEST for an unknown key or an interval out of bounds. It is
    INVALID_CONFIG for a malformed value or an invalid `match`.
    """
    for key, text in texts.items():
        definition = CLIENT_METRICS_DEFINITIONS.get(key)
        if definition is None:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {key}"
            )
        try:
            value = definition.value_of(text)
        except ConfigError as error:
            raise RefusedError(ErrorCode.INVALID_CONFIG, str(error)) from None
        if key == "interval.ms" and not INTERVAL_MS_MIN <= value <= INTERVAL_MS_MAX:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST,
                f"Invalid value {value} for interval.ms, "
                f"interval must be between {INTERVAL_MS_MIN} and {INTERVAL_MS_MAX} (1 hour)",
            )
        if key == "match":
            match_patterns(value)


Holds = Callable[[str], object]
"""Function of a compiled pattern. It returns a true value if the pattern matches the whole text."""

PATTERN_CHARS_MAX = 1_024
"""Maximum length of a pattern, in characters. A smaller limit would have no room for a list of a
dozen client ids. With a larger limit, RE2 could need milliseconds to refuse a pattern."""

PROGRAM_BYTES_MAX = 64 << 10
"""Maximum memory of one compiled pattern, in bytes. With a smaller limit, `.{200}` would be
refused. With a larger limit, a pattern can take milliseconds per client."""


_TOO_MANY_TIMES = re.compile(r"(?<!\\)\{(?:\d+,)?\d{5}")
"""Pattern that finds repetition counts with too many digits for RE2, which would interpret the
braces as literal characters."""


@cache
def _options() -> "re2.Options":
    # Imported at the first pattern: a process without patterns does not need the library.
    import re2

    options = re2.Options()
    options.max_mem = PROGRAM_BYTES_MAX
    options.never_capture = True
    options.log_errors = False
    return options


def match_patterns(match: Sequence[str]) -> dict[str, Holds]:
    """Return one compiled pattern for each client property in the setting `match`.

    Clients choose the texts that the patterns are matched against. A backtracking engine could hang
    on such a text or pattern. RE2 is used instead, because its running time is linear in the length
    of the text. Raises RefusedError(INVALID_CONFIG) for a pattern that RE2 rejects.
    """
    if not match:
        return {}
    import re2

    patterns: dict[str, Holds] = {}
    for part in match:
        name, equals, pattern = (text.strip() for text in part.partition("="))
        try:
            if name not in MATCHABLE or not (equals and pattern) or "=" in pattern:
                raise ValueError(part)
            if len(pattern) > PATTERN_CHARS_MAX or _TOO_MANY_TIMES.search(pattern):
                raise ValueError(part)
            patterns[name] = re2.compile(pattern, _options()).fullmatch
        except (ValueError, re2.error):
            raise RefusedError(
                ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {part}"
            ) from None
    return patterns
