"""Settings of a share consumer."""

import pytest

from ottla.model.errors import ConfigError
from ottla.model.settings.share_client import NOT_FOR_SHARE_GROUPS, ShareConsumerConfig


def test_kafkas_keys_have_their_effect() -> None:
    config = ShareConsumerConfig.from_kafka(
        {
            "bootstrap.servers": "localhost:9092",
            "group.id": "mail",
            "max.poll.records": 7,
            "share.acknowledgement.mode": "implicit",
            "share.acquire.mode": "batch_optimized",
        }
    )
    assert (config.group_id, config.poll_records_max) == ("mail", 7)
    assert config.share_acknowledgement_mode == "implicit"
    assert config.share_acquire_mode == "batch_optimized"


@pytest.mark.parametrize("key", NOT_FOR_SHARE_GROUPS)
def test_settings_of_other_consumers_are_refused_with_the_reason(key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ShareConsumerConfig.from_kafka({"group.id": "mail", key: "1"})
    assert f"{key} is not for share groups: {NOT_FOR_SHARE_GROUPS[key]}" in str(refused.value)


@pytest.mark.parametrize("key", ["max.poll.record", "enable.auto.offset.store"])
def test_unknown_settings_are_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        ShareConsumerConfig.from_kafka({"group.id": "mail", key: "1"})


def test_a_group_is_required() -> None:
    with pytest.raises(ConfigError, match=r"group\.id"):
        ShareConsumerConfig()


@pytest.mark.parametrize("name", ["share_acknowledgement_mode", "share_acquire_mode"])
def test_modes_are_kafkas(name: str) -> None:
    with pytest.raises(ConfigError, match="must be one of"):
        ShareConsumerConfig(group_id="g", **{name: "sometimes"})  # type: ignore[arg-type]  # a typo
