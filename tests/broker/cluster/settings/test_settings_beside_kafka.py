"""Our settings compared with those of Kafka 4.4.0: accepted values, error codes, defaults,
synonyms.

`kafka_settings/kafka-4.4.0.json` holds Kafka's answers. For each key it has the values that were
tried, common ones of the type under `values` and `further` ones at the key's own bounds, and the
answers: `file` and `controller_file` have 1 where a file may hold the value, `codes` the error
codes of IncrementalAlterConfigs, for the broker itself and for all brokers, or for the resource. If
OTTLA_KAFKA_JARS names a directory with the jars of Kafka's release, Kafka is asked again.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ottla.jepsen.in_memory_controller import InMemoryController
from ottla.model.errors import ConfigError
from ottla.model.ids import NodeId
from ottla.model.settings.broker import BrokerConfig, load_broker_config
from ottla.model.settings.controller import load_controller_config
from ottla.model.settings.dynamic import broker_definitions, described_definitions
from ottla.model.settings.kafka_keys import UNKEPT_PROMISES, idle_definitions
from ottla.model.settings.security.security_keys import is_of_security_family, reason_refused
from ottla.model.settings.storage.topic import TOPIC_DEFINITIONS
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from ottla.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

Client = Any  # the class of the fixture, in conftest.py
NewClient = Callable[..., Client]
Difference = tuple[str, str]
"""A key, and a value that one of both accepts."""

HERE = Path(__file__).parent / "kafka_settings"
ANSWERS = HERE / "kafka-4.4.0.json"
PROGRAM = HERE / "PrintSettings.java"
JARS = "OTTLA_KAFKA_JARS"
KAFKA = json.loads(ANSWERS.read_text())

FILES: Mapping[str, tuple[Callable[..., Any], Mapping[str, str]]] = {
    "file": (
        load_broker_config,
        {
            "process.roles": "broker",
            "node.id": "1",
            "log.dirs": "/data",
            "listeners": "PLAINTEXT://127.0.0.1:9092",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "3@127.0.0.1:9093",
        },
    ),
    "controller_file": (
        load_controller_config,
        {
            "process.roles": "controller",
            "node.id": "3",
            "log.dirs": "/data",
            "listeners": "CONTROLLER://127.0.0.1:9093",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "3@127.0.0.1:9093",
        },
    ),
}
"""The smallest file of each role: how it is loaded, and its settings, as in PrintSettings."""

RESOURCES: Mapping[str, tuple[tuple[int, str], ...]] = {
    "broker": ((4, "1"), (4, "")),
    "topic": ((2, "topic"),),
    "group": ((32, "name"),),
    "client-metrics": ((16, "name"),),
}
"""The resources that were asked for, in the order of their codes."""

BLANK = "a blank value is the same as none in our files"
IDLE = (
    "without meaning here: only the bounds of the key itself are checked, not other keys beside it"
)
SECURITY = "served or refused with a reason, never ignored; see test_every_security_key.py"
NEGATIVE = "a time or a count below the bound has no meaning, or is a busy loop"
JAVA_NUMBER = "Java's suffixes, hexadecimal digits and NaN are no numbers here"
BESIDE_RETENTION = (
    "compared with the other settings of a topic when it is tiered, as the topic's own"
)

WIDER_FILES = {
    "group.consumer.max.assignment.interval.ms": "the most is not below the default, which is 0",
    "controller.listener.names": "controllers are found by controller.quorum.voters",
    "inter.broker.listener.name": BLANK,
    "listener.security.protocol.map": BLANK,
    "log.dir": "log.dirs counts where both are set",
    "metadata.log.segment.bytes": "a smaller segment of the metadata log rolls sooner, in tests",
    "process.roles": "the commands that start a node check it: 'ottla broker', 'ottla controller'",
    "security.inter.broker.protocol": f"{BLANK}; either case is read",
    "ssl.allow.*.changes": BLANK,
    "ssl.client.auth": BLANK,
}
"""Values that our files may have and Kafka's may not, by key, with the reason."""

NARROWER_FILES = {
    "sasl.*": SECURITY,
    "ssl.*": SECURITY,
    "security.*": SECURITY,
    "delegation.token.*": SECURITY,
    "connection.failed.authentication.delay.ms": SECURITY,
    "connections.max.reauth.ms": SECURITY,
    "authorizer.class.name": SECURITY,
    "config.providers": UNKEPT_PROMISES["config.providers"],
    "remote.log.storage.system.enable": "it needs remote.log.storage.uri",
    "broker.heartbeat.interval.ms": f"{NEGATIVE}; it is below broker.session.timeout.ms",
    "broker.session.timeout.ms": NEGATIVE,
    "controller.quorum.*.ms": NEGATIVE,
    "default.replication.factor": NEGATIVE,
    "group.initial.rebalance.delay.ms": NEGATIVE,
    "group.consumer.min.assignment.interval.ms": "the least is not above the default, which is 0",
    "group.m??.session.timeout.ms": f"{NEGATIVE}; the least is not above the most",
    "initial.broker.registration.timeout.ms": NEGATIVE,
    "log.dirs": "a directory is named once",
    "log.cleaner.io.*": f"{NEGATIVE}; {JAVA_NUMBER}",
    "log.cleaner.min.cleanable.ratio": JAVA_NUMBER,
    "log.flush.*.ms": NEGATIVE,
    "metadata.log.segment.ms": NEGATIVE,
    "num.replica.alter.log.dirs.threads": NEGATIVE,
    "offsets.topic.segment.bytes": "bounds of segment.bytes, as the topic's own",
    "transaction.state.log.segment.bytes": "bounds of segment.bytes, as the topic's own",
    "queued.max.request.bytes": "no request could be read",
    "remote.log.manager.task.retry.jitter": JAVA_NUMBER,
    "replica.*": NEGATIVE,
    "request.timeout.ms": NEGATIVE,
    "*.replication.throttled.rate": "Kafka reads it at run time only, and anything in a file",
}
"""Values that Kafka's files may have and ours may not, by key, with the reason."""

