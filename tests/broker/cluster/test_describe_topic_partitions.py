"""DescribeTopicPartitions: page by page."""

from collections.abc import Callable
from typing import Any

from ottla.model.errors import ErrorCode
from ottla.wire.messages.describe_topic_partitions_request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)

Client = Any  # the class of the fixture, in conftest.py
NewClient = Callable[..., Client]


async def test_topic_partitions_come_in_pages(new_client: NewClient) -> None:
    client = new_client()
    seen = []
    cursor = None
    for _ in range(10):
        request = DescribeTopicPartitionsRequest(response_partition_limit=2, cursor=cursor)
        answer = await client.ask(request, 0)
        assert sum(len(topic.partitions) for topic in answer.topics) <= 2
        seen += [(t.name, p.partition_index) for t in answer.topics for p in t.partitions]
        if answer.next_cursor is None:
            break
        cursor = Cursor(
            topic_name=answer.next_cursor.topic_name,
            partition_index=answer.next_cursor.partition_index,
        )
    assert seen == [("audit", 0), ("orders", 0), ("orders", 1), ("orders", 2)]


async def page(client: Client, name: str, index: int, *topics: str) -> list[Any]:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=topic) for topic in topics],
        response_partition_limit=100,
        cursor=Cursor(topic_name=name, partition_index=index),
    )
    return [
        (topic.name, topic.error_code, [p.partition_index for p in topic.partitions])
        for topic in (await client.ask(request, 0)).topics
    ]


async def test_a_page_begins_where_the_cursor_says_whatever_became_of_it(
    new_client: NewClient,
) -> None:
    client = new_client()
    assert await page(client, "b-deleted", 3) == [("orders", 0, [0, 1, 2])]
    assert await page(client, "orders", 9) == [("orders", 0, [])]
    assert await page(client, "orders", 1, "orders", "audit") == [("orders", 0, [1, 2])]
    assert await page(client, "zzz", 0) == []


async def test_a_cursor_before_the_first_partition_is_an_invalid_request(
    new_client: NewClient,
) -> None:
    """Kafka: "DescribeTopicPartitionsRequest cursor partition must be valid"."""
    found = await page(new_client(), "audit", -1, "orders", "audit")
    assert found == [(name, ErrorCode.INVALID_REQUEST, []) for name in ("audit", "orders")]


async def test_topic_partitions_tell_the_eligible_leaders(new_client: NewClient) -> None:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name="orders"), TopicRequest(name="nowhere")]
    )
    answer = await new_client().ask(request, 0)
    assert [(t.name, t.error_code) for t in answer.topics] == [
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", 0),
    ]
    first = answer.topics[1].partitions[0]
    assert (first.isr_nodes, first.eligible_leader_replicas) == ([2], [1])
