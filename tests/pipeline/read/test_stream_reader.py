"""The driver's side of a stream, asked as Spark asks it, against a real broker."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from ottla.pipeline.one_sentence import TopicError
from ottla.pipeline.read.batch_reader import TaskPartition
from ottla.pipeline.read.stream_reader import TopicStreamReader

LiveCluster = Any  # the class of the fixture, in conftest.py
Open = Callable[..., TopicStreamReader]

pytestmark = pytest.mark.cluster
ALL = ReadAllAvailable()


@pytest.fixture
def open_reader(live_cluster: LiveCluster) -> Iterator[Open]:
    """A function that makes a reader, as a new process would: (topic, option=…)."""
    readers: list[TopicStreamReader] = []

    def make(topic: str = "", **options: str) -> TopicStreamReader:
        texts = {"kafka.bootstrap.servers": live_cluster.bootstrap, **options}
        readers.append(TopicStreamReader(texts | ({"subscribe": topic} if topic else {})))
        return readers[-1]

    yield make
    for reader in readers:
        reader.stop()


def produce(live_cluster: LiveCluster, topic: str, *counts: int) -> None:
    """Produce `count` records to each partition."""
    for partition, count in enumerate(counts):
        live_cluster.produce(topic, [(b"x", None, (), partition)] * count)


def offsets(position: dict[str, Any], topic: str) -> dict[str, int]:
    """Return the offsets of a topic in a position."""
    found: dict[str, int] = position[topic]
    return found


def ranges(reader: TopicStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    """Return the ranges of a batch whose positions went through Spark's checkpoint."""
    found = reader.partitions(json.loads(json.dumps(start)), json.loads(json.dumps(end)))
    tasks = [one for one in found if isinstance(one, TaskPartition)]
    return [str(one) for task in tasks for one in task.ranges]


def test_a_stream_begins_at_the_end_by_default(
    live_cluster: LiveCluster, open_reader: Open
) -> None:
    topic = live_cluster.new_topic(2)
    produce(live_cluster, topic, 5, 3)
    assert offsets(open_reader(topic).initialOffset(), topic) == {"0": 5, "1": 3}
    earliest = open_reader(topic, startingOffsets="earliest").initialOffset()
    assert offsets(earliest, topic) == {"0": 0, "1": 0}
    given = json.dumps({topic: {"0": 4, "1": -1}})
    assert offsets(open_reader(topic, startingOffsets=given).initialOffset(), topic) == {
        "0": 4, "1": 3,
    }  # fmt: skip
    by_time = open_reader(topic, startingTimestamp="1")
    assert offsets(by_time.initialOffset(), topic) == {"0": 0, "1": 0}


def test_where_a_stream_begins_does_not_move_while_spark_asks_again(
    live_cluster: LiveCluster, open_reader: Open
) -> None:
    topic = live_cluster.new_topic()
    reader = open_reader(topic)
    first = reader.initialOffset()
    produce(live_cluster, topic, 3)
    assert reader.initialOffset() == first


def test_a_first_batch_that_is_repeated_after_a_crash_reads_what_it_read(
    live_cluster: LiveCluster, open_reader: Open
) -> None:
    topic = live_cluster.new_topic()
    produce(live_cluster, topic, 3)
    reader = open_reader(topic)
    start = reader.initialOffset()
    produce(live_cluster, topic, 4)
    end = reader.latestOffset(start, ALL)
    produce(live_cluster, topic, 5)
    again = open_reader(topic)
    assert again.initialOffset() != start
    assert ranges(again, again.initialOffset(), end) == [f"{topic}-0 [3, 7)"]
    # An empty first batch tells it too.
    empty = open_reader(topic)
    nothing = empty.latestOffset(empty.initialOffset(), ALL)
    assert ranges(empty, {topic: {"0": 99}}, nothing) == []


