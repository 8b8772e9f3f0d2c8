"""Queries are followed batch by batch, and ended between two of them."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.pipeline.run.progress import BatchProgress
from ottla.pipeline.run.watching import QueriesEnding, QueryWatch, follow


def reported(event: dict[str, Any]) -> Any:
    return SimpleNamespace(batchId=event["batchId"], json=json.dumps(event))


class FakeQuery:
    """A query whose batches the test ends one by one."""

    def __init__(self, run: str = "run-1") -> None:
        self.runId = run
        self.isActive = True
        self.status = {"isTriggerActive": True}
        self.events: list[dict[str, Any]] = []
        self.error: Exception | None = None
        self.asked_count = 0

    @property
    def recentProgress(self) -> list[Any]:  # noqa: N802
        self.asked_count += 1
        return [reported(event) for event in self.events]

    @property
    def lastProgress(self) -> Any:  # noqa: N802
        return reported(self.events[-1]) if self.events else None

    def end_batch(self, row_count: int = 10) -> None:
        batch = sum("addBatch" in event["durationMs"] for event in self.events)
        self.events.append(
            {
                "name": self.runId,
                "batchId": batch,
                "numInputRows": row_count,
                "durationMs": {"triggerExecution": 100, "addBatch": 90},
            }
        )

    def find_nothing(self) -> None:
        """Report a trigger without a batch, under the number of the next."""
        batch = len({event["batchId"] for event in self.events})
        self.events.append(
            {"name": self.runId, "batchId": batch, "durationMs": {"triggerExecution": 2}}
        )

    def stop(self) -> None:
        self.isActive = False

    def exception(self) -> Exception | None:
        return self.error


@pytest.fixture
def shown() -> list[BatchProgress]:
    return []


@pytest.fixture
def ending() -> QueriesEnding:
    return QueriesEnding()


@pytest.fixture
def watch(shown: list[BatchProgress], ending: QueriesEnding) -> QueryWatch:
    return QueryWatch(shown.append, ending)


def test_each_batch_is_shown_once(watch: QueryWatch, shown: list[BatchProgress]) -> None:
    query = FakeQuery()
    query.end_batch()
    watch.look([query])
    query.end_batch()
    query.end_batch()
    watch.look([query])
    watch.look([query])
    assert [batch.batch for batch in shown] == [0, 1, 2]


def test_a_look_that_found_nothing_is_no_batch_and_hides_none(
    watch: QueryWatch, shown: list[BatchProgress]
) -> None:
    query = FakeQuery()
    for act in (query.find_nothing, query.end_batch, query.find_nothing, query.end_batch):
        act()
        watch.look([query])
    assert [batch.batch for batch in shown] == [0, 1]


def test_events_of_before_are_only_asked_for_when_one_was_missed(watch: QueryWatch) -> None:
    query = FakeQuery()
    query.end_batch()
    watch.look([query])
    asked_count = query.asked_count
    for _ in range(5):
        query.end_batch()
        watch.look([query])
        watch.look([query])
    assert query.asked_count == asked_count
    query.end_batch()
    query.end_batch()
    watch.look([query])
    assert query.asked_count == asked_count + 1


def test_runs_are_distinguished(watch: QueryWatch, shown: list[BatchProgress]) -> None:
    queries = [FakeQuery("run-1"), FakeQuery("run-2")]
    for query in queries:
        query.end_batch()
    watch.look(queries)
    assert [(batch.query, batch.batch) for batch in shown] == [("run-1", 0), ("run-2", 0)]


def test_the_last_batch_of_a_query_that_has_ended_is_shown(
    watch: QueryWatch, shown: list[BatchProgress]
) -> None:
    query = FakeQuery()
    query.end_batch()
    query.stop()
    assert not watch.look([query])
    assert len(shown) == 1


def test_an_end_waits_for_the_batch_that_runs(watch: QueryWatch, ending: QueriesEnding) -> None:
    query = FakeQuery()
    query.end_batch()
    watch.look([query])
    ending.ask()
    watch.look([query])
    assert query.isActive
    query.end_batch()
    watch.look([query])
    assert not query.isActive


def test_an_end_does_not_wait_for_a_batch_that_is_not_there(
    watch: QueryWatch, ending: QueriesEnding
) -> None:
    query = FakeQuery()
    query.status = {"isTriggerActive": False}
    ending.ask()
    watch.look([query])
    assert not query.isActive


def test_a_second_request_does_not_wait(watch: QueryWatch, ending: QueriesEnding) -> None:
    query = FakeQuery()
    ending.ask()
    watch.look([query])
    assert query.isActive
    ending.ask()
    watch.look([query])
    assert not query.isActive


def test_what_a_query_failed_with_is_raised_when_all_have_ended(watch: QueryWatch) -> None:
    queries = [FakeQuery("run-1"), FakeQuery("run-2")]
    queries[1].error = ValueError("no such column")
    for query in queries:
        query.stop()
    with pytest.raises(ValueError, match="no such column"):
        follow(queries, watch)
