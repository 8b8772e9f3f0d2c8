"""The query of a page of records."""

import pytest

from ottla.console.records.read_query import Start, cursor_text, parse_query
from ottla.model.errors import ConfigError

NOW_MS = 1_800_000_000_000


def test_the_newest_records_are_the_default() -> None:
    found = parse_query({}, now_ms=NOW_MS)
    assert found.is_backward
    assert (found.count, found.level, found.key, found.partition) == (
        50,
        "read_uncommitted",
        None,
        None,
    )


def test_records_begin_at_an_offset_or_a_time() -> None:
    found = parse_query({"from": "offset", "at": " 17 ", "partition": "3"}, now_ms=NOW_MS)
    assert (found.start, found.offset, found.partition) == (Start.OFFSET, 17, 3)
    assert parse_query({"from": "time", "at": "1h"}, now_ms=NOW_MS).time_ms == NOW_MS - 3_600_000


def test_a_cursor_is_read_as_it_was_written() -> None:
    text = cursor_text({3: 0, 0: 17})
    assert text == "0:17,3:0"
    assert parse_query({"cursor": text}, now_ms=NOW_MS).cursor == {0: 17, 3: 0}


def test_the_count_is_bounded() -> None:
    assert parse_query({"count": "99999"}, now_ms=NOW_MS).count == 100
    assert parse_query({"count": "0"}, now_ms=NOW_MS).count == 1


@pytest.mark.parametrize(
    ("query", "reads_content"),
    [
        ({}, False),
        ({"key": "k"}, True),
        ({"filter": "offset = 1"}, False),
        ({"filter": "key = 1"}, True),
    ],
)
def test_queries_of_content_are_recognised(query: dict[str, str], reads_content: bool) -> None:
    assert parse_query(query, now_ms=NOW_MS).reads_content is reads_content


@pytest.mark.parametrize(
    ("query", "setting"),
    [
        ({"from": "here"}, "from"),
        ({"from": "time"}, "at"),
        ({"from": "time", "at": "soon"}, "at"),
        ({"from": "time", "at": "9" * 5_000}, "at"),
        ({"from": "time", "at": "9" * 30}, "at"),
        ({"from": "offset", "at": "-1"}, "at"),
        ({"from": "offset", "at": "1" * 30}, "at"),
        ({"from": "offset", "at": "٣"}, "at"),
        ({"partition": "all"}, "partition"),
        ({"partition": "9999999999"}, "partition"),
        ({"count": "many"}, "count"),
        ({"level": "dirty"}, "level"),
        ({"cursor": "1:2,"}, "cursor"),
        ({"cursor": "1:2," * 2_000 + "1:2"}, "cursor"),
        ({"filter": "offset ="}, "filter"),
        ({"key": "k" * 5_000}, "key"),
    ],
)
def test_a_wrong_parameter_is_named(query: dict[str, str], setting: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_query(query, now_ms=NOW_MS)
    assert refused.value.setting == setting
