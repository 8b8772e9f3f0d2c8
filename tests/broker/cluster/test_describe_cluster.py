"""DescribeCluster: the brokers and controllers of a cluster."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.model.errors import ErrorCode
from ottla.wire.messages.describe_cluster_request import DescribeClusterRequest

Client = Any  # the class of the fixture, in conftest.py
NewClient = Callable[..., Client]


@pytest.mark.parametrize("version", range(3))
async def test_describe_cluster_names_the_live_brokers(new_client: NewClient, version: int) -> None:
    client = new_client()
    answer = await client.ask(DescribeClusterRequest(), version)
    assert [(b.broker_id, b.host) for b in answer.brokers] == [(1, "broker1"), (2, "broker2")]
    assert (answer.cluster_id, answer.controller_id) == (client.cluster_id, 1)


async def test_describe_cluster_names_fenced_brokers_when_asked(new_client: NewClient) -> None:
    answer = await new_client().ask(DescribeClusterRequest(include_fenced_brokers=True), 2)
    assert [(b.broker_id, b.is_fenced) for b in answer.brokers] == [
        (1, False),
        (2, False),
        (3, True),
    ]


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
async def test_a_broker_does_not_describe_controllers(
    new_client: NewClient, endpoint_type: int, code: int
) -> None:
    answer = await new_client().ask(DescribeClusterRequest(endpoint_type=endpoint_type), 1)
    assert answer.error_code == code
