"""Groups of the consumer protocol (KIP-848), as other people's clients and admins see them."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
)
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient

pytestmark = pytest.mark.cluster

PARTITION_COUNT = 6


@pytest.fixture
def admin(cluster: Any) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


@pytest.fixture
def join(cluster: Any, admin: AdminClient) -> Iterator[Callable[..., Consumer]]:
    """Makes consumers that join by the consumer protocol, and stops them at the end."""
    consumers: list[Consumer] = []

    def start(group: str, topics: list[str], **changes: Any) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                **changes,
            }
        )
        consumer.subscribe(topics)
        consumers.append(consumer)
        return consumer

    yield start
    for consumer in consumers:
        consumer.close()


def make_topics(admin: AdminClient, *topics: str) -> None:
    made = admin.create_topics([NewTopic(topic, PARTITION_COUNT) for topic in topics])
    for future in made.values():
        future.result(timeout=60)


def have(cluster: Any, consumers: list[Consumer], topic: str, sizes: list[int]) -> None:
    """Poll until the consumers own a number of the topic's partitions, each with one owner."""

    def owned() -> bool:
        for consumer in consumers:
            consumer.poll(0.05)
        parts = [
            [at.partition for at in consumer.assignment() if at.topic == topic]
            for consumer in consumers
        ]
        indexes = sorted(index for part in parts for index in part)
        return [len(part) for part in parts] == sizes and indexes == list(range(PARTITION_COUNT))

    cluster.wait_for(owned, f"shares of {sizes}")


def test_admins_list_groups_by_type_and_describe_those_of_the_new_one(
    cluster: Any, admin: AdminClient, kafka: KafkaAdminClient, join: Callable[..., Consumer]
) -> None:
    make_topics(admin, "kinds")
    consumers = [join("new-kind", ["kinds"], **{"client.id": name}) for name in ("one", "two")]
    old = join("old-kind", ["kinds"], **{"group.protocol": "classic"})
    have(cluster, consumers, "kinds", [3, 3])
    have(cluster, [old], "kinds", [6])

    def listed(**wanted: Any) -> dict[str, ConsumerGroupType]:
        found = admin.list_consumer_groups(**wanted).result(60).valid
        return {one.group_id: one.type for one in found if one.group_id.endswith("-kind")}

    new_only = {"new-kind": ConsumerGroupType.CONSUMER}
    old_only = {"old-kind": ConsumerGroupType.CLASSIC}
    assert listed() == new_only | old_only
    assert listed(types={ConsumerGroupType.CONSUMER}) == new_only
    assert listed(types={ConsumerGroupType.CLASSIC}) == old_only
    assert listed(states={ConsumerGroupState.EMPTY}) == {}
    of_kafka_python = {one["group_id"]: one for one in kafka.list_groups(types_filter=["consumer"])}
    assert of_kafka_python["new-kind"]["group_type"] == "consumer"
    assert "old-kind" not in of_kafka_python

    found = admin.describe_consumer_groups(["new-kind"])["new-kind"].result(60)
    assert found.type == ConsumerGroupType.CONSUMER
    assert found.state == ConsumerGroupState.STABLE
    assert found.partition_assignor == "uniform"
    assert {member.client_id for member in found.members} == {"one", "two"}
    for member in found.members:
        has = member.assignment.topic_partitions
        assert len(has) == 3
        assert sorted(has) == sorted(member.target_assignment.topic_partitions)
    # It knows the classic protocol only, and gets the answer that Kafka gives.
    assert "not a classic group" in kafka.describe_groups(["new-kind"])["new-kind"]["error"]


def test_the_command_line_shows_what_a_real_consumer_subscribes_and_has(
    cluster: Any, admin: AdminClient, join: Callable[..., Consumer]
) -> None:
    make_topics(admin, "shown-a", "shown-b", "hidden")
    consumer = join("shown", ["^shown-.*"], **{"group.instance.id": "i1"})
    have(cluster, [consumer], "shown-b", [PARTITION_COUNT])

    described = json.loads(cluster.ottla("group", "describe", "shown", "--format", "json").stdout)
    assert (described["type"], described["state"], described["assignor"]) == (
        "consumer",
        "Stable",
        "uniform",
    )
    assert {row["topic"] for row in described["partitions"]} == {"shown-a", "shown-b"}
    (member,) = json.loads(cluster.ottla("group", "members", "shown", "--format", "json").stdout)
    assert (member["instance"], member["topics"]) == ("i1", [])
    assert member["regex"] == "(^shown-.*)", "librdkafka makes one of all that is subscribed"
    assert member["partitions"] == member["target"]
    assert len(member["partitions"]) == 2 * PARTITION_COUNT


def test_range_is_shared_out_in_runs_when_members_ask_for_it(
    cluster: Any, admin: AdminClient, join: Callable[..., Consumer]
) -> None:
    make_topics(admin, "runs")
    ranged = {"group.remote.assignor": "range"}
    consumers = [join("runs", ["runs"], **ranged) for _ in range(2)]
    have(cluster, consumers, "runs", [3, 3])
    parts = [sorted(at.partition for at in consumer.assignment()) for consumer in consumers]
    assert sorted(parts) == [[0, 1, 2], [3, 4, 5]]
    found = admin.describe_consumer_groups(["runs"])["runs"].result(60)
    assert found.partition_assignor == "range"


def test_a_group_is_deleted_when_its_members_have_left(
    cluster: Any, admin: AdminClient, join: Callable[..., Consumer]
) -> None:
    make_topics(admin, "left")
    consumer = join("left", ["left"])
    have(cluster, [consumer], "left", [PARTITION_COUNT])
    with pytest.raises(KafkaException) as refusal:
        admin.delete_consumer_groups(["left"])["left"].result(60)
    assert refusal.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    consumer.close()
    admin.delete_consumer_groups(["left"])["left"].result(60)
    found = admin.list_consumer_groups().result(60).valid
    assert "left" not in {one.group_id for one in found}
