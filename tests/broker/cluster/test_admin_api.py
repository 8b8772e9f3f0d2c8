"""Requests that the active controller decides: forwarded, and answered after their records."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import Provenance
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, Offset
from ottla.node.admin.admin_api import SEEN_HERE_MS_MAX
from ottla.wire.apis import (
    API,
    CREATE_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
    FORWARDED_KEYS,
    RENEW_DELEGATION_TOKEN,
    request_class,
)
from ottla.wire.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest
from ottla.wire.messages.metadata_request import MetadataRequest
from ottla.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from ottla.wire.messages.unregister_broker_response import UnregisterBrokerResponse

Client = Any  # the class of the fixture, in conftest.py
NewClient = Callable[..., Client]

REFUSED_HERE = {CREATE_DELEGATION_TOKEN, RENEW_DELEGATION_TOKEN, EXPIRE_DELEGATION_TOKEN}
"""Requests that are not forwarded for an unauthenticated client."""


@pytest.mark.parametrize("version", range(2, 8))
async def test_create_topics_is_answered_once_this_broker_has_the_topic(
    new_client: NewClient, version: int
) -> None:
    client = new_client()
    client.controller.answer = client.topics_made
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1)]
    )
    await client.send(request, version)
    assert not client.is_answered
    await client.publish(client.image_with("new", leaders=[1]))
    assert client.take_answer(request, version).topics[0].error_code == 0


async def test_a_change_is_answered_once_this_broker_has_its_records(new_client: NewClient) -> None:
    """This holds for every kind of record, and for records committed with others."""
    client = new_client()
    client.controller.answer = lambda _: UnregisterBrokerResponse()
    request = UnregisterBrokerRequest(broker_id=3)
    client.controller.metadata_offset = Offset(79)
    await client.send(request, 0)
    assert not client.is_answered
    await client.publish(client.metadata.image)
    assert client.metadata.image.provenance.offset == 78
    assert not client.is_answered
    await client.publish(client.metadata.image)
    client.take_answer(request, 0)


async def test_a_change_is_answered_once_all_of_this_broker_has_followed_it(
    new_client: NewClient,
) -> None:
    """Its partitions are there then, though their logs may not be: requests wait for these."""
    client = new_client()
    client.controller.answer = lambda _: UnregisterBrokerResponse()
    request = UnregisterBrokerRequest(broker_id=3)
    client.controller.metadata_offset = Offset(79)
    image = client.metadata.image
    newer = replace(image, provenance=Provenance(Offset(79), Epoch(3), 0))
    await client.metadata.publish(MetadataDelta(image), newer)
    await client.send(request, 0)
    assert not client.is_answered
    await client.watch.publish(MetadataDelta(image), newer)
    client.take_answer(request, 0)


async def test_a_client_that_the_controller_throttles_is_read_no_further_here(
    new_client: NewClient,
) -> None:
    client = new_client()
    client.controller.answer = client.topics_made
    client.controller.throttle_time_ms = 12_000
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1)]
    )
    await client.send(request, 7)
    await client.publish(client.image_with("new", leaders=[1]))

    assert client.take_answer(request, 7).throttle_time_ms == 12_000
    assert not client.connection.wants_bytes
    client.connection.resume(11_999)
    assert not client.connection.wants_bytes
    client.connection.resume(12_000)
    assert client.connection.wants_bytes


async def test_what_changed_nothing_is_answered_at_once(new_client: NewClient) -> None:
    client = new_client()
    client.controller.answer = lambda _: UnregisterBrokerResponse()
    client.controller.metadata_offset = Offset(0)
    await client.ask(UnregisterBrokerRequest(broker_id=3), 0)


async def test_records_that_do_not_come_hold_an_answer_up_for_a_bounded_time(
    new_client: NewClient,
) -> None:
    client = new_client()
    client.controller.answer = lambda _: UnregisterBrokerResponse()
    request = UnregisterBrokerRequest(broker_id=3)
    await client.send(request, 0)
    client.purgatory.expire(client.config.request_timeout_ms + SEEN_HERE_MS_MAX)
    client.take_answer(request, 0)


async def test_an_answer_waits_for_no_log_of_the_topics_that_were_made(
    new_client: NewClient,
) -> None:
    """Requests that name these logs wait for them."""
    client = new_client()
    client.controller.answer = client.topics_made
    client.opening.add("new")
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1)]
    )
    await client.send(request, 7)
    assert not client.is_answered
    await client.publish(client.image_with("new", leaders=[1]))
    assert client.take_answer(request, 7).topics[0].error_code == 0


async def test_a_large_answer_passes_as_the_controller_encoded_it(new_client: NewClient) -> None:
    """Nothing of it is decoded, here or apart from the loop."""
    client = new_client()
    client.controller.answer = lambda _: CreateTopicsResponse(
        topics=[
            CreatableTopicResult(
                name="new",
                configs=[CreatableTopicConfigs(name="k" * 500, value="v") for _ in range(40)],
            )
        ]
    )
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1)]
    )
    await client.send(request, 7)
    await client.publish(client.image_with("new", leaders=[1]))
    assert len(client.take_answer(request, 7).topics[0].configs) == 40
    assert client.apart_count == 0


async def test_validating_a_topic_waits_for_nothing(new_client: NewClient) -> None:
    client = new_client()
    client.controller.answer = client.topics_made
    request = CreateTopicsRequest(topics=[CreatableTopic(name="new")], validate_only=True)
    assert (await client.ask(request, 7)).topics[0].name == "new"


@pytest.mark.parametrize(
    ("api_key", "version"),
    [
        (key, version)
        for key in sorted(FORWARDED_KEYS - REFUSED_HERE)
        for version in API[key].advertised
    ],
)
async def test_an_unreachable_controller_is_an_error_in_each_apis_own_form(
    new_client: NewClient, api_key: int, version: int
) -> None:
    client = new_client()
    client.controller.answer = RefusedError(ErrorCode.NETWORK_EXCEPTION)
    request = request_class(api_key)()
    match request:
        case CreateTopicsRequest():
            request.topics = [CreatableTopic(name="new")]
        case CreatePartitionsRequest():
            request.topics = [CreatePartitionsTopic(name="orders", count=9)]
        case DeleteTopicsRequest() if version < 6:
            request.topic_names = ["orders"]
    answer = await client.ask(request, version)
    parts = getattr(answer, "topics", None) or getattr(answer, "results", None)
    parts = parts or getattr(answer, "responses", None) or [answer]
    codes = {getattr(part, "error_code", None) for part in parts}
    if request in (request_class(api_key)(),) and not hasattr(answer, "error_code"):
        return  # the request is empty, so there is nothing to report
    if api_key == 43 and version == 0:
        return  # ElectLeaders 0 has an error for each partition only
    assert codes == {ErrorCode.REQUEST_TIMED_OUT}


async def test_the_request_after_a_forwarded_one_waits_for_its_answer(
    new_client: NewClient,
) -> None:
    client = new_client()
    client.controller.answer = client.topics_made
    await client.send(CreateTopicsRequest(topics=[CreatableTopic(name="new")]), 7)
    await client.send(MetadataRequest(), 1)
    assert not client.is_answered
    await client.publish(client.image_with("new", leaders=[1]))
    client.connection.resume(0)
    assert client.connection.request_count == 2
