"""Rollups batch by batch, into Parquet and a real topic: totals stay right when a batch is
repeated.

The input is a stream of files, which Spark starts sooner than one of topics; `test_command.py`
reads a topic that real clients wrote.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.dataset import dataset

from ottla.model.errors import ConfigError, CorruptDataError
from ottla.pipeline.rollup.frames import RollupOptions
from ottla.pipeline.rollup.ledger import SEEN, Memory, SlotLedger, schema_of
from ottla.pipeline.rollup.stream import TelemetryOptions, start_on, write_parquet

SENT = "sent.total"
RECORDS = pa.schema([("value", pa.binary()), ("partition", pa.int32()), ("offset", pa.int64())])
ANSWER_TIMEOUT_S = 240


class Stream:
    """One rollup into a directory and a topic, in as many runs as a test likes."""

    def __init__(self, spark: Any, cluster: Any, directory: Path, **changes: Any) -> None:
        self.spark = spark
        self.cluster = cluster
        self.output_topic = cluster.new_topic(1)
        self.records = directory / "records"
        self.records.mkdir()
        self.count = 0
        self.output = directory / "out"
        self.checkpoint = directory / "checkpoint"
        self.options = TelemetryOptions(
            bootstrap=cluster.bootstrap,
            checkpoint=str(self.checkpoint),
            output=str(self.output),
            output_topic=self.output_topic,
            lateness_ms=0,
            **changes,
        )

    def push(self, *values: bytes) -> None:
        """Have records come in, all of one partition."""
        offsets = range(self.count, self.count + len(values))
        self.count += len(values)
        columns = {"value": values, "partition": [0] * len(values), "offset": offsets}
        table = pa.table({name: pa.array(column) for name, column in columns.items()}, RECORDS)
        pq.write_table(table, self.records / f"{self.count}.parquet")

    def run(self) -> None:
        """Roll up all there is."""
        schema = "value binary, partition int, offset long"
        records = self.spark.readStream.schema(schema).parquet(str(self.records))
        query = start_on(records, self.options)
        assert query.awaitTermination(ANSWER_TIMEOUT_S)

    def rows(self) -> list[Any]:
        """Return the rollups of the directory, read as any user may."""
        table = dataset(self.output, partitioning="hive").to_table()
        order = [(name, "ascending") for name in ("window_start", "client_id", "is_late")]
        return list(table.sort_by(order).to_pylist())

    def totals(self) -> list[tuple[int, str, float, bool]]:
        """Return window, client, total and lateness of every row."""
        return [
            (row["window_start"].minute, row["client_id"], row["total"], row["is_late"])
            for row in self.rows()
        ]

    def reported_in_topic(self) -> list[Any]:
        """Return the rows of the topic that are committed."""
        records = self.spark.read.format("ottla").options(
            **{
                "kafka.bootstrap.servers": self.options.bootstrap,
                "subscribe": self.output_topic,
                "kafka.isolation.level": "read_committed",
            }
        )
        shape = "window_start timestamp, client_id string, total double, is_late boolean"
        reported = records.load().selectExpr(f"from_json(string(value), '{shape}') as row")
        return list(
            reported.select("row.*").orderBy("window_start", "client_id", "is_late").collect()
        )


@pytest.fixture
def stream(spark: Any, live_cluster: Any, tmp_path: Path) -> Stream:
    return Stream(spark, live_cluster, tmp_path)


def test_a_window_is_reported_once_it_is_over_and_what_comes_late_is_reported_as_such(
    stream: Stream, hand: Any
) -> None:
    def push(client: str, value: int, received_s: float, *, cumulative: bool = False) -> bytes:
        at = hand.times(0, received_s)
        reported = hand.total(SENT, value, at, cumulative=cumulative)
        number = 1 + ord(client)
        return bytes(hand.record(hand.who(number, client), received_s, reported))

    copy = push("a", 30, 50)
    stream.push(push("a", 5, 10), push("b", 100, 20, cumulative=True), copy, b"no record of ours")
    stream.push(push("b", 150, 70, cumulative=True), push("a", 1, 80))
    stream.run()
    assert stream.totals() == [(0, "a", 35.0, False), (0, "b", 100.0, False)]

    stream.push(push("a", 7, 55), copy, push("b", 160, 130, cumulative=True))
    stream.run()
    reported = [
        (0, "a", 35.0, False),
        (0, "a", 7.0, True),
        (0, "b", 100.0, False),
        (1, "a", 1.0, False),
        (1, "b", 50.0, False),
    ]
    assert stream.totals() == reported

    # The process died after all was written, and before Spark knew: the same batch, again.
    for name in ("1", ".1.crc"):
        (stream.checkpoint / "commits" / name).unlink()
    stream.run()
    assert stream.totals() == reported
    in_topic = [(row.client_id, row.total, row.is_late) for row in stream.reported_in_topic()]
    assert in_topic == [(client, total, is_late) for _, client, total, is_late in reported]


def test_what_a_batch_left_is_found_by_the_next_of_its_query_alone(
    spark: Any, tmp_path: Path
) -> None:
    def ledger(query_id: str) -> SlotLedger:
        return SlotLedger(spark, str(tmp_path), query_id)

    def reported(memory: Memory) -> tuple[Any, ...]:
        seen = [tuple(row) for row in memory.seen.collect()]
        return seen, memory.heads, memory.open.count(), memory.newest_ms

    assert reported(ledger("q").before(0)) == ([], None, 0, None)
    seen = spark.createDataFrame([("p", 7)], schema_of(SEEN))
    ledger("q").write(0, ledger("q").before(0)._replace(seen=seen, newest_ms=7))
    assert reported(ledger("q").before(1)) == ([("p", 7)], None, 0, 7)
    # A new query begins with nothing, whatever lies there.
    assert reported(ledger("other").before(0)) == ([], None, 0, None)
    for query_id, batch_id in (("other", 1), ("q", 2), ("q", 3)):
        with pytest.raises(CorruptDataError, match=f"is not what batch {batch_id - 1} left"):
            ledger(query_id).before(batch_id)


def test_a_batch_overwrites_what_it_wrote_before_and_nothing_else(
    spark: Any, tmp_path: Path
) -> None:
    begins = "timestamp_millis(1800000000000) as window_start"
    for batch, total in (("q-0", 1.0), ("q-1", 2.0), ("q-1", 3.0)):
        rows = spark.sql(f"select {begins}, {total} as total")
        write_parquet(rows, str(tmp_path), batch)
    reported = spark.read.parquet(str(tmp_path)).select("batch", "total").collect()
    assert sorted((row.batch, float(row.total)) for row in reported) == [("q-0", 1.0), ("q-1", 3.0)]


def test_what_can_not_be_done_is_refused_in_one_sentence(tmp_path: Path) -> None:
    def options(**changes: Any) -> TelemetryOptions:
        return TelemetryOptions(bootstrap="h:1", checkpoint=str(tmp_path), **changes)

    with pytest.raises(ConfigError, match="output: say a directory or a topic"):
        options()
    with pytest.raises(ConfigError, match="output-topic: is '__client_metrics', which is what"):
        options(output_topic="__client_metrics")
    with pytest.raises(ConfigError, match="lateness: is -1 ms"):
        options(output="x", lateness_ms=-1)
    assert options(output="x", rollup=RollupOptions(by=())).rollup.by == ()
