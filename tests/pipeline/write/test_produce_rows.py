"""A task's rows reach their partitions in order, and a repetition of the task is detected."""

import random
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from ottla.client import ConsumerConfig, TopicPartition, open_consumer
from ottla.client.fetch.record_batch import ConsumerRecord
from ottla.client.produce.partitioner import Partitioner, partition_of
from ottla.model.errors import RefusedError
from ottla.pipeline.write.produce_rows import produce_rows, sorted_rows
from ottla.pipeline.write.provenance import (
    BATCH,
    CHECK,
    PARTITION,
    QUERY,
    ROWS_PER_TURN,
    SEQ,
    WriteId,
)
from ottla.pipeline.write.replays import ReplayFilter
from ottla.pipeline.write.sink_options import (
    HEADERS,
    Columns,
    SinkTarget,
    find_columns,
    read_target,
)
from tests.pipeline.conftest import LiveCluster

WRITE = WriteId("q", 3, 1)
TYPES: dict[str, tuple[str, Any]] = {
    "value": ("string", pa.string()),
    "key": ("binary", pa.binary()),
    "topic": ("string", pa.string()),
    "partition": ("int", pa.int32()),
    "headers": (HEADERS, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
}


def target(cluster: LiveCluster, columns: list[str], **options: str) -> SinkTarget:
    fields = [(name, TYPES[name][0]) for name in columns]
    texts = {"kafka.bootstrap.servers": cluster.bootstrap, **options}
    return read_target(texts, fields, is_streaming=False)


def batch(**columns: list[Any]) -> pa.RecordBatch:
    arrays = [pa.array(values, type=TYPES[name][1]) for name, values in columns.items()]
    return pa.record_batch(arrays, names=list(columns))


def records_of(cluster: LiveCluster, topic: str) -> dict[int, list[ConsumerRecord]]:
    """Return all records of a topic by partition."""
    ends = cluster.ends(topic)
    found: dict[int, list[ConsumerRecord]] = {number: [] for number in ends}

    async def read() -> None:
        config = ConsumerConfig(auto_offset_reset="earliest")
        with trio.fail_after(60):
            async with open_consumer(cluster.bootstrap, config) as consumer:
                consumer.assign([TopicPartition(topic, number) for number in ends])
                while sum(map(len, found.values())) < sum(ends.values()):
                    for record in await consumer.poll(1):
                        found[record.partition].append(record)

    trio.run(read)
    return found


def without_replays(records: list[ConsumerRecord]) -> list[ConsumerRecord]:
    rows = [[{"key": k, "value": v} for k, v in record.headers] for record in records]
    mask = ReplayFilter().keep(pa.array(rows, type=TYPES["headers"][1]))
    return [record for at, record in enumerate(records) if mask is None or mask[at]]


def test_each_row_goes_where_its_key_its_column_or_its_turn_says(live_cluster: LiveCluster) -> None:
    topic, other = live_cluster.new_topic(3), live_cluster.new_topic(2)
    count = 2 * ROWS_PER_TURN
    keyless = batch(
        topic=[topic] * count, key=[None] * count, partition=[None] * count,
        value=[f"keyless {n}" for n in range(count)], headers=[None] * count,
    )  # fmt: skip
    mixed = batch(
        topic=[topic, other, topic], key=[b"k", b"", None], partition=[None, 1, 2],
        value=["hashed", None, "placed"], headers=[[{"key": "h", "value": None}], [], None],
    )  # fmt: skip
    to = target(live_cluster, ["topic", "key", "partition", "value", "headers"])

    assert produce_rows(iter([keyless, mixed]), to, WRITE) == (count + 3, None)

    found, elsewhere = records_of(live_cluster, topic), records_of(live_cluster, other)
    hashed = partition_of(b"k", 3)
    assert [r.value for r in found[(3 + 1) % 3] if b"keyless" in (r.value or b"")] == [
        b"keyless %d" % n for n in range(ROWS_PER_TURN)
    ]
    assert [r.value for r in found[2]][:ROWS_PER_TURN] == [
        b"keyless %d" % n for n in range(ROWS_PER_TURN, count)
    ]
    (record,) = (record for record in found[hashed] if record.value == b"hashed")
    assert [name for name, _ in record.headers] == ["h", QUERY, BATCH, PARTITION, SEQ, CHECK]
    assert found[2][-1].value == b"placed"
    assert [(r.key, r.value) for r in elsewhere[1]] == [(b"", None)]
    for records in (*found.values(), *elsewhere.values()):
        numbers = [int(dict(record.headers)[SEQ] or b"") for record in records]
        assert numbers == list(range(len(records)))


def test_attempts_that_end_early_leave_nothing_that_is_missing_or_twice(
    live_cluster: LiveCluster,
) -> None:
    topic = live_cluster.new_topic(2)
    values = [f"{n} " + "x" * (n % 700) for n in range(2_000)]
    batches = [batch(value=values[at : at + 100]) for at in range(0, len(values), 100)]
    to = target(live_cluster, ["value"], topic=topic)

    def dies_after(count: int) -> Iterator[pa.RecordBatch]:
        yield from batches[:count]
        raise OSError("Spark is gone")

    for count in (7, 0, 19, 3):
        with pytest.raises(OSError, match="Spark is gone"):
            produce_rows(dies_after(count), to, WRITE)
    produce_rows(iter(batches), to, WRITE)
    produce_rows(iter(batches), to, WRITE)

    found = records_of(live_cluster, topic)
    assert sum(map(len, found.values())) >= 2 * len(values), "there were repetitions"
    everywhere: list[int] = []
    for records in found.values():
        numbers = [int((one.value or b"").split()[0]) for one in without_replays(records)]
        assert numbers == sorted(numbers)
        everywhere += numbers
    assert sorted(everywhere) == list(range(len(values)))


@pytest.mark.parametrize("partitioner", [Partitioner.MURMUR2_RANDOM, Partitioner.CONSISTENT_RANDOM])
def test_keys_go_where_other_clients_send_them(
    live_cluster: LiveCluster, partitioner: Partitioner
) -> None:
    topic = live_cluster.new_topic(5)
    to = target(
        live_cluster, ["key", "value"], topic=topic, **{"kafka.partitioner": partitioner.value}
    )
    keys = [b"key %d" % number for number in range(40)]

    produce_rows(iter([batch(key=keys, value=["x"] * 40)]), to, WRITE)

    for number, records in records_of(live_cluster, topic).items():
        for record in records:
            assert partitioner.partition_of(record.key or b"", 5) == number


def test_records_may_be_written_as_they_are(live_cluster: LiveCluster) -> None:
    topic = live_cluster.new_topic(1)
    to = target(live_cluster, ["value", "headers"], topic=topic, provenance="false")

    produce_rows(iter([batch(value=["x"], headers=[[{"key": "h", "value": b"v"}]])]), to, WRITE)

    assert [record.headers for record in records_of(live_cluster, topic)[0]] == [(("h", b"v"),)]


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"value": ["x" * 2_000_000]}, "the record takes .* bytes, max.request.size is 1048576"),
        ({"value": ["x"], "partition": [7]}, "there is no partition .*-7"),
        ({"value": ["x"], "topic": [None]}, "a row has no topic"),
        ({"value": ["x"], "topic": ["no topic"]}, "no topic"),
    ],
)
def test_a_row_that_can_not_be_written_is_refused(
    live_cluster: LiveCluster, columns: dict[str, list[Any]], sentence: str
) -> None:
    options = {} if "topic" in columns else {"topic": live_cluster.new_topic(2)}
    to = target(live_cluster, list(columns), **options)

    with pytest.raises(RefusedError, match=sentence):
        produce_rows(iter([batch(**columns)]), to, WRITE)


