"""DescribeConfigs: the values in force, and their sources."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ottla.metadata.persistent_map import PersistentMap
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId
from ottla.model.settings.broker import BrokerConfig
from ottla.node.admin import describe_configs
from ottla.wire.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)

Client = Any  # the class of the fixture, in conftest.py
NewClient = Callable[..., Client]


async def describe(
    client: Client, kind: int, name: str, keys: list[str] | None = None, version: int = 4
) -> Any:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        ],
        include_synonyms=True,
        include_documentation=version >= 3,
    )
    return (await client.ask(request, version)).results[0]


@pytest.mark.parametrize("version", range(1, 5))
async def test_a_topics_settings_come_with_their_source_and_synonyms(
    new_client: NewClient, version: int
) -> None:
    client = new_client()
    image = client.metadata.image
    configs = image.configs.set(
        (2, "orders"), PersistentMap({"min.insync.replicas": "2", "cleanup.policy": "compact"})
    ).set((4, ""), PersistentMap({"min.insync.replicas": "1"}))
    client.metadata.image = replace(image, configs=configs)
    result = await describe(client, 2, "orders", version=version)
    found = {config.name: config for config in result.configs}
    isr = found["min.insync.replicas"]
    assert (isr.value, isr.config_source, isr.read_only) == ("2", 1, False)
    assert [(s.name, s.value, s.source) for s in isr.synonyms] == [
        ("min.insync.replicas", "2", 1),
        ("min.insync.replicas", "1", 3),
        ("min.insync.replicas", "1", 5),
    ]
    assert (found["cleanup.policy"].value, found["cleanup.policy"].config_source) == ("compact", 1)
    segment = found["segment.bytes"]
    assert (segment.value, segment.config_source) == ("1073741824", 5)
    retention = found["retention.ms"]
    assert (retention.value, retention.config_source) == ("7200000", 4)
    assert retention.synonyms[0].name == "log.retention.hours"
    if version >= 3:
        assert retention.config_type == 5
        assert retention.documentation


@pytest.mark.parametrize(
    ("kind", "key", "source"), [(16, "interval.ms", 7), (32, "consumer.session.timeout.ms", 8)]
)
async def test_client_metrics_and_groups_have_sources_of_their_own(
    new_client: NewClient, kind: int, key: str, source: int
) -> None:
    """Kafka's ConfigSource: CLIENT_METRICS_CONFIG 7, GROUP_CONFIG 8."""
    client = new_client()
    configs = {(kind, "mine"): PersistentMap({key: "50000"})}
    client.metadata.image = replace(client.metadata.image, configs=PersistentMap(configs))
    found = {one.name: one for one in (await describe(client, kind, "mine")).configs}
    assert (found[key].value, found[key].config_source) == ("50000", source)
    own, *default = found[key].synonyms
    assert (own.name, own.value, own.source) == (key, "50000", source)
    assert [one.source for one in default] == ([5] if kind == 32 else [])
    assert {one.config_source for one in found.values() if one.name != key} == {5}
    assert not any(one.read_only for one in found.values())


async def test_a_group_without_settings_has_those_of_the_brokers_file(
    new_client: NewClient,
) -> None:
    texts = {"group.consumer.session.timeout.ms": "46000"}
    client = new_client(BrokerConfig(node_id=NodeId(1), texts=texts))
    found = (await describe(client, 32, "g")).configs
    values = {one.name: (one.value, one.config_source, one.config_type) for one in found}
    assert {name: one for name, one in values.items() if name.startswith("consumer.")} == {
        "consumer.session.timeout.ms": ("46000", 4, 3),
        "consumer.heartbeat.interval.ms": ("5000", 5, 3),
        "consumer.assignment.interval.ms": ("0", 5, 3),
    }
    assert values["share.record.lock.duration.ms"] == ("30000", 5, 3)
    synonyms = {one.name: one.synonyms for one in found}
    first = synonyms["consumer.session.timeout.ms"][0]
    assert first.name == "group.consumer.session.timeout.ms"


