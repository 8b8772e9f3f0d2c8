"""`ottla sql`: queries over live topics, each scan of which streams the same records."""

import csv
import io
import json
from typing import TYPE_CHECKING

import pytest

from ottla.cli.main import run
from ottla.cli.pipelines import sql
from ottla.pipeline.export import topic_scan
from ottla.pipeline.export.topic_scan import is_named
from ottla.pipeline.read.range_reader import read_ranges

if TYPE_CHECKING:
    from tests.pipeline.export.conftest import TopicBench


@pytest.fixture(scope="module")
def topic(bench: "TopicBench") -> str:
    name = bench.new_topic(2, name="sql-orders")
    bench.produce(name, [b'{"id":%d,"city":"c%d"}' % (index, index % 3) for index in range(30)])
    return name


def query(bench: "TopicBench", text: str, *words: str) -> int:
    return run(["sql", text, "--bootstrap", bench.bootstrap, *words])


def test_a_query_prints_a_table(
    bench: "TopicBench", topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f'select value.city, count(*) as n, sum(value.id) as total from "{topic}" group by 1'
    assert query(bench, f"{text} order by 1", "--json") == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["city", "n", "total"],
        ["c0", "10", "135"],
        ["c1", "10", "145"],
        ["c2", "10", "155"],
    ]


def test_a_topic_may_be_read_twice(
    bench: "TopicBench", topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f'select count(*) as n from "{topic}" a join "{topic}" b using (partition, "offset")'
    assert query(bench, text, "--format", "json") == 0
    assert json.loads(capsys.readouterr().out) == {"n": 30}


def test_rows_are_json_lines_or_csv(
    bench: "TopicBench", topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "select key, value, timestamp > '2020-01-01' as late "
        f"from \"{topic}\" where value::varchar like '%:7,%'"
    )
    assert query(bench, text, "--format", "json") == 0
    value = '{"id":7,"city":"c1"}'
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert found == [{"key": None, "value": value, "late": True}]
    assert query(bench, text, "--format", "csv") == 0
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert rows == [["key", "value", "late"], ["", value, "True"]]


def test_a_long_table_is_cut_with_a_note(
    bench: "TopicBench",
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sql, "TABLE_ROWS_MAX", 5)
    assert query(bench, f'select partition from "{topic}"') == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 6
    assert "the first 5 rows; --format csv or json prints all of them" in printed.err


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("selekt 1", "syntax error"),
        ("select * from nowhere", "there is no topic or table 'nowhere'; 'ottla topic list'"),
        ('select nothing from "sql-orders"', '"nothing" not found'),
    ],
)
def test_a_mistake_in_a_query_is_one_sentence(
    bench: "TopicBench",
    topic: str,
    text: str,
    sentence: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert query(bench, text) == 1
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


def test_a_failed_scan_keeps_its_own_sentence(
    bench: "TopicBench", monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = bench.new_topic(name="sql-lost")
    bench.produce(topic, [b"1"] * 10)
    read = read_ranges

    def late(*arguments: object) -> object:
        bench.delete_records(topic, 0, 5)
        return read(*arguments)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(topic_scan, "read_ranges", late)
    assert query(bench, f'select count(*) from "{topic}"') == 1
    error = capsys.readouterr().err
    assert "sql-lost-0 has lost its records from offset 0 to 4" in error
    assert "Traceback" not in error


def test_a_topic_is_named_by_a_whole_word() -> None:
    assert is_named("orders", "select * from orders, x")
    assert is_named("a.b-c", 'select * from "a.b-c"')
    assert not is_named("order", "select * from orders")
    assert not is_named("orders", "select * from orders-2")


def test_slips_of_a_first_query_are_answered_with_the_remedy(
    bench: "TopicBench", topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert query(bench, f'select value.id from "{topic}"') == 1
    assert "values are bytes, which have no fields; --json reads" in capsys.readouterr().err
    assert query(bench, "SHOW tables;") == 1
    assert "'ottla topic list' shows them" in capsys.readouterr().err