def test_rows_need_a_cluster_and_no_rows_need_none() -> None:
    to = read_target(
        {
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "topic": "t",
            "kafka.max.block.ms": "300",
        },
        [("value", "string")],
        is_streaming=False,
    )

    assert produce_rows(iter([]), to, WRITE) == (0, None)
    with pytest.raises(RefusedError, match=r"cannot connect to 127\.0\.0\.1:1"):
        produce_rows(iter([batch(value=["x"])]), to, WRITE)


texts = st.none() | st.text("ab", max_size=2)
some_rows = st.lists(st.tuples(texts, texts.map(lambda t: None if t is None else t.encode())))


@given(rows=some_rows, seed=st.integers(), cut=st.integers(0, 10))
def test_sorted_rows_do_not_depend_on_how_they_came(
    rows: list[tuple[str, bytes]], seed: int, cut: int
) -> None:
    columns = find_columns([("value", "string"), ("key", "binary")])
    shuffled = random.Random(seed).sample(rows, len(rows))

    def as_batches(given_rows: list[tuple[str, bytes]]) -> list[pa.RecordBatch]:
        parts = [given_rows[:cut], given_rows[cut:]]
        return [batch(value=[v for v, _ in p], key=[k for _, k in p]) for p in parts]

    def after(given_rows: list[tuple[str, bytes]]) -> list[Any]:
        out = sorted_rows(iter(as_batches(given_rows)), columns)
        return [tuple(row.values()) for one in out for row in one.to_pylist()]

    assert after(rows) == after(shuffled)
    assert len(after(rows)) == len(rows)


def test_nothing_sorts_to_nothing() -> None:
    assert list(sorted_rows(iter([]), Columns(value=0))) == []


def test_a_worker_that_imported_nothing_else_can_sort() -> None:
    program = """
import pyarrow as pa
from ottla.pipeline.write.produce_rows import sorted_rows
from ottla.pipeline.write.sink_options import Columns
rows = pa.record_batch([pa.array([b"b", b"a"])], names=["value"])
assert [one["value"].to_pylist() for one in sorted_rows(iter([rows]), Columns(value=0))]
"""
    subprocess.run([sys.executable, "-c", program], check=True)
