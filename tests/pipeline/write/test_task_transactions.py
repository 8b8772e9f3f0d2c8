"""Readers of committed records see exactly one attempt at a task, whole or not at all."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pytest
import trio

from ottla.model.errors import ConfigError, RefusedError
from ottla.pipeline.read.cluster_queries import ClusterQueries
from ottla.pipeline.read.range_reader import read_ranges
from ottla.pipeline.read.ranges import OffsetRange
from ottla.pipeline.read.read_options import ReadOptions
from ottla.pipeline.read.source_options import Subscribe
from ottla.pipeline.write.produce_rows import ProducedRows, produce_rows
from ottla.pipeline.write.provenance import WriteId
from ottla.pipeline.write.sink_options import SinkTarget, read_target
from ottla.pipeline.write.task_transactions import (
    end_transactions,
    is_noted,
    note_group,
    transactional_id,
)
from tests.pipeline.conftest import LiveCluster

VALUES = [b"%d" % number for number in range(50)]


class Sink:
    """One query's sink to one topic, and the committed records of the topic."""

    def __init__(self, cluster: LiveCluster, **options: str) -> None:
        self.cluster = cluster
        self.topic = cluster.new_topic(2)
        self.target = read_target(
            {
                "kafka.bootstrap.servers": cluster.bootstrap,
                "topic": self.topic,
                "kafka.batch.size": "200",
                **options,
            },
            [("value", "binary")],
            is_streaming=True,
        )
        self.reads = ReadOptions(
            bootstrap=cluster.bootstrap, isolation_level="read_committed", columns=("value",)
        )

    def write(self, batch: int = 0, task: int = 0, *, dies_after: int | None = None) -> Any:
        """Write the rows of one task; return the report to the driver."""

        def rows() -> Iterator[pa.RecordBatch]:
            for at in range(0, len(VALUES), 10):
                if dies_after is not None and at >= dies_after:
                    raise OSError("Spark is gone")
                yield pa.record_batch([pa.array(VALUES[at : at + 10])], names=["value"])

        return produce_rows(rows(), self.target, WriteId(self.topic, batch, task))

    def end(self, *produced: ProducedRows, is_commit: bool = True) -> None:
        """End the batch as the driver does when all tasks are done, or one has failed."""

        async def end() -> None:
            prepared = [one.prepared for one in produced if one.prepared is not None]
            await end_transactions(self.target, prepared, is_commit=is_commit)

        trio.run(end)

    def ends(self) -> dict[int, int]:
        """Return where a stream of committed records would end now."""
        asking = ClusterQueries(self.reads)
        try:
            found = asking.ends(Subscribe(frozenset({self.topic}))).offsets
        finally:
            asking.close()
        return {at.partition: end for at, end in found.items()}

    def committed(self) -> list[bytes]:
        """Return the values that a batch over the whole topic reads, up to the last marker."""
        ranges = [OffsetRange(self.topic, number, 0, end) for number, end in self.ends().items()]
        found = [batch["value"].to_pylist() for batch in read_ranges(ranges, self.reads)]
        return sorted(value for values in found for value in values)


@pytest.fixture
def sink(live_cluster: LiveCluster) -> Sink:
    return Sink(live_cluster)


def test_rows_are_seen_when_the_driver_commits_and_a_repeated_batch_writes_nothing(
    sink: Sink,
) -> None:
    first, second = sink.write(task=0), sink.write(task=1)
    assert first.record_count == second.record_count == len(VALUES)
    assert sink.ends() == {0: 0, 1: 0}, "the last stable offset, not the end"
    assert sink.committed() == []
    sink.end(first)
    # Here the driver dies, and the batch is repeated.
    again = [sink.write(task=0), sink.write(task=1)]
    assert [one.record_count for one in again] == [0, len(VALUES)]
    sink.end(*again)
    assert sink.committed() == sorted(2 * VALUES)
    sink.end(sink.write(batch=1))
    assert sink.committed() == sorted(3 * VALUES)
    ends = sink.cluster.ends(sink.topic)
    assert sink.ends() == ends
    assert sum(ends.values()) > 4 * len(VALUES), "a copy is in the log, and is not read"


def test_what_attempts_that_died_left_open_ends_with_the_next_one(sink: Sink) -> None:
    with pytest.raises(OSError, match="Spark is gone"):
        sink.write(dies_after=30)
    sink.write()  # its process is killed when it is done
    assert sink.ends() != sink.cluster.ends(sink.topic)
    sink.end(sink.write())
    assert sink.committed() == sorted(VALUES)


