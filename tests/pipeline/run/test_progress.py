"""Spark's progress events as figures for people."""

from typing import Any

from ottla.pipeline.run.progress import BatchProgress, Totals, lag_of, progress_of

EVENT = {
    "id": "4b0e",
    "runId": "9c1f",
    "name": "orders",
    "timestamp": "2026-07-31T12:00:01.500Z",
    "batchId": 7,
    "batchDuration": 400,
    "numInputRows": 1_000,
    "durationMs": {"triggerExecution": 500, "addBatch": 300},
    "sources": [
        {"endOffset": {"t": {"0": 10, "1": 5}}, "latestOffset": {"t": {"0": 12, "1": 5}}},
    ],
}


def source(end: Any, latest: Any) -> dict[str, Any]:
    return {"endOffset": end, "latestOffset": latest}


def test_a_batch_tells_its_rows_its_time_and_what_is_left() -> None:
    assert progress_of(EVENT) == BatchProgress(
        query="orders",
        batch=7,
        began_at="2026-07-31T12:00:01.500Z",
        row_count=1_000,
        rows_per_s=2_000.0,
        batch_s=0.5,
        lag_count=2,
    )


def test_an_event_without_figures_counts_as_nothing_done() -> None:
    found = progress_of({"id": "4b0e", "batchId": 0})
    assert (found.query, found.row_count, found.rows_per_s, found.lag_count) == ("4b0e", 0, 0, None)


def test_lag_is_summed_over_partitions_topics_and_sources() -> None:
    sources = [
        source({"a": {"0": 1}}, {"a": {"0": 4}, "b": {"0": 10}}),
        source({"c": {"0": 5}}, {"c": {"0": 6}}),
    ]
    assert lag_of(sources) == 3 + 10 + 1


def test_a_source_that_does_not_tell_makes_the_lag_unknown() -> None:
    assert lag_of([source({"a": {"0": 1}}, {"a": {"0": 4}}), source(3, 9)]) is None
    assert lag_of([source({"a": {"0": 1}}, None)]) is None
    assert lag_of([]) is None


def test_a_partition_that_went_back_is_no_negative_lag() -> None:
    assert lag_of([source({"a": {"0": 9}}, {"a": {"0": 4}})]) == 0


def test_totals_are_of_all_queries_and_speed_leaves_pauses_out() -> None:
    totals = Totals()
    totals.add(progress_of(EVENT))
    totals.add(progress_of({**EVENT, "batchId": 8, "name": "payments"}))
    assert (totals.row_count, totals.batch_count, totals.lag_count) == (2_000, 2, 4)
    assert totals.rows_per_s == 2_000.0
    totals.add(progress_of({**EVENT, "batchId": 9, "sources": []}))
    assert totals.lag_count is None
