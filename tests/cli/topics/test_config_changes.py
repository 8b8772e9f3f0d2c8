"""Parsing of settings changes and of points in time, and the effect of a change."""

import time
from argparse import Namespace

import pytest

from ottla.cli.groups import group_reset
from ottla.cli.topics.config_changes import (
    Change,
    Entity,
    own_source,
    parse_changes,
)
from ottla.client.admin_parts.admin_configs import Append, ConfigEntry, ConfigSynonym, Subtract
from ottla.model.errors import ConfigError
from ottla.model.points_in_time import parse_time
from ottla.model.settings.resources import ConfigKind, ConfigSource

POLICY = ConfigEntry(
    value="delete",
    source=ConfigSource.TOPIC,
    is_read_only=False,
    is_sensitive=False,
    synonyms=(
        ConfigSynonym("cleanup.policy", "delete", ConfigSource.TOPIC),
        ConfigSynonym("log.cleanup.policy", "compact", ConfigSource.CLUSTER),
        ConfigSynonym("log.cleanup.policy", "delete", ConfigSource.DEFAULT),
    ),
)


def test_changes_are_read_as_they_are_written() -> None:
    texts = ["a=1", "b = x=y ", "c+=p,q", "d-=r"]
    assert parse_changes("-c", texts, ["e"]) == [
        Change("a", "1"),
        Change("b", "x=y"),
        Change("c", Append("p,q")),
        Change("d", Subtract("r")),
        Change("e", None),
    ]


@pytest.mark.parametrize("texts", [["a"], ["=1"], ["+=1"], []])
def test_what_is_no_change_is_refused_with_what_it_must_be(texts: list[str]) -> None:
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        parse_changes("-c", texts, [])


@pytest.mark.parametrize(
    ("change", "after"),
    [
        (Change("cleanup.policy", "compact"), "compact"),
        (Change("cleanup.policy", None), "compact"),
        (Change("cleanup.policy", Append("compact, delete")), "delete,compact"),
        (Change("cleanup.policy", Subtract("delete,x")), ""),
    ],
)
def test_a_change_tells_what_will_hold(change: Change, after: str) -> None:
    """A deleted setting falls back to the next level: here the cluster's."""
    assert change.after(POLICY, ConfigSource.TOPIC) == after


def test_each_entity_has_a_source_of_its_own() -> None:
    """Numbered as DescribeConfigs does."""
    entities = [
        Entity(ConfigKind.TOPIC, "t"),
        Entity(ConfigKind.BROKER, "1"),
        Entity(ConfigKind.BROKER, ""),
        Entity(ConfigKind.BROKER_LOGGER, "1"),
        Entity(ConfigKind.CLIENT_METRICS, "lag"),
        Entity(ConfigKind.GROUP, "g"),
    ]
    assert [own_source(entity) for entity in entities] == [1, 2, 3, 6, 7, 8]
    assert [str(entity) for entity in entities] == [
        "topic 't'",
        "broker 1",
        "the cluster",
        "the loggers of broker 1",
        "client metrics 'lag'",
        "group 'g'",
    ]
    assert [entity.option for entity in entities] == [
        "--topic t",
        "--broker 1",
        "--cluster",
        "--loggers 1",
        "--client-metrics lag",
        "--group g",
    ]
    assert [entity.broker for entity in entities] == [None, 1, None, 1, None, None]


NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "moment_ms"),
    [
        ("1700000000123", 1_700_000_000_123),
        ("90s", NOW_MS - 90_000),
        ("2d", NOW_MS - 172_800_000),
        ("2026-07-31", 1_785_456_000_000),
        ("2026-07-31T12:00", 1_785_499_200_000),
        ("2026-07-31T12:00:00.250Z", 1_785_499_200_250),
        ("2026-07-31T12:00+02:00", 1_785_492_000_000),
        ("1969-12-31T00:00", 0),
        ("999999w", 0),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_a_time_is_a_date_a_duration_ago_or_milliseconds(text: str, moment_ms: int) -> None:
    """Without a zone it is UTC, as for Kafka's own --to-datetime."""
    assert parse_time("--at", text, NOW_MS) == moment_ms


def test_a_time_without_a_zone_is_utc_wherever_the_command_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        given = Namespace(to_datetime="2026-07-31T12:00", by_duration=None)
        assert group_reset.reset_time_ms(given) == 1_785_499_200_000
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "text", ["yesterday", "5y", "2026-13-01", "", "9223372036854775808", "1" * 5_000, "١s"]
)
def test_what_is_no_time_is_refused_with_what_it_must_be(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--at: is .*36h"):
        parse_time("--at", text, NOW_MS)
