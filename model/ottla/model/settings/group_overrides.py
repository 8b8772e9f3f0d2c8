"""Settings of one group: the resource GROUP (KIP-848).

The defaults are the brokers' own `group.consumer.*` and `group.share.*` settings. Invariant:
WithinTheBounds (the setting of a group is between the minimum and the maximum that the brokers
set).
"""

from collections.abc import Callable, Mapping
from dataclasses import field, replace

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.settings.declare import Definition, allowed_texts, definitions, setting, values_of
from ottla.model.settings.groups import GroupConfig
from ottla.model.settings.share_groups import (
    ShareGroupSettings,
    capped,
    check_share_texts,
)
from ottla.model.values import frozen


@frozen(kw_only=True)
class GroupSettings:
    """Effective settings of one group: its own settings, and the brokers' defaults for all
    others."""

    session_timeout_ms: int = setting(
        45_000,
        key="consumer.session.timeout.ms",
        at_least=1,
        broker_keys=("group.consumer.session.timeout.ms",),
        doc="Time without a heartbeat after which a member of the consumer protocol is removed.",
    )
    heartbeat_interval_ms: int = setting(
        5_000,
        key="consumer.heartbeat.interval.ms",
        at_least=1,
        broker_keys=("group.consumer.heartbeat.interval.ms",),
        doc="Interval at which members of the consumer protocol must send heartbeats.",
    )
    assignment_interval_ms: int = setting(
        0,
        key="consumer.assignment.interval.ms",
        at_least=0,
        broker_keys=("group.consumer.assignment.interval.ms",),
        doc="Minimum interval between two assignments of the group.",
    )
    share: ShareGroupSettings = field(default_factory=ShareGroupSettings)
    """Settings that apply if the group is a share group."""


GROUP_DEFINITIONS: Mapping[str, Definition] = {
    **definitions(GroupSettings),
    **definitions(ShareGroupSettings),
}
"""Declarations of all settings of a group, by key."""


def group_settings_of(
    texts: Mapping[str, str],
    config: GroupConfig,
    warn: Callable[[str], None] = lambda _sentence: None,
) -> GroupSettings:
    """Return the effective settings of a group. `texts` are the settings of this group, and
    `config` contains the defaults.

    Invalid texts are ignored, because a release with other rules may have stored them. `warn` is
    called with one sentence for each value outside the bounds that the brokers set.
    """
    ours, _errors = allowed_texts(GROUP_DEFINITIONS, texts)
    values, _unknown = values_of(GroupSettings, ours)
    share_values, _unknown = values_of(ShareGroupSettings, ours)
    share, warnings = capped(share_values, config.share)
    for sentence in warnings:
        warn(sentence)
    return GroupSettings(
        **{
            "session_timeout_ms": config.consumer_session_timeout_ms,
            "heartbeat_interval_ms": config.consumer_heartbeat_interval_ms,
            "assignment_interval_ms": config.consumer_assignment_interval_ms,
            **values,
            "share": share,
        }
    )


def check_broker_intervals(texts: Mapping[str, str], config: GroupConfig) -> None:
    """Raise RefusedError(INVALID_REQUEST) if a dynamic broker setting of an assignment interval is
    outside the bounds in `config`."""
    for noun, part, field_name in (
        ("group.consumer", config, "consumer_assignment_interval_ms"),
        ("group.share", config.share, "assignment_interval_ms"),
    ):
        text = texts.get(f"{noun}.assignment.interval.ms")
        if text is None:
            continue
        value = int(text)
        relation = "greater" if value < getattr(part, f"{field_name}_min") else "less"
        bound = "min" if relation == "greater" else "max"
        if relation == "greater" or value > getattr(part, f"{field_name}_max"):
            raise RefusedError(
                ErrorCode.INVALID_REQUEST,
                f"{noun}.assignment.interval.ms must be {relation} than or equal to "
                f"{noun}.{bound}.assignment.interval.ms",
            )


def check_group_texts(texts: Mapping[str, str], config: GroupConfig) -> None:
    """Raise RefusedError(INVALID_CONFIG) if one of a group's settings is unknown or invalid."""
    unknown = sorted(set(texts) - set(GROUP_DEFINITIONS))
    if unknown:
        raise RefusedError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {unknown[0]}")
    _allowed, errors = allowed_texts(GROUP_DEFINITIONS, texts)
    if errors:
        raise RefusedError(ErrorCode.INVALID_CONFIG, str(next(iter(errors.values()))))
    settings = group_settings_of(texts, config)
    bounds = {
        "consumer.heartbeat.interval.ms": (
            config.consumer_heartbeat_interval_ms_min,
            config.consumer_heartbeat_interval_ms_max,
        ),
        "consumer.assignment.interval.ms": (
            config.consumer_assignment_interval_ms_min,
            config.consumer_assignment_interval_ms_max,
        ),
        "consumer.session.timeout.ms": (
            config.consumer_session_timeout_ms_min,
            config.consumer_session_timeout_ms_max,
        ),
    }
    for key, (lowest, highest) in bounds.items():
        value = getattr(settings, GROUP_DEFINITIONS[key].field_name)
        noun = key.removeprefix("consumer.")
        if value < lowest:
            raise RefusedError(
                ErrorCode.INVALID_CONFIG,
                f"{key} must be greater than or equal to group.consumer.min.{noun}",
            )
        if value > highest:
            raise RefusedError(
                ErrorCode.INVALID_CONFIG,
                f"{key} must be less than or equal to group.consumer.max.{noun}",
            )
    if settings.session_timeout_ms <= settings.heartbeat_interval_ms:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms",
        )
    shares, _unknown = values_of(ShareGroupSettings, texts)
    defaults, _warnings = capped({}, config.share)
    check_share_texts(replace(defaults, **shares), config.share)
