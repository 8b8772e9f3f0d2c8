"""ListConfigResources: the resources that have settings."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ottla.metadata.persistent_map import PersistentMap
from ottla.model.errors import ErrorCode
from ottla.wire.apis import LIST_CONFIG_RESOURCES, request_class

Client = Any  # the class of the fixture, in conftest.py
NewClient = Callable[..., Client]


async def resources(client: Client, *types: int, version: int = 1) -> tuple[int, list[Any]]:
    request: Any = request_class(LIST_CONFIG_RESOURCES)()
    request.resource_types = list(types)
    answer = await client.ask(request, version)
    return answer.error_code, [
        (one.resource_type, one.resource_name) for one in answer.config_resources
    ]


def with_settings(client: Client) -> Client:
    image = client.metadata.image
    setting = PersistentMap({"interval.ms": "1000"})
    configs = image.configs.set((16, "lag"), setting).set((32, "workers"), setting)
    client.metadata.image = replace(image, configs=configs)
    return client


async def test_resources_are_listed_by_their_types(new_client: NewClient) -> None:
    """KIP-1142: every topic, every live broker twice (its settings, its loggers), and resources
    with settings."""
    client = with_settings(new_client())
    everything = [
        (2, "audit"),
        (2, "orders"),
        *((4, node) for node in "12"),
        *((8, node) for node in "12"),
        (16, "lag"),
        (32, "workers"),
    ]
    assert await resources(client) == (ErrorCode.NONE, everything)
    assert await resources(client, 32, 2) == (
        ErrorCode.NONE,
        [(32, "workers"), (2, "audit"), (2, "orders")],
    )


async def test_version_0_knows_client_metrics_only(new_client: NewClient) -> None:
    """As ListClientMetricsResources, which it was called before."""
    assert await resources(with_settings(new_client()), version=0) == (
        ErrorCode.NONE,
        [(16, "lag")],
    )


@pytest.mark.parametrize("kind", [0, 3, 99])
async def test_an_unknown_resource_type_is_an_unsupported_version(
    new_client: NewClient, kind: int
) -> None:
    assert await resources(new_client(), 2, kind) == (ErrorCode.UNSUPPORTED_VERSION, [])
