"""Start and end of a batch, found with a real broker."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.model.errors import ConfigError, ErrorCode, OttlaError, RefusedError
from ottla.model.ids import TopicPartition
from ottla.pipeline.read.cluster_queries import ClusterQueries, FoundTopics
from ottla.pipeline.read.places import batch_ranges
from ottla.pipeline.read.source_options import (
    SourceOptions,
    Subscribe,
    Topics,
    parse_source_options,
)

LiveCluster = Any  # the class of the fixture, in conftest.py

pytestmark = pytest.mark.cluster


def options_of(live_cluster: LiveCluster, topic: str, **options: Any) -> SourceOptions:
    """Parse options; a dictionary becomes JSON for the topic's partitions."""
    texts = {
        name: json.dumps({topic: value}) if isinstance(value, dict) else str(value)
        for name, value in options.items()
    }
    bootstrap = {"kafka.bootstrap.servers": live_cluster.bootstrap}
    if not {"assign", "subscribePattern"} & set(options):
        texts["subscribe"] = topic
    return parse_source_options(bootstrap | texts, is_stream=False)


@pytest.fixture(scope="module")
def asking(live_cluster: LiveCluster) -> Iterator[ClusterQueries]:
    asked = ClusterQueries(options_of(live_cluster, "t").read)
    yield asked
    asked.close()


@pytest.fixture(scope="module")
def topic(live_cluster: LiveCluster, make_record: Any) -> str:
    """Two partitions of [3, 10), whose timestamps are 1000 more than their offsets."""
    name: str = live_cluster.new_topic(2)
    live_cluster.produce(
        name,
        [
            make_record(b"x", partition, timestamp_ms=1_000 + offset)
            for partition in (0, 1)
            for offset in range(10)
        ],
    )
    live_cluster.delete_records(name, {0: 3, 1: 3})
    return name


PLACES: list[tuple[dict[str, Any], list[tuple[int, int]]]] = [
    ({}, [(3, 10), (3, 10)]),
    ({"startingOffsets": {"0": 5, "1": -2}}, [(5, 10), (3, 10)]),
    ({"endingOffsets": {"0": 5, "1": -1}}, [(3, 5), (3, 10)]),
    ({"startingOffsets": {"0": 10, "1": 10}}, [(10, 10), (10, 10)]),
    ({"startingTimestamp": 1_008}, [(8, 10), (8, 10)]),
    ({"startingTimestamp": 7}, [(3, 10), (3, 10)]),
    ({"startingTimestamp": 1_005, "endingTimestamp": 1_008}, [(5, 8), (5, 8)]),
    ({"endingTimestamp": 9_999}, [(3, 10), (3, 10)]),
    ({"startingTimestamp": 1_008, "endingTimestamp": 1_005}, [(8, 8), (8, 8)]),
    ({"startingOffsetsByTimestamp": {"0": 1_009, "1": 1_004}}, [(9, 10), (4, 10)]),
    ({"endingOffsetsByTimestamp": {"0": 1_009, "1": 1_004}}, [(3, 9), (3, 4)]),
    (
        {"startingTimestamp": 9_999, "startingOffsetsByTimestampStrategy": "latest"},
        [(10, 10), (10, 10)],
    ),
    ({"startingOffsets": {"0": 1, "1": 99}, "failOnDataLoss": "false"}, [(3, 10), (10, 10)]),
    ({"endingOffsets": {"0": 99, "1": 4}, "failOnDataLoss": "false"}, [(3, 10), (3, 4)]),
]


