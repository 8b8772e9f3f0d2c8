"""The gate on instruction counts: its comparisons, and that each path does what its name says."""

import pytest

from ottla.bench.gate import HIGHEST_INCREASE, PathComparison, as_text, compare, is_worse
from ottla.bench.gate_paths import LARGE_RECORD_BYTES, LARGE_RECORDS, paths


def test_a_path_is_worse_above_the_highest_increase_only() -> None:
    assert HIGHEST_INCREASE == 0.05
    assert not is_worse(PathComparison("fetch", 1_050, 1_000))
    assert is_worse(PathComparison("fetch", 1_051, 1_000))
    assert not is_worse(PathComparison("fetch", 500, 1_000))


def test_a_path_that_the_table_lacks_decides_nothing() -> None:
    (found,) = compare({"new path": 7}, {})
    assert found.increase is None
    assert not is_worse(found)


def test_the_table_shows_the_difference_and_marks_what_is_worse() -> None:
    lines = as_text(compare({"a": 1_100, "b": 990}, {"a": 1_000, "b": 1_000})).splitlines()
    assert lines[1].split() == ["a", "1,100", "1,000", "+10.0%", "above", "5", "%"]
    assert lines[2].split() == ["b", "990", "1,000", "-1.0%"]


@pytest.fixture(scope="module")
def results() -> dict[str, object]:
    found = paths()
    for run in found.values():
        run()
    return {name: run() for name, run in found.items()}


def test_each_path_can_be_repeated(results: dict[str, object]) -> None:
    assert {"produce small", "fetch small", "metadata"} < results.keys()


def test_a_large_fetch_answers_with_all_its_records(results: dict[str, object]) -> None:
    answered = results["fetch 128 KiB"]
    assert isinstance(answered, int)
    assert answered > LARGE_RECORDS * LARGE_RECORD_BYTES


@pytest.mark.parametrize(
    "name", ["metadata", "metadata, 10k ACLs", "commit, logged", "group heartbeat", "produce small"]
)
def test_a_request_is_answered(results: dict[str, object], name: str) -> None:
    answered = results[name]
    assert isinstance(answered, int)
    assert answered > 0
