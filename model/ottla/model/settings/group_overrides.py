"""What one group may have for itself: the settings of the resource GROUP (KIP-848).

A group that does not say goes by what the brokers' own `group.consumer.*` say.  Invariant:
WithinTheBounds (what is set on a group lies between the minimum and the maximum of the cluster).
"""

from collections.abc import Mapping

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.settings.declare import Definition, allowed_texts, definitions, setting, values_of
from ottla.model.settings.groups import GroupConfig
from ottla.model.values import frozen


@frozen(kw_only=True)
class GroupSettings:
    """What the members of one group go by."""

    session_timeout_ms: int = setting(
        45_000,
        key="consumer.session.timeout.ms",
        at_least=1,
        broker_keys=("group.consumer.session.timeout.ms",),
        doc="How long a member of the consumer protocol may be silent before it is removed.",
    )
    heartbeat_interval_ms: int = setting(
        5_000,
        key="consumer.heartbeat.interval.ms",
        at_least=1,
        broker_keys=("group.consumer.heartbeat.interval.ms",),
        doc="How often members of the consumer protocol are told to send a heartbeat.",
    )
    assignment_interval_ms: int = setting(
        0,
        key="consumer.assignment.interval.ms",
        at_least=0,
        broker_keys=("group.consumer.assignment.interval.ms",),
        doc="The shortest time between two assignments of the group.",
    )


GROUP_DEFINITIONS: Mapping[str, Definition] = definitions(GroupSettings)
"""Every setting of a group by key."""


def group_settings_of(texts: Mapping[str, str], config: GroupConfig) -> GroupSettings:
    """Return what a group goes by on which `texts` are set.

    What no group can have is passed over: it may have been set under another release's rules.
    """
    ours, _errors = allowed_texts(GROUP_DEFINITIONS, texts)
    values, _unknown = values_of(GroupSettings, ours)
    return GroupSettings(
        **{
            "session_timeout_ms": config.consumer_session_timeout_ms,
            "heartbeat_interval_ms": config.consumer_heartbeat_interval_ms,
            "assignment_interval_ms": config.consumer_assignment_interval_ms,
            **values,
        }
    )


def check_group_texts(texts: Mapping[str, str], config: GroupConfig) -> None:
    """Refuse (INVALID_CONFIG) what may not be set on a group, all of it together."""
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
