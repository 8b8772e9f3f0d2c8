"""Settings of share groups: the bounds of the cluster, and values outside of them."""

from typing import Any

import pytest

from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.settings.controller import load_controller_config
from ottla.model.settings.dynamic import check_texts
from ottla.model.settings.group_overrides import check_group_texts, group_settings_of
from ottla.model.settings.groups import GroupConfig, group_config_of
from ottla.model.settings.resources import ConfigKind
from ottla.model.settings.share_groups import ShareGroupConfig, ShareGroupSettings

CONFIG = GroupConfig()


def refusal(**texts: str) -> str:
    keys = {f"share.{key.replace('_', '.')}": text for key, text in texts.items()}
    with pytest.raises(RefusedError) as refused:
        check_group_texts(keys, CONFIG)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    return refused.value.message


def test_a_group_without_settings_has_those_of_the_cluster() -> None:
    config = GroupConfig(share=ShareGroupConfig(delivery_count_limit=7))
    assert group_settings_of({}, config).share == ShareGroupSettings(delivery_count_limit=7)


def test_a_group_may_not_leave_the_bounds_of_the_cluster() -> None:
    assert "group.share.max.delivery.count.limit" in refusal(delivery_count_limit="11")
    assert "group.share.min.record.lock.duration.ms" in refusal(record_lock_duration_ms="14999")
    assert "share.auto.offset.reset" in refusal(auto_offset_reset="none")
    check_group_texts({"share.delivery.count.limit": "10"}, CONFIG)


def test_a_stored_value_outside_of_later_bounds_counts_as_the_nearest_allowed_one() -> None:
    warnings: list[str] = []
    texts = {"share.delivery.count.limit": "20", "share.record.lock.duration.ms": "15000"}
    settings = group_settings_of(texts, CONFIG, warnings.append).share
    assert settings.delivery_count_limit == 10
    assert settings.record_lock_duration_ms == 15_000
    (warning,) = warnings
    assert "share.delivery.count.limit is 20" in warning
    assert "group.share.max.delivery.count.limit" in warning


@pytest.mark.parametrize(
    "given",
    [
        {"delivery_count_limit_max": 5, "delivery_count_limit": 6},
        {"heartbeat_interval_ms": 4_000},
        {"size_max": 300, "session_count_max": 299},
        {"assignors": ("uniform",)},
    ],
)
def test_settings_that_contradict_each_other_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ShareGroupConfig(**given)


def test_brokers_and_controllers_read_the_bounds_of_share_groups() -> None:
    texts = {"group.share.max.delivery.count.limit": "20", "no.such.key": "1"}
    config, unknown = group_config_of(texts)
    assert config.share.delivery_count_limit_max == 20
    assert unknown == {"no.such.key"}
    settings = {"node.id": "1", "controller.quorum.voters": "1@localhost:9093", **texts}
    controller, _unknown = load_controller_config(settings)
    assert controller.groups.share.delivery_count_limit_max == 20


@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        ("group.share.assignment.interval.ms", "15001", "less than or equal to group.share.max"),
        ("group.consumer.assignment.interval.ms", "99", "greater than or equal to group.consumer."),
    ],
)
def test_a_dynamic_assignment_interval_is_within_the_bounds_of_the_brokers(
    key: str, text: str, reason: str
) -> None:
    groups = GroupConfig(
        consumer_assignment_interval_ms_min=100, consumer_assignment_interval_ms=200
    )
    check_texts(ConfigKind.BROKER, {key: "200"}, {}, groups=groups)
    with pytest.raises(RefusedError, match=reason) as refused:
        check_texts(ConfigKind.BROKER, {key: text}, {}, groups=groups)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