def test_a_batch_takes_as_much_as_is_admitted_and_goes_on_from_there(
    live_cluster: LiveCluster, open_reader: Open
) -> None:
    topic = live_cluster.new_topic(2)
    produce(live_cluster, topic, 90, 10)
    reader = open_reader(topic, startingOffsets="earliest", maxOffsetsPerTrigger="50")
    assert reader.getDefaultReadLimit() == ReadMaxRows(50)
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadMaxRows(50))
    assert offsets(first, topic) == {"0": 45, "1": 5}
    second = reader.latestOffset(first, ReadMaxRows(50))
    assert offsets(second, topic) == {"0": 90, "1": 10}
    assert reader.latestOffset(second, ReadMaxRows(50)) == second
    assert ranges(reader, first, second) == [f"{topic}-0 [45, 90)", f"{topic}-1 [5, 10)"]
    assert offsets(reader.reportLatestOffset() or {}, topic) == {"0": 90, "1": 10}
    # A trigger that wants everything gets it.
    assert offsets(reader.latestOffset(start, ALL), topic) == {"0": 90, "1": 10}


def test_a_small_batch_waits_for_more_but_not_where_the_query_is_to_end(
    live_cluster: LiveCluster, open_reader: Open
) -> None:
    topic = live_cluster.new_topic()
    produce(live_cluster, topic, 10)
    options = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "8", "maxTriggerDelay": "1h"}
    reader = open_reader(topic, **options)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(8)
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert offsets(first, topic) == {"0": 10}
    produce(live_cluster, topic, 7)
    assert reader.latestOffset(first, limit) == first
    produce(live_cluster, topic, 1)
    assert offsets(reader.latestOffset(first, limit), topic) == {"0": 18}
    ending = open_reader(topic, **options)
    ending.prepareForTriggerAvailableNow()
    assert offsets(ending.latestOffset(first, limit), topic) == {"0": 18}
    assert offsets(ending.latestOffset({topic: {"0": 17}}, limit), topic) == {"0": 18}


def test_both_bounds_together_hold_back_and_cut_off(
    live_cluster: LiveCluster, open_reader: Open
) -> None:
    topic = live_cluster.new_topic()
    produce(live_cluster, topic, 30)
    reader = open_reader(
        topic, startingOffsets="earliest", minOffsetsPerTrigger="5", maxOffsetsPerTrigger="26"
    )
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert offsets(first, topic) == {"0": 26}
    assert reader.latestOffset(first, limit) == first