async def test_a_brokers_loggers_are_described_with_the_level_in_force(
    new_client: NewClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = logging.getLogger("ottla.test.quiet")
    # Nodes that ran in this process before may have left levels of their own.
    for logger in (logging.root, logging.getLogger("ottla"), quiet.parent, quiet):
        assert logger is not None
        level = logging.WARNING if logger is logging.root else logging.NOTSET
        monkeypatch.setattr(logger, "level", level)
    result = await describe(new_client(), 8, "1")
    found = {one.name: (one.value, one.config_source) for one in result.configs}
    assert found["root"] == ("WARN", 6)
    assert found["ottla.test.quiet"] == ("WARN", 6)
    assert all(name == "root" or name.split(".")[0] == "ottla" for name in found)


async def test_a_brokers_setting_tells_every_place_that_sets_it(new_client: NewClient) -> None:
    client = new_client(BrokerConfig(node_id=NodeId(1), texts={"message.max.bytes": "3"}))
    configs = {
        (4, "1"): PersistentMap({"message.max.bytes": "1"}),
        (4, ""): PersistentMap({"message.max.bytes": "2"}),
    }
    client.metadata.image = replace(client.metadata.image, configs=PersistentMap(configs))
    (found,) = (await describe(client, 4, "1", ["message.max.bytes"])).configs
    assert (found.value, found.config_source, found.read_only) == ("1", 2, False)
    assert [(s.value, s.source) for s in found.synonyms] == [
        ("1", 2),
        ("2", 3),
        ("3", 4),
        ("1048588", 5),
    ]
    (default,) = (await describe(client, 4, "")).configs
    assert (default.value, default.config_source) == ("2", 3)


async def test_only_the_requested_settings_are_described(new_client: NewClient) -> None:
    result = await describe(new_client(), 2, "orders", ["retention.ms", "nonsense"])
    assert [config.name for config in result.configs] == ["retention.ms"]


async def test_a_brokers_settings_say_which_cannot_be_changed_while_it_runs(
    new_client: NewClient,
) -> None:
    result = await describe(new_client(), 4, "1")
    found = {config.name: config for config in result.configs}
    assert found["num.partitions"].value == "3"
    assert found["num.partitions"].config_source == 4
    assert found["num.partitions"].read_only
    assert not found["log.retention.ms"].read_only


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (2, "nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (2, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (4, "2", ErrorCode.INVALID_REQUEST),
        (4, "one", ErrorCode.INVALID_REQUEST),
        (8, "2", ErrorCode.INVALID_REQUEST),
        (8, "", ErrorCode.INVALID_REQUEST),
        (16, "", ErrorCode.INVALID_REQUEST),
        (32, "", ErrorCode.INVALID_REQUEST),
        (99, "1", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_resource_that_cannot_be_described_is_refused_by_itself(
    new_client: NewClient, kind: int, name: str, code: int
) -> None:
    result = await describe(new_client(), kind, name)
    assert (result.error_code, result.configs) == (code, [])


async def test_a_resource_named_often_is_described_once(new_client: NewClient) -> None:
    def named(*keys: str) -> DescribeConfigsResource:
        return DescribeConfigsResource(
            resource_type=2, resource_name="orders", configuration_keys=list(keys) or None
        )

    some = [named("retention.ms"), named("cleanup.policy"), named("retention.ms")] * 500
    answer = await new_client().ask(DescribeConfigsRequest(resources=some), 4)
    (result,) = answer.results
    assert sorted(found.name for found in result.configs) == ["cleanup.policy", "retention.ms"]
    answer = await new_client().ask(DescribeConfigsRequest(resources=[*some, named()]), 4)
    assert len(answer.results[0].configs) > 10, "no keys mean all of them"


async def test_many_resources_are_described_in_steps(new_client: NewClient) -> None:
    asked = [
        DescribeConfigsResource(resource_type=32, resource_name=f"g{number}")
        for number in range(300)
    ]
    client = new_client()
    answer = await client.ask(DescribeConfigsRequest(resources=asked), 4)
    assert client.stepped_count == 1
    assert [result.resource_name for result in answer.results] == [f"g{n}" for n in range(300)]
    assert all(result.error_code == 0 for result in answer.results)


async def test_an_answer_is_not_built_beyond_its_bound(
    new_client: NewClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(describe_configs, "ANSWER_BYTES_MAX", 20_000)
    asked = [
        DescribeConfigsResource(resource_type=32, resource_name=f"g{number}")
        for number in range(300)
    ]
    answer = await new_client().ask(
        DescribeConfigsRequest(resources=asked, include_documentation=True), 4
    )
    codes = [result.error_code for result in answer.results]
    assert len(codes) == 300
    assert codes[0] == 0
    assert codes[-1] == ErrorCode.INVALID_REQUEST


async def test_a_broker_id_that_is_no_int32_is_refused(new_client: NewClient) -> None:
    asked = DescribeConfigsResource(resource_type=4, resource_name="9" * 5_000)
    answer = await new_client().ask(DescribeConfigsRequest(resources=[asked]), 4)
    assert answer.results[0].error_code == ErrorCode.INVALID_REQUEST


async def test_very_many_keys_of_a_resource_are_taken_in_steps(new_client: NewClient) -> None:
    keys = [*(f"key-{number}" for number in range(12_000)), "retention.ms"]
    asked = DescribeConfigsResource(
        resource_type=2, resource_name="orders", configuration_keys=keys
    )
    client = new_client()
    answer = await client.ask(DescribeConfigsRequest(resources=[asked]), 4)
    assert client.stepped_count == 1
    assert [found.name for found in answer.results[0].configs] == ["retention.ms"]
