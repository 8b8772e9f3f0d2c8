"""What clients are asked to report: the settings of the resource CLIENT_METRICS (KIP-714).

A subscription is a name with three settings: which metrics, how often, and of which clients.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.settings.declare import Definition, definitions, setting

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


@dataclass(frozen=True, slots=True, kw_only=True)
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
        "client_software_version, client_source_address and client_source_port.",
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


def match_patterns(match: Sequence[str]) -> dict[str, re.Pattern[str]]:
    """Return the pattern for each thing that clients are chosen by."""
    patterns = {}
    for part in match:
        name, equals, pattern = (text.strip() for text in part.partition("="))
        try:
            if name not in MATCHABLE or not (equals and pattern) or "=" in pattern:
                raise ValueError(part)
            patterns[name] = re.compile(pattern)
        except (ValueError, re.error):
            raise RefusedError(
                ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {part}"
            ) from None
    return patterns