@pytest.mark.parametrize(("options", "found"), PLACES, ids=[str(one) for one, _ in PLACES])
def test_a_batch_begins_and_ends_where_options_say(
    live_cluster: LiveCluster,
    asking: ClusterQueries,
    topic: str,
    options: dict[str, Any],
    found: list[tuple[int, int]],
) -> None:
    ranges = batch_ranges(asking, options_of(live_cluster, topic, **options))
    assert [(one.start, one.end) for one in ranges] == found


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"startingOffsets": {"0": 1, "1": 3}}, "names offset 1 of topic-.*-0, whose log has .3, 10"),
    ({"endingOffsets": {"0": 4, "1": 99}}, "endingOffsets names offset 99 of topic-.*-1, whose"),
    ({"startingOffsets": {"0": 3}}, "startingOffsets: says nothing of topic-.*-1"),
    ({"startingOffsets": {"0": 3, "1": 3, "2": 0}}, "startingOffsets: names topic-.*-2, which"),
    ({"startingOffsetsByTimestamp": {"0": 3}}, "startingOffsetsByTimestamp: says nothing of"),
    ({"startingTimestamp": 1_010}, "-0, topic-.*-1 has no record as late as asked; starting"),
    (
        {"startingOffsets": {"0": 5, "1": 3}, "endingOffsets": {"0": 4, "1": 10}},
        "endingOffsets: ends topic-.*-0 at 4, before it begins at 5",
    ),
    ({"assign": {"0": 1}}, "assign: is"),
    ({"assign": [0, 2]}, "there is no partition topic-.*-2"),
]


@pytest.mark.parametrize(("options", "sentence"), REFUSED, ids=[one for _, one in REFUSED])
def test_a_place_that_is_not_there_is_refused_in_one_sentence(
    live_cluster: LiveCluster,
    asking: ClusterQueries,
    topic: str,
    options: dict[str, Any],
    sentence: str,
) -> None:
    if isinstance(options.get("assign"), list):
        options = {"assign": json.dumps({topic: options["assign"]})}
    with pytest.raises(OttlaError, match=sentence):
        batch_ranges(asking, options_of(live_cluster, topic, **options))


def test_topics_that_are_not_there_are_all_named(
    live_cluster: LiveCluster, asking: ClusterQueries
) -> None:
    with pytest.raises(RefusedError, match=r"^.*there is no topic 'nope', no topic 'nor'$"):
        batch_ranges(asking, options_of(live_cluster, "nope,nor"))


def test_partitions_are_assigned_and_topics_matched_by_their_whole_name(
    live_cluster: LiveCluster, asking: ClusterQueries, topic: str
) -> None:
    assign = json.dumps({topic: [1]})
    (one,) = batch_ranges(asking, options_of(live_cluster, topic, assign=assign))
    assert one.partition == 1
    for name in ("places-a", "places-b", "other-places-c"):
        live_cluster.new_topic(name=name)
    options = options_of(live_cluster, "", subscribePattern="places-.*")
    assert [one.topic for one in batch_ranges(asking, options)] == ["places-a", "places-b"]
    none = options_of(live_cluster, "", subscribePattern="places")
    assert batch_ranges(asking, none) == []


def test_who_does_not_answer_is_asked_again_as_long_as_the_client_demands() -> None:
    texts = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "subscribe": "t",
        "kafka.default.api.timeout.ms": "300",
    }
    options = parse_source_options(texts, is_stream=False)
    asking = ClusterQueries(options.read)
    began_s = time.monotonic()
    with pytest.raises(OttlaError, match=r"^cannot connect to 127\.0\.0\.1:1"):
        batch_ranges(asking, options)
    assert time.monotonic() - began_s >= 0.3
    asking.close()


def test_a_topic_that_goes_while_its_end_is_asked_for_is_not_there(
    live_cluster: LiveCluster, asking: ClusterQueries, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.pipeline.read.cluster_queries.LOOK_AGAIN_S", 0.2)
    names = Subscribe(frozenset({topic, "goes"}))
    live_cluster.new_topic(name="goes")
    seen = asking.find_topics(names)
    live_cluster.ask(lambda admin: admin.delete_topic("goes"))
    answers = [seen]
    find = asking._find_topics

    async def as_before(topics: Topics) -> FoundTopics:
        return answers.pop() if answers else await find(topics)

    monkeypatch.setattr(asking, "_find_topics", as_before)
    ends = asking.ends(names)
    assert ends.offsets == {TopicPartition(topic, 0): 10, TopicPartition(topic, 1): 10}
    assert list(ends.topic_ids) == [topic]


def test_an_invalid_name_is_the_users_fault(
    live_cluster: LiveCluster, asking: ClusterQueries
) -> None:
    with pytest.raises((ConfigError, RefusedError)) as raised:
        batch_ranges(asking, options_of(live_cluster, "not a name"))
    assert getattr(raised.value, "code", None) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "not a name" in str(raised.value)
