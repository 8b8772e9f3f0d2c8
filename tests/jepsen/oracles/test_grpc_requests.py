from random import Random

import pytest

from ottla.jepsen.fuzz.chance import FuzzRng
from tests.jepsen.oracles.grpc_requests import METHODS, Truth, broken_of, requests_of

TRUTH = Truth({"cluster_id": ["here"], "broker_id": [1], "topic_id": [b"t" * 16]})


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.path)
def test_the_same_seed_gives_the_same_requests_and_all_of_them_can_be_read(method: object) -> None:
    one, two = (
        list(requests_of(method, TRUTH, FuzzRng(Random(3)), bytes_max=4_000))  # type: ignore[arg-type]
        for _ in range(2)
    )
    assert one == two
    for data in one:
        method.request_class.FromString(data)  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.path)
def test_one_request_of_each_method_is_more_than_it_takes(method: object) -> None:
    sizes = [len(data) for data in broken_of(method, FuzzRng(Random(3)))]  # type: ignore[arg-type]
    assert max(sizes) > method.request_bytes_max  # type: ignore[attr-defined]


def test_repeated_fields_hold_one_element_often_and_many_different_ones() -> None:
    (method,) = [each for each in METHODS if each.path.endswith("/AlterPartition")]
    found = [
        method.request_class.FromString(data)
        for data in requests_of(method, TRUTH, FuzzRng(Random(3)), bytes_max=4_000)
    ]
    counts = [max((len(topic.partitions) for topic in each.topics), default=0) for each in found]
    assert max(len(each.topics) for each in found) > 20
    assert max(counts) > 20
