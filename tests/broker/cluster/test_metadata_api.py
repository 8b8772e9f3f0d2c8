"""Metadata: topics by name and by id, and topics that a request creates."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from ottla.metadata.persistent_map import PersistentMap
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.endpoints import ListenAddress as ConfiguredEndpoint
from ottla.wire.codec import encode
from ottla.wire.headers import encode_request_header
from ottla.wire.messages.create_topics_request import CreateTopicsRequest
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic

Client = Any  # the class of the fixture, in conftest.py
NewClient = Callable[..., Client]

ORDERS_ID = UUID(int=1000)  # of the image there


def named(*names: str) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in names]


@pytest.mark.parametrize("version", range(14))
async def test_every_version_of_metadata_describes_all_topics(
    new_client: NewClient, version: int
) -> None:
    client = new_client()
    answer = await client.ask(MetadataRequest(topics=None if version else []), version)
    assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [
        (1, "broker1", 9092),
        (2, "broker2", 9092),
    ]
    assert [topic.name for topic in answer.topics] == ["audit", "orders"]
    orders = answer.topics[1]
    assert [p.leader_id for p in orders.partitions] == [2, 1, -1]
    assert [p.error_code for p in orders.partitions] == [0, 0, ErrorCode.LEADER_NOT_AVAILABLE]
    assert orders.partitions[0].replica_nodes == [2, 1]
    if version >= 1:
        assert answer.controller_id == 1
        assert answer.brokers[0].rack == "rack1"
    if version >= 2:
        assert answer.cluster_id == client.cluster_id
    if version >= 5:
        assert [p.offline_replicas for p in orders.partitions] == [[], [3], [3]]
    if version >= 7:
        assert orders.partitions[0].leader_epoch == 4
    if version >= 10:
        assert orders.topic_id == ORDERS_ID


async def test_no_topics_asked_for_are_none_answered(new_client: NewClient) -> None:
    assert (await new_client().ask(MetadataRequest(topics=[]), 1)).topics == []


async def test_where_all_brokers_are_fenced_the_one_that_answers_is_named(
    new_client: NewClient,
) -> None:
    """A client that receives an empty broker list may never send another request."""
    client = new_client()
    image = client.metadata.image
    fenced = {node: replace(one, is_fenced=True) for node, one in image.brokers.items()}
    client.metadata.image = replace(image, brokers=PersistentMap(fenced))
    answer = await client.ask(MetadataRequest(topics=[]), 12)
    assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [(1, "broker1", 9092)]


async def test_topics_are_found_by_their_ids(new_client: NewClient) -> None:
    request = MetadataRequest(
        topics=[
            MetadataRequestTopic(topic_id=ORDERS_ID, name=None),
            MetadataRequestTopic(topic_id=UUID(int=9), name=None),
        ]
    )
    found, unknown = (await new_client().ask(request, 12)).topics
    assert found.name == "orders"
    assert len(found.partitions) == 3
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert unknown.topic_id == UUID(int=9)


async def test_topic_ids_before_version_12_are_an_invalid_request(new_client: NewClient) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=ORDERS_ID, name="")])
    (topic,) = (await new_client().ask(request, 10)).topics
    assert topic.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ü", "x" * 250])
async def test_a_name_no_topic_may_have_is_said_to_be_invalid(
    new_client: NewClient, name: str
) -> None:
    client = new_client()
    (topic,) = (await client.ask(MetadataRequest(topics=named(name)), 9)).topics
    assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert client.controller.requests == []


async def test_a_missing_topic_is_not_made_when_the_client_does_not_want_it(
    new_client: NewClient,
) -> None:
    client = new_client()
    request = MetadataRequest(topics=named("new"), allow_auto_topic_creation=False)
    (topic,) = (await client.ask(request, 9)).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.controller.requests == []


async def test_a_missing_topic_is_not_made_when_the_broker_does_not_allow_it(
    new_client: NewClient,
) -> None:
    client = new_client(BrokerConfig(node_id=NodeId(1), auto_create_topics_enable=False))
    (topic,) = (await client.ask(MetadataRequest(topics=named("new")), 9)).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.controller.requests == []


async def test_a_missing_topic_is_made_and_the_answer_waits_until_it_is_seen_here(
    new_client: NewClient,
) -> None:
    client = new_client()
    client.controller.answer = client.topics_made
    request = MetadataRequest(topics=named("new", "orders"))
    await client.send(request, 9)
    assert not client.is_answered
    (forwarded,) = client.controller.requests
    assert isinstance(forwarded, CreateTopicsRequest)
    assert [topic.name for topic in forwarded.topics] == ["new"]
    assert forwarded.topics[0].num_partitions == -1
    await client.publish(client.image_with("new", leaders=[1]))
    topics = client.take_answer(request, 9).topics
    assert [(t.name, t.error_code, len(t.partitions)) for t in topics] == [
        ("new", 0, 1),
        ("orders", 0, 3),
    ]
    assert client.purgatory.waiting_count == 0


async def test_a_topic_that_could_not_be_made_is_unknown(new_client: NewClient) -> None:
    client = new_client()
    (topic,) = (await client.ask(MetadataRequest(topics=named("new")), 9)).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_clients_that_want_the_same_new_topic_share_one_request_and_its_refusal(
    new_client: NewClient,
) -> None:
    first, request = new_client(), MetadataRequest(topics=named("new"))
    second = first.another()
    first.send_without_running(request, 9)
    slot, asking = first.pending.pop()
    first.controller.pause = True
    asking.send(None)
    await second.send(request, 9)
    assert not second.is_answered
    with pytest.raises(StopIteration):
        asking.send(None)
    first.connection.on_coroutine_ended(slot, None)
    assert len(first.controller.requests) == 1
    for client in (first, second):
        (topic,) = client.take_answer(request, 9).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_made_topic_that_is_never_seen_is_unknown_at_the_deadline(
    new_client: NewClient,
) -> None:
    client = new_client()
    client.controller.answer = client.topics_made
    request = MetadataRequest(topics=named("new"))
    await client.send(request, 9)
    deadline_ms = client.purgatory.next_deadline_ms
    assert deadline_ms is not None
    client.purgatory.expire(deadline_ms)
    (topic,) = client.take_answer(request, 9).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_client_that_leaves_while_its_topic_is_made_leaves_nothing_behind(
    new_client: NewClient,
) -> None:
    client = new_client()
    client.controller.answer = client.topics_made
    await client.send(MetadataRequest(topics=named("new")), 9)
    assert client.purgatory.waiting_count == 1
    client.connection.close()
    assert client.purgatory.waiting_count == 0


async def test_the_reached_address_is_advertised_when_none_is_configured(
    new_client: NewClient,
) -> None:
    client = new_client(BrokerConfig(node_id=NodeId(1)))
    answer = await client.ask(MetadataRequest(topics=[]), 9)
    assert [(b.host, b.port) for b in answer.brokers] == [("10.0.0.1", 9092), ("broker2", 9092)]


async def test_a_listener_with_a_host_is_advertised_alike_by_all_brokers(
    new_client: NewClient,
) -> None:
    """Else one broker would go by two names, and a client hold two connections to it."""
    listeners = (ConfiguredEndpoint("PLAINTEXT", "broker1", 9092),)
    client = new_client(BrokerConfig(node_id=NodeId(1), listeners=listeners))
    answer = await client.ask(MetadataRequest(topics=[]), 9)
    assert [(b.host, b.port) for b in answer.brokers] == [("broker1", 9092), ("broker2", 9092)]


@pytest.mark.parametrize("version", [8, 9, 10, 12])
async def test_authorized_operations_are_included_on_request(
    new_client: NewClient, version: int
) -> None:
    request = MetadataRequest(
        topics=named("orders"),
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=version <= 10,
    )
    answer = await new_client().ask(request, version)
    assert answer.topics[0].topic_authorized_operations == 3576
    if version <= 10:
        assert answer.cluster_authorized_operations == 8096


@pytest.mark.parametrize("version", [0, 1, 9, 12, 13])
async def test_a_topic_named_often_is_answered_once(new_client: NewClient, version: int) -> None:
    names = ["orders", "none", "audit", "orders", "none"] * 400
    asked = [MetadataRequestTopic(name=name) for name in names]
    client = new_client()
    answer = await client.ask(
        MetadataRequest(topics=asked, allow_auto_topic_creation=version < 4), version
    )
    assert [topic.name for topic in answer.topics] == ["orders", "none", "audit"]


async def test_a_topic_id_named_often_is_answered_once(new_client: NewClient) -> None:
    topic_id = new_client().metadata.image.topic_ids["orders"]
    asked = [MetadataRequestTopic(topic_id=topic_id, name=None) for _ in range(2_000)]
    answer = await new_client().ask(
        MetadataRequest(topics=asked, allow_auto_topic_creation=False), 12
    )
    assert [topic.name for topic in answer.topics] == ["orders"]


async def test_many_topics_are_described_in_steps(new_client: NewClient) -> None:
    client = new_client()
    for number in range(100):
        await client.publish(client.image_with(f"topic-{number}", leaders=[1] * 10))
    answer = await client.ask(MetadataRequest(topics=None), 12)
    assert client.stepped_count == 1
    assert len(answer.topics) == 102
    assert sum(len(topic.partitions) for topic in answer.topics) == 1_004


async def test_a_request_asked_again_is_answered_the_same_until_the_image_changes(
    new_client: NewClient,
) -> None:
    client = new_client()
    request = MetadataRequest(topics=named("orders", "new"), allow_auto_topic_creation=False)
    first = await client.ask(request, 12)
    assert await client.ask(request, 12) == first
    assert await client.another().ask(request, 12) == first
    await client.publish(client.image_with("new", leaders=[1]))
    assert [topic.error_code for topic in (await client.ask(request, 12)).topics] == [0, 0]


async def test_each_client_is_answered_with_the_address_it_connected_to(
    new_client: NewClient,
) -> None:
    everywhere = (ConfiguredEndpoint("PLAINTEXT", "", 9092),)
    client = new_client(BrokerConfig(node_id=NodeId(1), listeners=everywhere))
    other = client.another()
    other.connection.peer.local_host = "10.0.0.2"
    request = MetadataRequest(topics=[])
    assert (await client.ask(request, 12)).brokers[0].host == "10.0.0.1"
    assert (await other.ask(request, 12)).brokers[0].host == "10.0.0.2"
    assert (await client.ask(request, 12)).brokers[0].host == "10.0.0.1"


async def test_each_answer_has_the_correlation_id_of_its_own_request(
    new_client: NewClient,
) -> None:
    client = new_client()
    request = MetadataRequest(topics=named("orders"))
    for correlation_id in (7, 8):
        header = encode_request_header(request.API_KEY, 12, correlation_id, "test")
        body = header + encode(request, 12)
        client.connection.on_bytes(memoryview(len(body).to_bytes(4, "big") + body), 0)
        (answer,) = client.connection.output.chunks
        assert isinstance(answer, bytes)
        client.connection.output.on_sent(len(answer))
        assert int.from_bytes(answer[4:8], "big") == correlation_id