WIDER_CHANGES = {
    "log.local.retention.*": BESIDE_RETENTION,
    "log.remote.copy.lag.*": BESIDE_RETENTION,
    "metric.reporters": "no class of Java can be loaded; stored, and warned about",
}
"""Values that our brokers accept while they run and Kafka's do not."""

NARROWER_CHANGES = {
    "sasl.*": SECURITY,
    "ssl.*": SECURITY,
    "config.providers": UNKEPT_PROMISES["config.providers"],
    "log.cleaner.io.*": f"{NEGATIVE}; {JAVA_NUMBER}",
    "*.cleanable*.ratio": JAVA_NUMBER,
    "log.flush.interval.ms": NEGATIVE,
    "internal.segment.bytes": "of Kafka's own tests",
    "share.assignor.offload.enable": "internal, and without effect in Kafka 4.4",
    "streams.*": "groups of Kafka Streams are not served",
    "consumer.assignor.offload.enable": "assignments are computed on the coordinator's loop",
}
"""Values that Kafka's brokers accept while they run and ours do not."""


def values_of(kind: str, key: str) -> list[str]:
    kafka = KAFKA[kind][key]
    values: list[str] = KAFKA["values"][kafka["type"]] + kafka.get("further", [])
    return values


def explained(found: set[Difference], reasons: Mapping[str, str]) -> None:
    """Fail for a difference without a reason, and for a reason without a difference."""
    keys = {key for key, _ in found}
    unexplained = {
        one for one in found if not any(fnmatchcase(one[0], pattern) for pattern in reasons)
    }
    assert unexplained == set()
    idle = idle_definitions().keys()
    patterns = {pattern for pattern in reasons if pattern not in idle}
    assert {one for one in patterns if not any(fnmatchcase(key, one) for key in keys)} == set()


@cache
def file_differences() -> tuple[tuple[Difference, bool], ...]:
    """Return the values that only one of an ottla file and a Kafka file accepts, and whether it is
    ottla's."""
    return tuple(_compared_files())


def _compared_files() -> Iterator[tuple[Difference, bool]]:
    for role, (load, base) in FILES.items():
        for key, kafka in KAFKA["broker"].items():
            for value, answer in zip(values_of("broker", key), kafka[role], strict=True):
                try:
                    _, unknown = load({**base, key: value})
                except ConfigError:
                    accepted = False
                else:
                    accepted = True
                    if key in unknown and key not in idle_definitions():
                        continue  # a key of the other role, which is not read
                if accepted != (answer == "1"):
                    yield (key, value), accepted


def test_no_file_is_accepted_that_kafka_refuses_without_a_reason() -> None:
    found = {
        one for one, accepted in file_differences() if accepted and one[0] not in idle_definitions()
    }
    explained(found, WIDER_FILES)


def test_no_file_is_refused_that_kafka_accepts_without_a_reason() -> None:
    explained({one for one, accepted in file_differences() if not accepted}, NARROWER_FILES)


@pytest.fixture
def client(new_client: NewClient) -> Client:
    """A client of a broker with a deciding controller."""
    cluster = InMemoryController()
    cluster.start(1)
    topic = CreatableTopic(name="topic", num_partitions=1, replication_factor=1)
    cluster.forward(CreateTopicsRequest(topics=[topic]))
    texts = {"log.dirs": "/data"}
    client = new_client(BrokerConfig(node_id=NodeId(1), log_dirs=("/data",), texts=texts))
    client.controller.answer = cluster.forward
    return client


async def code_of(client: Client, resource: tuple[int, str], key: str, value: str) -> int:
    change = AlterableConfig(name=key, config_operation=0, value=value)
    asked = AlterConfigsResource(
        resource_type=resource[0], resource_name=resource[1], configs=[change]
    )
    request = IncrementalAlterConfigsRequest(resources=[asked], validate_only=True)
    code: int = (await client.ask(request, 1)).responses[0].error_code
    return code


