"""Conversion between command lines and ACLs, without a cluster."""

import argparse
from typing import Any, cast

import pytest

from ottla.cli.security import acl
from ottla.cli.security.acl_words import (
    entries_of,
    filter_of,
    operation_of,
    row_of,
)
from ottla.cli.verbs import declare
from ottla.insight.rules.acl_text import principal_of, sentence_of
from ottla.model.errors import ConfigError
from ottla.model.security.acls import AclEntry, AclFilter, AclOperation, PatternType, ResourceType


def parsed(line: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    declare(parser, acl)
    return parser.parse_args(line.split())


def written(line: str) -> list[tuple[str, ...]]:
    return [row_of(entry) for entry in entries_of(parsed(f"create {line}"))]


def test_a_user_is_allowed_operations_on_a_topic() -> None:
    assert written("--allow alice --operation read,describe-configs --topic orders") == [
        ("User:alice", "*", "allow", "read", "topic", "orders", "literal"),
        ("User:alice", "*", "allow", "describe-configs", "topic", "orders", "literal"),
    ]


def test_a_consumer_gets_what_it_needs_of_topic_and_group() -> None:
    assert written("--allow User:al --consumer --topic o --group g --prefixed --host 10.0.0.1") == [
        ("User:al", "10.0.0.1", "allow", "read", "topic", "o", "prefixed"),
        ("User:al", "10.0.0.1", "allow", "describe", "topic", "o", "prefixed"),
        ("User:al", "10.0.0.1", "allow", "read", "group", "g", "prefixed"),
    ]


@pytest.mark.parametrize(("group", "is_noted"), [("", True), (" --group g", False)])
async def test_a_consumer_without_a_group_is_noted(
    group: str, is_noted: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    created: list[AclEntry] = []

    class StubAdmin:
        async def create_acls(self, entries: list[AclEntry]) -> None:
            created.extend(entries)

    line = f"create --allow al --consumer --topic o{group}"
    assert await acl.create_acls(cast("Any", StubAdmin()), parsed(line)) == 0

    assert created
    assert ("needs --group NAME" in capsys.readouterr().err) is is_noted


def test_a_producer_gets_what_it_needs_of_topic_and_id() -> None:
    found = written("--allow al --producer --topic o --transactional-id t")
    assert [(row[3], row[4]) for row in found] == [
        ("write", "topic"),
        ("describe", "topic"),
        ("create", "topic"),
        ("write", "transactional-id"),
        ("describe", "transactional-id"),
    ]


def test_every_user_is_denied_something_on_the_cluster() -> None:
    assert written("--deny * --operation Alter --cluster --prefixed") == [
        ("User:*", "*", "deny", "alter", "cluster", "kafka-cluster", "literal")
    ]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("--allow a --operation read", "resource: is not named; add --topic"),
        ("--operation read --topic o", "principal: is not named; add --allow USER"),
        ("--allow a --topic o", "--operation: has none for topic; it has all, read, write"),
        ("--allow a --topic o --operation raed", "did you mean"),
        (
            "--allow a --topic o --operation cluster-action",
            "cluster-action does not exist for topic",
        ),
    ],
)
def test_entries_that_mean_nothing_are_refused(line: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        written(line)
    assert sentence in str(caught.value)


def test_a_filter_without_a_resource_asks_for_all() -> None:
    assert filter_of(parsed("list")) == AclFilter()
    found = filter_of(parsed("list --principal alice --operation Write --host 10.0.0.0/8"))
    assert (found.principal, found.host) == ("User:alice", "10.0.0.0/8")
    assert found.operation is AclOperation.WRITE


@pytest.mark.parametrize(
    ("line", "kind", "pattern"),
    [
        ("--topic o", ResourceType.TOPIC, PatternType.LITERAL),
        ("--topic o --prefixed", ResourceType.TOPIC, PatternType.PREFIXED),
        ("--topic o --matching", ResourceType.TOPIC, PatternType.MATCH),
        ("--cluster", ResourceType.CLUSTER, PatternType.ANY),
    ],
)
def test_a_filter_names_one_resource(line: str, kind: ResourceType, pattern: PatternType) -> None:
    found = filter_of(parsed(f"list {line}"))
    assert (found.resource_type, found.pattern_type) == (kind, pattern)
    with pytest.raises(ConfigError, match="is named twice"):
        filter_of(parsed(f"list {line} --group g"))


def test_operations_are_named_as_here_or_as_by_kafkas_tools() -> None:
    for text in ("describe-configs", "DescribeConfigs", "DESCRIBE_CONFIGS"):
        assert operation_of(text) is AclOperation.DESCRIBE_CONFIGS
    for text in ("unknown", "any", ""):
        with pytest.raises(ConfigError):
            operation_of(text)


def test_a_name_alone_is_a_user() -> None:
    assert principal_of("alice") == "User:alice"
    assert principal_of("Group:x") == "Group:x"
    with pytest.raises(ConfigError):
        principal_of("")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "--allow al --operation read --topic o",
            "an entry allows User:al to read on topic o",
        ),
        (
            "--deny * --operation all --group g --prefixed --host 10.0.0.0/8",
            "an entry denies User:* from 10.0.0.0/8 to all on groups that begin with g",
        ),
        (
            "--allow al --operation write --topic *",
            "an entry allows User:al to write on every topic",
        ),
    ],
)
def test_an_acl_is_described_in_a_sentence(line: str, sentence: str) -> None:
    (entry,) = entries_of(parsed(f"create {line}"))
    assert sentence_of(entry) == sentence