def test_a_query_that_is_to_end_ends_at_what_there_was_when_it_began(
    live_cluster: LiveCluster, open_reader: Open
) -> None:
    topic = live_cluster.new_topic()
    produce(live_cluster, topic, 10)
    reader = open_reader(topic, startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    produce(live_cluster, topic, 10)
    end = reader.latestOffset(reader.initialOffset(), ALL)
    assert offsets(end, topic) == {"0": 10}
    assert reader.latestOffset(end, ALL) == end


def test_a_partition_that_is_added_is_read_from_its_first_record(
    live_cluster: LiveCluster, open_reader: Open
) -> None:
    topic = live_cluster.new_topic()
    produce(live_cluster, topic, 2)
    reader = open_reader(topic)
    start = reader.latestOffset(reader.initialOffset(), ALL)
    live_cluster.ask(lambda admin: admin.create_partitions(topic, 2))
    live_cluster.wait_for(lambda: len(live_cluster.ends(topic)) == 2, "the second partition")
    produce(live_cluster, topic, 1, 4)
    end = reader.latestOffset(start, ReadMaxRows(1_000))
    assert ranges(reader, start, end) == [f"{topic}-0 [2, 3)", f"{topic}-1 [0, 4)"]


def test_a_pattern_finds_topics_that_come_later_and_no_internal_ones(
    live_cluster: LiveCluster, open_reader: Open
) -> None:
    live_cluster.new_topic(name="later-1")
    reader = open_reader(subscribePattern=r"later-\d|__consumer_offsets", shadowGroup="g")
    start = reader.latestOffset(reader.initialOffset(), ALL)
    reader.commit(start)
    assert live_cluster.ends("__consumer_offsets")
    start = reader.latestOffset(start, ALL)
    assert [name for name in start if "@" not in name] == ["later-1"]
    live_cluster.new_topic(name="later-2")
    produce(live_cluster, "later-2", 3)
    end = reader.latestOffset(start, ALL)
    assert ranges(reader, start, end) == ["later-2-0 [0, 3)"]


def recreate(live_cluster: LiveCluster, topic: str, count: int) -> None:
    """Delete a topic and create it again, with `count` records."""
    live_cluster.ask(lambda admin: admin.delete_topic(topic))
    live_cluster.new_topic(name=topic)
    produce(live_cluster, topic, count)


@pytest.mark.parametrize("count", [3, 5, 7])
def test_a_recreated_topic_is_reported_whatever_its_size(
    live_cluster: LiveCluster, open_reader: Open, count: int
) -> None:
    topic = live_cluster.new_topic()
    produce(live_cluster, topic, 5)
    reader = open_reader(topic, startingOffsets="earliest")
    start = reader.latestOffset(reader.initialOffset(), ALL)
    recreate(live_cluster, topic, count)
    for strict in (reader, open_reader(topic)):  # as it runs, and from its checkpoint
        with pytest.raises(
            TopicError, match=f"^topic '{topic}' was deleted and created again: rec"
        ):
            strict.latestOffset(start, ALL)
    lenient = open_reader(topic, failOnDataLoss="false")
    end = lenient.latestOffset(start, ReadMaxRows(1_000))
    assert ranges(lenient, start, end) == [f"{topic}-0 [0, {count})"]
    assert lenient.latestOffset(end, ALL) == end


def test_a_batch_of_a_recreated_topic_does_not_read_the_new_ones_records(
    live_cluster: LiveCluster, open_reader: Open
) -> None:
    topic = live_cluster.new_topic()
    produce(live_cluster, topic, 5)
    strict = open_reader(topic, startingOffsets="earliest")
    start = strict.initialOffset()
    end = strict.latestOffset(start, ALL)
    (task,) = strict.partitions(start, end)
    assert sum(batch.num_rows for batch in strict.read(task)) == 5
    recreate(live_cluster, topic, 9)
    # As after a crash: the batch was noted, and is repeated.
    with pytest.raises(TopicError, match=f"topic '{topic}' was deleted and created again"):
        list(strict.read(task))
    lenient = open_reader(topic, failOnDataLoss="false")
    assert list(lenient.read(task)) == []


def test_a_deleted_topic_is_reported_or_skipped(
    live_cluster: LiveCluster, open_reader: Open
) -> None:
    stays, goes = live_cluster.new_topic(), live_cluster.new_topic()
    both = f"{stays},{goes}"
    reader = open_reader(both, startingOffsets="earliest")
    start = reader.latestOffset(reader.initialOffset(), ALL)
    live_cluster.ask(lambda admin: admin.delete_topic(goes))
    produce(live_cluster, stays, 2)
    with pytest.raises(TopicError, match=rf"^{goes}-0 is gone: records may be lost; set failOn"):
        reader.latestOffset(start, ALL)
    lenient = open_reader(both, failOnDataLoss="false")
    end = lenient.latestOffset(start, ALL)
    assert ranges(lenient, start, end) == [f"{stays}-0 [0, 2)"]


def test_what_is_refused_is_refused_with_the_first_question(open_reader: Open) -> None:
    reader = open_reader("t", endingOffsets="latest")
    with pytest.raises(TopicError, match=r"^endingOffsets: may not be set: a stream has no end$"):
        reader.initialOffset()
    with pytest.raises(TopicError, match=r"^endingOffsets"):
        reader.getDefaultReadLimit()
    with pytest.raises(TopicError, match=r"^there is no topic 'no-such'$"):
        open_reader("no-such").initialOffset()


def test_each_batch_is_committed_to_the_group_in_the_options(
    live_cluster: LiveCluster, open_reader: Open
) -> None:
    topic = live_cluster.new_topic()
    produce(live_cluster, topic, 4)
    reader = open_reader(topic, shadowGroup="the-shadow", startingOffsets="earliest")
    reader.commit(reader.latestOffset(reader.initialOffset(), ALL))
    assert list(live_cluster.group("the-shadow").values()) == [4]
