"""`ottla group`: an operator lists, describes, resets and deletes groups."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

pytestmark = pytest.mark.cluster

TOPIC = "counted"
RECORD_COUNT = 10


@pytest.fixture
def consumer(cluster: Any) -> Iterator[Consumer]:
    """A member of the group "readers" that has committed 4 of 10 records of two partitions."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    if TOPIC not in admin.list_topics(timeout=60).topics:
        admin.create_topics([NewTopic(TOPIC, 2)])[TOPIC].result(timeout=60)
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for number in range(2 * RECORD_COUNT):
            producer.produce(TOPIC, b"x", partition=number % 2)
        assert producer.flush(60) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "readers",
            "client.id": "reader",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC])
    cluster.wait_for(lambda: consumer.poll(0.1) or consumer.assignment(), "share")
    at = [TopicPartition(TOPIC, index, 4) for index in range(2)]
    consumer.commit(offsets=at, asynchronous=False)
    yield consumer
    consumer.close()


def output_of(cluster: Any, *words: str) -> Any:
    return json.loads(cluster.ottla("group", *words, "--format", "json").stdout)


def test_a_group_is_listed_and_described(cluster: Any, consumer: Consumer) -> None:
    assert {
        "group": "readers",
        "state": "Stable",
        "type": "classic",
        "protocol": "consumer",
        "coordinator": 1,
    } in output_of(cluster, "list")
    (member,) = output_of(cluster, "members", "readers")
    assert member["client"] == "reader"
    assert member["partitions"] == [f"{TOPIC}-0", f"{TOPIC}-1"]
    lag = output_of(cluster, "lag", "readers")
    assert [(row["committed"], row["end"], row["lag"]) for row in lag] == [(4, 10, 6)] * 2
    assert {row["member"] for row in lag} == {member["member"]}
    said = cluster.ottla("group", "describe", "readers").stdout
    assert "readers: Stable, 1 member sharing by range" in said


def test_a_group_that_does_not_exist_is_refused(cluster: Any) -> None:
    for verb in (["describe"], ["members"], ["lag"], ["delete", "--yes"]):
        assert "absent" in cluster.ottla("group", *verb, "absent", code=1).stderr


def test_offsets_of_a_group_with_members_stay_where_they_are(
    cluster: Any, consumer: Consumer
) -> None:
    refused = cluster.ottla("group", "reset", "readers", "--to-latest", "--yes", code=1)
    assert "stop them first" in refused.stderr
    assert "readers" in cluster.ottla("group", "delete", "readers", "--yes", code=1).stderr


@pytest.mark.parametrize(
    ("where", "offset"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], 10),
        (["--to-offset", "7"], 7),
        (["--to-offset", "70"], 10),
        (["--shift-by", "-1"], 3),
        (["--to-datetime", "2001-01-01T00:00"], 0),
        (["--to-datetime", "2201-01-01T00:00"], 10),
    ],
)
def test_offsets_are_reset_only_with_execute(
    cluster: Any, consumer: Consumer, where: list[str], offset: int
) -> None:
    consumer.close()
    shown = output_of(cluster, "reset", "readers", *where, "--dry-run")
    assert [(row["from"], row["to"]) for row in shown] == [(4, offset)] * 2
    assert {row["committed"] for row in output_of(cluster, "lag", "readers")} == {4}, "only shown"
    output_of(cluster, "reset", "readers", *where, "--yes")
    assert {row["committed"] for row in output_of(cluster, "lag", "readers")} == {offset}


def test_a_group_without_members_is_deleted(cluster: Any, consumer: Consumer) -> None:
    consumer.close()
    assert output_of(cluster, "delete", "readers", "--yes") == [{"deleted": "readers"}]
    assert "readers" not in {row["group"] for row in output_of(cluster, "list")}
