"""Plans of a reset as CSV, durations and names of partitions."""

import pytest

from ottla.cli.groups.reset_plans import (
    format_plan,
    parse_places,
    parse_plan,
    parse_reset_duration,
)
from ottla.model.errors import ConfigError
from ottla.model.ids import TopicPartition

PLAN = {TopicPartition("orders", 0): 7, TopicPartition("orders", 1): 0}


def test_a_plan_is_read_as_it_was_written() -> None:
    assert format_plan(PLAN) == "orders,0,7\norders,1,0"
    assert parse_plan(format_plan(PLAN), "g") == PLAN


def test_the_forms_of_kafka_s_tool_are_read() -> None:
    # It puts long names in quotes, and the group first if there are several.
    text = '"a-topic-with-a-very-long-name-of-its-own",3, 12\r\n\r\n'
    assert parse_plan(text, "g") == {
        TopicPartition("a-topic-with-a-very-long-name-of-its-own", 3): 12
    }
    assert parse_plan('g,orders,0,7\n"g,2",orders,0,9\ng,orders,1,0\n', "g") == PLAN
    assert parse_plan('g,orders,0,7\n"g,2",orders,0,9\n', "g,2") == {TopicPartition("orders", 0): 9}


@pytest.mark.parametrize(
    "line",
    [
        "orders",
        "orders,0",
        "orders,x,1",
        "orders,0,-1",
        ",0,1",
        "a,b,0,1,2",
        "orders,0,9" + "9" * 19,
    ],
)
def test_a_malformed_line_is_named(line: str) -> None:
    with pytest.raises(ConfigError, match="line 2 must be"):
        parse_plan(f"orders,0,1\n{line}\n", "g")


def test_a_file_without_the_group_changes_nothing() -> None:
    with pytest.raises(ConfigError, match="has no offsets of group 'g'"):
        parse_plan("other,orders,0,1\n", "g")


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT5M", 300_000),
        ("P1D", 86_400_000),
        ("P1DT2H30M", 95_400_000),
        ("pt1.5s", 1_500),
        ("36h", 129_600_000),
    ],
)
def test_durations_of_kafka_and_of_ottla(text: str, ms: int) -> None:
    assert parse_reset_duration("--by-duration", text) == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "5 minutes", "-PT5M"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="P1DT2H30M"):
        parse_reset_duration("--by-duration", text)


def test_partitions_are_named_behind_the_topic() -> None:
    assert parse_places("--topic", "orders") == ("orders", None)
    assert parse_places("--topic", "orders:1,0,1") == ("orders", [0, 1])
    for text in ("orders:", "orders:x", ":1", "orders:1,"):
        with pytest.raises(ConfigError, match="TOPIC:0,1"):
            parse_places("--topic", text)
