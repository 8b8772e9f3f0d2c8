"""What clients are asked to report: the settings of the resource CLIENT_METRICS (KIP-714).

A subscription is a name with three settings: which metrics, how often, and of which clients.
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
"""What a subscription may choose clients by."""


@frozen(kw_only=True)
class SubscriptionConfig:
    """What one subscription asks for."""

    metrics: tuple[str, ...] = setting(
        (),
        key="metrics",
        doc="Prefixes of the names of the metrics that are wanted; * for all of them.",
    )
    interval_ms: int = setting(
        300_000,
        key="interval.ms",
        doc=f"How often clients push, {INTERVAL_MS_MIN} to {INTERVAL_MS_MAX}.",
    )
    match: tuple[str, ...] = setting(
        (),
        key="match",
        doc="Of which clients: NAME=REGULAR EXPRESSION, all of which must hold; empty is every "
        "client. Names are client_instance_id, client_id, client_software_name, "
        "client_software_version, client_source_address and client_source_port. The expressions "
        "have RE2's syntax, so there is no look-around.",
    )


CLIENT_METRICS_DEFINITIONS: Mapping[str, Definition] = definitions(SubscriptionConfig)
"""Every setting of a subscription by key."""


def check_subscription_texts(texts: Mapping[str, str]) -> None:
    """Refuse what a subscription may not have: what is not allowed is an INVALID_REQUEST.

    What cannot be read, or a client chosen by what it does not have, is an INVALID_CONFIG.
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
"""Says of a text whether a pattern matches the whole of it: what it returns is true or false."""

PATTERN_CHARS_MAX = 1_024
"""Less does not hold a list of some dozen client ids; RE2 needs milliseconds to refuse more."""

PROGRAM_BYTES_MAX = 64 << 10
"""Memory of one compiled pattern.  With less, `.{200}` is refused; with more, one can be written
that takes milliseconds a client."""


_TOO_MANY_TIMES = re.compile(r"(?<!\\)\{(?:\d+,)?\d{5}")
"""A repetition whose number RE2 does not read as one: it takes the braces for themselves."""


@cache
def _options() -> "re2.Options":
    # Loaded with the first pattern: a process without one does without the library.
    import re2

    options = re2.Options()
    options.max_mem = PROGRAM_BYTES_MAX
    options.never_capture = True
    options.log_errors = False
    return options


def match_patterns(match: Sequence[str]) -> dict[str, Holds]:
    """Return the pattern for each thing that clients are chosen by.

    What is matched is what strangers call themselves, and a backtracking engine can be made to hang
    by a text or by a pattern: so it is RE2, in time linear in the text.  Raises RefusedError with
    INVALID_CONFIG for a pattern that RE2 cannot read.
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