async def test_every_change_is_answered_as_kafka_answers_or_has_a_reason(client: Client) -> None:
    wider: set[Difference] = set()
    narrower: set[Difference] = set()
    other_codes = {}
    for kind, resources in RESOURCES.items():
        for key, kafka in KAFKA[kind].items():
            values = values_of(kind, key)
            for resource, codes in zip(resources, kafka["codes"], strict=True):
                theirs = codes if isinstance(codes, list) else [codes] * len(values)
                for value, expected in zip(values, theirs, strict=True):
                    code = await code_of(client, resource, key, value)
                    if code == expected:
                        continue
                    if code and expected:
                        other_codes[resource, key, value] = code, expected
                    elif expected:
                        wider.add((key, value))
                    else:
                        narrower.add((key, value))
    assert other_codes == {}
    with_meaning = {one for one in wider if one[0] not in idle_definitions()}
    explained(with_meaning | {one for one in wider if one[0] in WIDER_CHANGES}, WIDER_CHANGES)
    explained(narrower, NARROWER_CHANGES)


UNEXPECTEDLY_WIDE = {
    "group.streams.assignment.interval.ms",
    "log.local.retention.ms",
    "log.remote.copy.lag.ms",
    "metric.reporters",
}
"""Idle keys that Kafka's brokers check against other keys, which Ottla does not have."""


async def test_idle_keys_keep_their_own_bounds_while_a_broker_runs(client: Client) -> None:
    found = set()
    for key in idle_definitions():
        kafka = KAFKA["broker"][key]
        for resource, codes in zip(RESOURCES["broker"], kafka["codes"], strict=True):
            values = values_of("broker", key)
            theirs = codes if isinstance(codes, list) else [codes] * len(values)
            for value, expected in zip(values, theirs, strict=True):
                if expected and not await code_of(client, resource, key, value):
                    found.add(key)
    assert found <= UNEXPECTEDLY_WIDE


def test_every_key_of_kafka_is_declared_idle_or_refused() -> None:
    assert idle_definitions().keys() & broker_definitions().keys() == set()
    missing = {
        key
        for key in KAFKA["broker"]
        if key not in described_definitions()
        and key not in UNKEPT_PROMISES
        and not is_of_security_family(key)
        and reason_refused(key) is None
        and key not in ("process.roles", "log.dir", "controller.listener.names")
        and not key.startswith(("controller.", "metadata.", "leader.", "auto.", "unclean."))
        and key != "listener.security.protocol.map"
    }
    assert missing == set()
    assert KAFKA["topic"].keys() - TOPIC_DEFINITIONS.keys() == {"internal.segment.bytes"}


async def described(client: Client, kind: int, name: str) -> dict[str, Any]:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    result = (await client.ask(request, 4)).results[0]
    assert result.error_code == 0
    return {one.name: one for one in result.configs}


OTHER_DESCRIPTIONS = {
    "group.coordinator.rebalance.protocols": "groups of Kafka Streams are not served",
    "*consumer.assignment.interval.ms": "0 by default; see docs/reference/compatibility.md",
    "listeners": "Kafka describes it as dynamic, and refuses every change",
    "log.dirs": "a default of its own, as there is no log.dir",
    "node.id": "set in every file, and this broker has none",
    "sasl.*": "TLS and SASL change with certificates only while a broker runs",
    "ssl.*": "TLS and SASL change with certificates only while a broker runs; stores are PEM files",
    "socket.*.buffer.bytes": "without the setting, the kernel adapts the buffers",
}
"""Keys that are described with another default or as read-only, with the reason."""


@pytest.mark.parametrize(
    ("kind", "resource"),
    [
        ("broker", (4, "1")),
        ("topic", (2, "orders")),
        ("group", (32, "g")),
        ("client-metrics", (16, "m")),
    ],
)
async def test_defaults_and_their_synonyms_are_described_as_kafka_does(
    new_client: NewClient, kind: str, resource: tuple[int, str]
) -> None:
    client = new_client()
    found = await described(client, *resource)
    differing = {}
    for key, kafka in KAFKA[kind].items():
        ours = found.get(key)
        if ours is None or "synonyms" not in kafka or ours.config_source != 5:
            continue
        theirs = list(dict.fromkeys(kafka["synonyms"]))
        own = (ours.value, [one.name for one in ours.synonyms], ours.read_only)
        if own != (kafka["default"], theirs, kafka["read_only"]):
            differing[key] = own, (kafka["default"], theirs, kafka["read_only"])
    for pattern, reason in OTHER_DESCRIPTIONS.items():
        assert any(fnmatchcase(key, pattern) for key in differing) or kind != "broker", reason
    assert {
        key for key in differing if not any(fnmatchcase(key, one) for one in OTHER_DESCRIPTIONS)
    } == set()


@pytest.mark.skipif(JARS not in os.environ, reason=f"LOUD: {JARS} is not set; Kafka was NOT asked")
@pytest.mark.timeout(600)
def test_kafka_answers_as_the_file_says() -> None:
    jars = os.environ[JARS]
    command = ["java", "-Xmx512m", "-cp", f"{jars}/*", str(PROGRAM)]
    found = subprocess.run(command, capture_output=True, check=True, timeout=500)
    assert json.loads(found.stdout) == KAFKA
