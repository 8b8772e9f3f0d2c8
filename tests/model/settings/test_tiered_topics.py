"""Settings of tiered topics are checked as in Kafka 4.4, with its messages."""

from collections.abc import Mapping

import pytest

from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.settings.broker import load_broker_config
from ottla.model.settings.storage.tier import TierConfig
from ottla.model.settings.storage.tiered_topics import check_tiering

TIERED = {"remote.storage.enable": "true"}
CLOSED = {**TIERED, "remote.log.copy.disable": "true"}


def refusal(
    after: Mapping[str, str | None],
    *,
    before: Mapping[str, str | None] | None = None,
    defaults: dict[str, str] | None = None,
    is_enabled: bool = True,
) -> str:
    try:
        check_tiering(before or {}, after, lambda: defaults or {}, is_system_enabled=is_enabled)
    except RefusedError as error:
        assert error.code is ErrorCode.INVALID_CONFIG
        assert error.message is not None
        return error.message
    return ""


@pytest.mark.parametrize(
    "after",
    [
        TIERED,
        {**TIERED, "cleanup.policy": ""},
        {**TIERED, "retention.ms": "-1", "local.retention.ms": "-1"},
        {**TIERED, "retention.ms": "70", "local.retention.ms": "70", "remote.copy.lag.ms": "70"},
        {**TIERED, "retention.bytes": "70", "local.retention.bytes": "0"},
        {**TIERED, "remote.copy.lag.bytes": "9"},
        {**TIERED, "retention.ms": "70", "local.retention.ms": "0", "remote.copy.lag.ms": "-1"},
        {**CLOSED, "local.retention.ms": "-2"},
        {**CLOSED, "retention.ms": "70", "local.retention.ms": "70"},
        {"local.retention.ms": "-1", "cleanup.policy": "compact"},
        {"remote.storage.enable": "false", "remote.log.copy.disable": "true"},
    ],
)
def test_settings_that_agree_are_accepted(after: dict[str, str | None]) -> None:
    assert refusal(after) == ""


@pytest.mark.parametrize(
    ("after", "sentence"),
    [
        ({**TIERED, "cleanup.policy": "compact"}, "Remote log storage only supports topics with"),
        ({**TIERED, "cleanup.policy": "compact,delete"}, "Remote log storage only supports topics"),
        (
            {**TIERED, "retention.ms": "70", "local.retention.ms": "-1"},
            "Invalid value -1 for configuration local.retention.ms: "
            "Value must not be -1 as retention.ms value is set as 70.",
        ),
        (
            {**TIERED, "retention.bytes": "70", "local.retention.bytes": "71"},
            "Invalid value 71 for configuration local.retention.bytes: "
            "Value must not be more than retention.bytes property value: 70",
        ),
        (
            {**TIERED, "retention.ms": "70", "remote.copy.lag.ms": "71"},
            "Invalid value 71 for configuration remote.copy.lag.ms: "
            "Value must not exceed local.retention.ms (effective value: 70)",
        ),
        (
            {**TIERED, "local.retention.bytes": "7", "remote.copy.lag.bytes": "8"},
            "Invalid value 8 for configuration remote.copy.lag.bytes: "
            "Value must not exceed local.retention.bytes (effective value: 7)",
        ),
        (
            {**CLOSED, "retention.ms": "70", "local.retention.ms": "69"},
            "When `remote.log.copy.disable` is set to true, the `local.retention.ms` and "
            "`retention.ms` must be set to the identical value",
        ),
        (
            {**CLOSED, "local.retention.bytes": "70"},
            "When `remote.log.copy.disable` is set to true, the `local.retention.bytes` and",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    after: dict[str, str | None], sentence: str
) -> None:
    assert refusal(after).startswith(sentence)


def test_the_settings_of_other_topics_count_as_the_topic_s_own() -> None:
    defaults = {"retention.ms": "70", "local.retention.ms": "9"}
    assert refusal({**TIERED, "local.retention.ms": "71"}, defaults=defaults)
    assert refusal({**TIERED, "remote.copy.lag.ms": "10"}, defaults=defaults)
    assert refusal({**TIERED, "retention.ms": "8"}, defaults=defaults)
    assert not refusal(TIERED, defaults=defaults)


def test_no_topic_is_tiered_where_the_brokers_have_no_tiered_storage() -> None:
    sentence = refusal(TIERED, is_enabled=False)
    assert sentence.startswith("Tiered Storage functionality is disabled in the broker.")
    assert not refusal({"remote.storage.enable": "false"}, is_enabled=False)


def test_copies_are_deleted_when_a_topic_is_tiered_no_longer() -> None:
    off: dict[str, str | None] = {"remote.storage.enable": "false"}
    assert refusal(off, before={**TIERED}).startswith("It is invalid to disable remote storage")
    assert refusal({}, before={**TIERED}), "a removed setting is its default"
    assert not refusal({**off, "remote.log.delete.on.disable": "true"}, before={**TIERED})
    assert not refusal(off, before=off)


def test_a_broker_with_tiered_storage_names_its_object_store() -> None:
    with pytest.raises(ConfigError, match=r"remote\.log\.storage\.uri"):
        TierConfig(is_enabled=True)
    texts = {
        "node.id": "1",
        "controller.quorum.voters": "3@127.0.0.1:9093",
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.uri": "s3://bucket/prefix",
        "remote.log.storage.secret.access.key": "hidden",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
    }
    config, unknown = load_broker_config(texts)
    assert unknown == set()
    assert config.tier.is_enabled
    assert config.tier.metadata_replication_factor == 1
    assert "hidden" not in repr(config)
