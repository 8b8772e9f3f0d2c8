"""Ranges are read without records that were written again, wherever a range begins."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from ottla.model.errors import ConfigError, CorruptDataError
from ottla.pipeline.read.cluster_queries import ClusterQueries
from ottla.pipeline.read.range_reader import read_ranges
from ottla.pipeline.read.ranges import OffsetRange
from ottla.pipeline.read.read_options import ReadOptions
from ottla.pipeline.read.source_options import Subscribe
from ottla.pipeline.write.produce_rows import produce_rows
from ottla.pipeline.write.provenance import WriteId
from ottla.pipeline.write.sink_options import read_target

from .conftest import LiveCluster

COUNT = 1_000
ATTEMPTS = (300, 700, COUNT, 10)
"""Progress of the attempts at one task; the first three have each record for the first time."""


@pytest.fixture(name="topic", scope="module")
def written_again_and_again(live_cluster: LiveCluster) -> str:
    topic = live_cluster.new_topic(1)
    for count in ATTEMPTS:
        write(live_cluster, topic, [b"%d" % number for number in range(count)])
    return topic


def write(cluster: LiveCluster, topic: str, values: list[bytes]) -> None:
    to = read_target(
        {"kafka.bootstrap.servers": cluster.bootstrap, "topic": topic, "kafka.batch.size": "2000"},
        [("value", "binary")],
        is_streaming=False,
    )
    rows = pa.record_batch([pa.array(values, type=pa.binary())], names=["value"])
    produce_rows(iter([rows]), to, WriteId("q", 0, 0))


def read(cluster: LiveCluster, topic: str, start: int, end: int, **options: Any) -> pa.Table:
    asked = ReadOptions(bootstrap=cluster.bootstrap, drop_replays=True, **options)
    return pa.Table.from_batches(read_ranges([OffsetRange(topic, 0, start, end)], asked))


def test_of_the_whole_topic_each_record_is_read_once_in_order(
    live_cluster: LiveCluster, topic: str
) -> None:
    found = read(live_cluster, topic, 0, sum(ATTEMPTS))

    assert found["value"].to_pylist() == [b"%d" % number for number in range(COUNT)]
    assert "headers" not in found.column_names
    assert found["offset"].to_pylist() == [
        *range(300), *range(600, 1_000), *range(1_700, 2_000)
    ]  # fmt: skip


@pytest.mark.parametrize("cuts", [[1], [300], [450, 900], list(range(30, 2_000, 65))])
@pytest.mark.parametrize("lookback_count", [2_000, 100, 20])
def test_ranges_that_are_cut_anywhere_hold_together_what_the_whole_holds(
    live_cluster: LiveCluster, topic: str, cuts: list[int], lookback_count: int
) -> None:
    """However little is read before each: where that leaves anything open, more is."""
    edges = [0, *cuts, sum(ATTEMPTS)]
    parts = [OffsetRange(topic, 0, start, end) for start, end in pairwise(edges)]
    asked = ReadOptions(
        bootstrap=live_cluster.bootstrap,
        drop_replays=True,
        columns=("value",),
        replay_lookback_count=lookback_count,
    )
    found = pa.Table.from_batches(read_ranges(parts, asked))

    assert found.column_names == ["value"]
    assert found["value"].to_pylist() == [b"%d" % number for number in range(COUNT)]


def test_headers_are_shipped_where_they_are_asked_for(
    live_cluster: LiveCluster, topic: str
) -> None:
    found = read(live_cluster, topic, 0, 10, include_headers=True)

    assert found["headers"][3].as_py()[-2] == {"key": "spark.seq", "value": b"3"}


def test_an_attempt_with_other_rows_is_an_error_that_names_the_partition(
    live_cluster: LiveCluster,
) -> None:
    topic = live_cluster.new_topic(1)
    write(live_cluster, topic, [b"a", b"b"])
    write(live_cluster, topic, [b"b", b"a"])

    with pytest.raises(CorruptDataError, match=f"{topic}-0: batch 0 of query q was written twice"):
        read(live_cluster, topic, 0, 4)


def test_a_compacted_topic_is_refused_for_its_first_copies_may_be_gone(
    live_cluster: LiveCluster,
) -> None:
    compacted = live_cluster.new_topic(1, configs={"cleanup.policy": "compact,delete"})
    other = live_cluster.new_topic(1)
    asked = ReadOptions(bootstrap=live_cluster.bootstrap, drop_replays=True)
    asking, without = ClusterQueries(asked), ClusterQueries(replace(asked, drop_replays=False))
    both = Subscribe(frozenset({compacted, other}))
    try:
        assert asking.find_topics(Subscribe(frozenset({other, "nowhere"}))).missing
        with pytest.raises(ConfigError, match=f"dropReplays: topic '{compacted}' is compacted"):
            asking.find_topics(both)
        assert len(without.find_topics(both).partitions) == 2
    finally:
        asking.close()
        without.close()
