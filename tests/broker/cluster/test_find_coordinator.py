"""FindCoordinator: the coordinator of a key, and the internal topics created before it."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.metadata.image import (
    MetadataImage,
)
from ottla.model.errors import ErrorCode, RefusedError
from ottla.wire.messages.create_topics_request import CreateTopicsRequest
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest

Client = Any  # the class of the fixture, in conftest.py
NewClient = Callable[..., Client]


GROUP, TRANSACTION, SHARE = 0, 1, 2

SHARE_KEYS = [
    "g:ABEiM0RVZneImaq7zN3u_w:3",
    "a:b:ABEiM0RVZneImaq7zN3u_w:-1",
]
"""Keys of share partitions. A group id may contain colons."""


def with_state_topic(client: Client, leader: int) -> MetadataImage:
    image: MetadataImage = client.image_with("__consumer_offsets", leaders=[leader] * 50)
    return image


def coordinators_of(answer: Any, version: int) -> list[Any]:
    return [answer] if version < 4 else list(answer.coordinators)


def find_request(version: int, key_type: int = 0) -> FindCoordinatorRequest:
    if version < 4:
        return FindCoordinatorRequest(key="g", key_type=key_type if version else 0)
    return FindCoordinatorRequest(coordinator_keys=["g", "h"], key_type=key_type)


@pytest.mark.parametrize("version", range(7))
async def test_a_coordinator_leads_the_partition_that_has_the_state(
    new_client: NewClient, version: int
) -> None:
    client = new_client()
    client.metadata.image = with_state_topic(client, leader=2)
    answer = await client.ask(find_request(version), version)
    found = coordinators_of(answer, version)
    assert {(f.error_code, f.node_id, f.host, f.port) for f in found} == {(0, 2, "broker2", 9092)}
    assert len(found) == (1 if version < 4 else 2)


@pytest.mark.parametrize("leader", [-1, 3])
async def test_a_group_whose_partition_has_no_leader_has_no_coordinator(
    new_client: NewClient, leader: int
) -> None:
    client = new_client()
    client.metadata.image = with_state_topic(client, leader)
    answer = await client.ask(find_request(2), 2)
    assert (answer.error_code, answer.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


async def test_the_first_group_has_the_offsets_topic_made_and_waits_for_its_leaders(
    new_client: NewClient,
) -> None:
    client = new_client()
    client.controller.answer = client.topics_made
    await client.send(find_request(6), 6)
    assert not client.is_answered
    (asked,) = client.controller.requests
    assert isinstance(asked, CreateTopicsRequest)
    (topic,) = asked.topics
    assert (topic.name, topic.num_partitions) == ("__consumer_offsets", 50)
    assert client.controller.principals == [""], "no client's quota is charged for it"
    assert topic.replication_factor == 3
    assert {(one.name, one.value) for one in topic.configs} >= {("cleanup.policy", "compact")}
    await client.publish(with_state_topic(client, leader=1))
    answer = client.take_answer(find_request(6), 6)
    assert {found.node_id for found in answer.coordinators} == {1}


async def test_a_coordinator_is_named_once_the_logs_of_its_topic_are_open_here(
    new_client: NewClient,
) -> None:
    client = new_client()
    opening = {"__consumer_offsets"}
    client.metadata.is_opening = opening.__contains__
    client.metadata.image = with_state_topic(client, leader=1)
    await client.send(find_request(6), 6)
    assert not client.is_answered
    opening.clear()
    await client.publish(client.metadata.image)
    answer = client.take_answer(find_request(6), 6)
    assert {found.node_id for found in answer.coordinators} == {1}


@pytest.mark.parametrize("version", range(1, 7))
async def test_transactions_are_coordinated_by_the_leader_of_their_state(
    new_client: NewClient, version: int
) -> None:
    client = new_client()
    client.metadata.image = client.image_with("__transaction_state", leaders=[2] * 50)
    answer = await client.ask(find_request(version, TRANSACTION), version)
    found = coordinators_of(answer, version)
    assert {(f.error_code, f.node_id, f.host, f.port) for f in found} == {(0, 2, "broker2", 9092)}


async def test_the_first_transactional_id_has_the_topic_of_its_state_made(
    new_client: NewClient,
) -> None:
    client = new_client()
    client.controller.answer = RefusedError(ErrorCode.INVALID_REPLICATION_FACTOR)
    answer = await client.ask(find_request(6, TRANSACTION), 6)
    codes = {found.error_code for found in answer.coordinators}
    assert codes == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    (request,) = client.controller.requests
    assert isinstance(request, CreateTopicsRequest)
    (topic,) = request.topics
    assert (topic.name, topic.num_partitions) == ("__transaction_state", 50)
    assert topic.replication_factor == 3
    assert {config.name: config.value for config in topic.configs} == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "segment.bytes": "104857600",
        "min.insync.replicas": "2",
        "unclean.leader.election.enable": "false",
    }


async def test_without_room_for_the_offsets_topic_there_is_no_coordinator(
    new_client: NewClient,
) -> None:
    client = new_client()
    client.controller.answer = RefusedError(ErrorCode.INVALID_REPLICATION_FACTOR)
    answer = await client.ask(find_request(6), 6)
    codes = {found.error_code for found in answer.coordinators}
    assert codes == {ErrorCode.COORDINATOR_NOT_AVAILABLE}


@pytest.mark.parametrize(
    ("key_type", "version", "code"),
    [
        (2, 6, ErrorCode.INVALID_REQUEST),
        (2, 5, ErrorCode.INVALID_REQUEST),
        (9, 6, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_key_that_names_nothing_is_refused(
    new_client: NewClient, key_type: int, version: int, code: ErrorCode
) -> None:
    answer = await new_client().ask(find_request(version, key_type), version)
    assert {found.error_code for found in answer.coordinators} == {code}


async def test_a_share_partition_is_coordinated_by_the_leader_of_its_state(
    new_client: NewClient,
) -> None:
    client = new_client()
    client.metadata.image = client.image_with("__share_group_state", leaders=[2] * 50)
    request = FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[*SHARE_KEYS, "g:x:3"])
    answer = await client.ask(request, 6)
    assert [(one.key, one.error_code, one.node_id) for one in answer.coordinators] == [
        (SHARE_KEYS[0], 0, 2),
        (SHARE_KEYS[1], 0, 2),
        ("g:x:3", ErrorCode.INVALID_REQUEST, -1),
    ]


async def test_the_first_share_partition_has_the_topic_of_its_state_made(
    new_client: NewClient,
) -> None:
    client = new_client()
    client.controller.answer = RefusedError(ErrorCode.INVALID_REPLICATION_FACTOR)
    request = FindCoordinatorRequest(key_type=SHARE, coordinator_keys=SHARE_KEYS)
    answer = await client.ask(request, 6)
    codes = {found.error_code for found in answer.coordinators}
    assert codes == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    (request,) = client.controller.requests
    (topic,) = request.topics
    assert (topic.name, topic.num_partitions) == ("__share_group_state", 50)
    assert topic.replication_factor == 3
    assert {config.name: config.value for config in topic.configs} == {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "segment.bytes": "104857600",
        "min.insync.replicas": "2",
        "retention.ms": "-1",
    }


@pytest.mark.parametrize(
    "key",
    [
        "",
        "g",
        "g:t",
        "g:ABEiM0RVZneImaq7zN3u_w",
        ":ABEiM0RVZneImaq7zN3u_w:3",
        " :ABEiM0RVZneImaq7zN3u_w:3",
        "g:ABEiM0RVZneImaq7zN3u_w:",
        "g:ABEiM0RVZneImaq7zN3u_w:x",
        "g:ABEiM0RVZneImaq7zN3u_w:1.0",
        "g:ABEiM0RVZneImaq7zN3:3",
        "g:é:3",
    ],
)
async def test_a_bad_key_of_a_share_partition_is_refused_and_makes_no_topic(
    new_client: NewClient, key: str
) -> None:
    client = new_client()
    request = FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key])
    answer = await client.ask(request, 6)
    assert [one.error_code for one in answer.coordinators] == [ErrorCode.INVALID_REQUEST]
    assert client.controller.requests == []
