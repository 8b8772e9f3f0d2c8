"""Checks of the settings of tiered topics. The rules and messages are the same as in Kafka's
LogConfig. Pure."""

from collections.abc import Callable, Mapping

from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.settings.storage.topic import (
    REMOTE_STORAGE_ENABLE,
    SAME_AS_RETENTION,
    TopicConfig,
)

NOT_ENABLED = (
    "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote"
    " log storage."
)
TIERED_TOPICS_LEFT = (
    "You have to delete all topics with the property remote.storage.enable=true before disabling"
    " tiered storage cluster-wide"
)
ONLY_DELETE = (
    "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an"
    " empty list."
)
NOT_WITHOUT_DELETION = (
    "It is invalid to disable remote storage without deleting remote data. If you want to keep the"
    " remote data and turn to read only, please set"
    " `remote.storage.enable=true,remote.log.copy.disable=true`. If you want to disable remote"
    " storage and delete all remote data, please set"
    " `remote.storage.enable=false,remote.log.delete.on.disable=true`."
)
IDENTICAL_RETENTION = (
    "When `remote.log.copy.disable` is set to true, the `local.retention.{0}` and `retention.{0}`"
    " must be set to the identical value because there will be no"
    " more logs copied to the remote storage."
)


def is_tiered_text(text: str | None) -> bool:
    """Return whether the text is a value of `remote.storage.enable` that enables tiered storage."""
    return text is not None and text.strip().lower() == "true"


def check_tiering(
    before: Mapping[str, str | None],
    after: Mapping[str, str | None],
    defaults: Callable[[], Mapping[str, str]],
    *,
    is_system_enabled: bool,
) -> None:
    """Raise RefusedError(INVALID_CONFIG) if a change of a topic's settings for tiered storage is
    not allowed: they contradict each other, or the brokers have no tiered storage.

    `before` and `after` are the valid settings of the topic itself, before and after the change.
    `defaults` returns the settings of a topic that has none of its own. It is called for tiered
    topics only.
    """
    if is_tiered_text(after.get(REMOTE_STORAGE_ENABLE)):
        if not is_system_enabled:
            raise _refusal(NOT_ENABLED)
        own = {key: text for key, text in after.items() if text is not None}
        try:
            topic = TopicConfig.from_texts(own, defaults())
        except ConfigError as error:
            raise _refusal(str(error)) from None
        check_tiered_topic(topic)
    elif is_tiered_text(before.get(REMOTE_STORAGE_ENABLE)) and not is_tiered_text(
        after.get("remote.log.delete.on.disable")
    ):
        raise _refusal(NOT_WITHOUT_DELETION)


def check_tiered_topic(topic: TopicConfig) -> None:
    """Raise RefusedError(INVALID_CONFIG) if the settings of a tiered topic contradict each
    other."""
    if topic.cleanup_policy not in ((), ("delete",)):
        raise _refusal(ONLY_DELETE)
    for unit, total, local, lag in (
        ("bytes", topic.retention_bytes, topic.local_retention_bytes, topic.remote_copy_lag_bytes),
        ("ms", topic.retention_ms, topic.local_retention_ms, topic.remote_copy_lag_ms),
    ):
        _check_local_retention(unit, total, local)
        in_force = total if local == SAME_AS_RETENTION else local
        if lag > 0 and 0 <= in_force < lag:
            why = f"Value must not exceed local.retention.{unit} (effective value: {in_force})"
            raise _invalid(f"remote.copy.lag.{unit}", lag, why)
        if topic.remote_log_copy_disable and local not in (SAME_AS_RETENTION, total):
            raise _refusal(IDENTICAL_RETENTION.format(unit))


def _check_local_retention(unit: str, total: int, local: int) -> None:
    if total < 0 or local == SAME_AS_RETENTION:
        return
    key = f"local.retention.{unit}"
    if local == -1:
        raise _invalid(
            key, local, f"Value must not be -1 as retention.{unit} value is set as {total}."
        )
    if local > total:
        why = f"Value must not be more than retention.{unit} property value: {total}"
        raise _invalid(key, local, why)


def _invalid(key: str, value: int, why: str) -> RefusedError:
    return _refusal(f"Invalid value {value} for configuration {key}: {why}")


def _refusal(message: str) -> RefusedError:
    return RefusedError(ErrorCode.INVALID_CONFIG, message)