def test_of_two_attempts_at_once_the_later_one_is_committed(sink: Sink) -> None:
    slow, other = sink.write(), sink.write(task=1)
    speculative = sink.write()
    with pytest.raises(RefusedError, match=r"only in part: .*-0'.*speculation"):
        sink.end(slow, other)
    sink.end(slow, other, is_commit=False)  # as Spark does then: what is committed stays
    sink.end(speculative)
    assert sink.committed() == sorted(2 * VALUES)
    # One that comes too late neither writes nor ends what is under way.
    later = sink.write(batch=1)
    assert sink.write(batch=0).prepared is None
    sink.end(later)
    assert sink.committed() == sorted(3 * VALUES)


def test_a_batch_that_fails_leaves_nothing_to_be_seen(sink: Sink) -> None:
    sink.end(sink.write(), is_commit=False)
    assert sink.committed() == []
    sink.end(sink.write())
    assert sink.committed() == sorted(VALUES)


def test_a_batch_that_takes_longer_than_its_transactions_is_not_committed(
    live_cluster: LiveCluster,
) -> None:
    sink = Sink(live_cluster, **{"kafka.transaction.timeout.ms": "5000"})
    late = sink.write()
    name = transactional_id(sink.target, WriteId(sink.topic, 0, 0))

    def is_over() -> bool:
        found = live_cluster.ask(lambda admin: admin.list_transactions())
        return {one.transactional_id: one.state for one in found}[name] == "CompleteAbort"

    live_cluster.wait_for(is_over, "the transaction's timeout")
    with pytest.raises(RefusedError, match=r"longer than kafka\.transaction\.timeout\.ms, 5000"):
        sink.end(late)
    assert sink.committed() == []


def test_a_batch_older_than_what_is_committed_is_refused(sink: Sink) -> None:
    sink.end(sink.write(batch=7))
    with pytest.raises(RefusedError, match=r"batch 5 of .* comes after batch 7, which task 0"):
        sink.write(batch=5)
    assert sink.committed() == sorted(VALUES)


@pytest.mark.parametrize(("next_batch", "is_known"), [(None, False), (3, False), (4, True)])
def test_a_note_is_the_number_behind_the_batch(next_batch: int | None, is_known: bool) -> None:
    assert is_noted(next_batch, WriteId("q", 3, 0)) is is_known


WHERE = {"kafka.bootstrap.servers": "localhost:1", "topic": "t"}
NAMED = {"txnAppId": "a", "txnVersion": "1"}


def plan(texts: Mapping[str, str] = MappingProxyType({}), **more: Any) -> SinkTarget:
    is_streaming = more.pop("is_streaming", False)
    return read_target({**WHERE, **texts, **more}, [("value", "binary")], is_streaming=is_streaming)


def test_writes_that_spark_may_repeat_are_transactional_unless_they_shall_not() -> None:
    assert plan(is_streaming=True).is_transactional
    assert plan(NAMED).is_transactional
    assert plan(transactions="true").is_transactional
    assert not plan().is_transactional
    assert not plan(transactions="false", is_streaming=True).is_transactional
    assert plan(is_streaming=True).producer_config("x").transaction_timeout_ms == 900_000
    assert plan().producer_config().transactional_id is None


def test_attempts_and_repetitions_share_a_name_and_tasks_do_not() -> None:
    target, write = plan(is_streaming=True), WriteId("q", 3, 1)
    assert transactional_id(target, write) == "ottla-sink-q-t-1"
    assert transactional_id(target, write._replace(batch=4)) == "ottla-sink-q-t-1"
    assert transactional_id(target, write._replace(partition=2)) == "ottla-sink-q-t-2"
    mine = plan({"kafka.transactional.id": "mine"})
    assert mine.is_transactional
    assert transactional_id(mine, write) == "mine-1"
    assert note_group(mine, write) == "ottla-sink-q-t-1"


def test_one_name_may_write_a_batch_to_several_topics(live_cluster: LiveCluster) -> None:
    here, there = Sink(live_cluster), Sink(live_cluster)
    write, rows = WriteId("app", 1, 0), pa.record_batch([pa.array(VALUES)], names=["value"])
    for sink in (here, there, here):
        sink.end(produce_rows(iter([rows]), sink.target, write))
    assert here.committed() == there.committed() == sorted(VALUES)


@pytest.mark.parametrize("key", ["kafka.transactional.id", "kafka.transaction.timeout.ms"])
def test_settings_of_transactions_are_refused_where_there_are_none(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}: is of transactions, and this write has none"):
        plan({key: "7", "transactions": "false"})
