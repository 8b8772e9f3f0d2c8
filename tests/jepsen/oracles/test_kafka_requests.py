"""The requests of the oracles can be encoded, and are as hostile as their names announce."""

from uuid import UUID

import pytest

from ottla.jepsen.world.rng import SeededRng
from ottla.model.limits import KIB
from ottla.wire.apis import API, request_class
from ottla.wire.codec import decode, encode
from ottla.wire.messages.metadata_request import MetadataRequest
from ottla.wire.messages.offset_fetch_request import OffsetFetchRequest
from tests.jepsen.oracles.kafka_requests import (
    SHAPES,
    ClusterNames,
    ExistingTopic,
    KafkaShape,
    request_of,
    requests_of,
)
from tests.jepsen.search_length import length

REQUEST_BYTES = length(2, 8) * KIB
NAMES = ClusterNames(
    topics=[
        ExistingTopic(name=f"t{i}", id=UUID(int=1000 + i), partition_count=1) for i in range(50)
    ],
    groups=[f"g{i}" for i in range(20)],
)


@pytest.mark.parametrize("api_key", sorted(API))
def test_every_request_can_be_sent_and_read(api_key: int) -> None:
    api = API[api_key]
    for version in range(api.lowest, api.highest + 1):
        for request in requests_of(api_key, version, SeededRng(1), NAMES, bytes_max=REQUEST_BYTES):
            data = encode(request, version)
            again = decode(request_class(api_key), version, data)
            # Compared as bytes: not-a-number equals nothing.
            assert encode(again, version) == data
            assert len(data) < 16 * KIB + 3 * 32_000 * 12


def test_one_seed_gives_the_same_requests() -> None:
    for shape in SHAPES:
        first, second = (
            encode(request_of(shape, 8, 9, SeededRng(7), NAMES, bytes_max=4 * KIB), 9)
            for _ in range(2)
        )
        assert first == second


def test_a_duplicated_request_names_one_topic_again_and_again() -> None:
    request = request_of(KafkaShape.DUPLICATED, 3, 12, SeededRng(1), NAMES)
    assert isinstance(request, MetadataRequest)
    assert request.topics is not None
    assert len(request.topics) > 1_000
    assert {topic.name for topic in request.topics} == {"t0"}


def test_a_nested_request_has_many_elements_on_every_level() -> None:
    request = request_of(KafkaShape.INVENTED_NESTED, 9, 9, SeededRng(1), NAMES)
    assert isinstance(request, OffsetFetchRequest)
    assert len(request.groups) > 10
    first = request.groups[0]
    assert first.topics is not None
    assert len(first.topics) > 2
    assert len(first.topics[0].partition_indexes) > 2
