"""All APIs that are answered from metadata, or by the controller, together."""

import random
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.cluster.cluster_apis import (
    CLUSTER_API_KEYS,
)
from ottla.wire.apis import API, request_class
from ottla.wire.codec_examples import example

Client = Any  # the class of the fixture, in conftest.py
NewClient = Callable[..., Client]


class SeededRng(random.Random):
    """Chance that repeats itself."""

    def below(self, bound: int) -> int:
        return self.randrange(bound)

    def uuid(self) -> UUID:
        return UUID(int=self.getrandbits(128))


@pytest.mark.parametrize("api_key", sorted(CLUSTER_API_KEYS | {10, 18, 20000}))
async def test_random_requests_of_every_version_are_answered(
    new_client: NewClient, api_key: int
) -> None:
    client = new_client()
    rng = SeededRng(api_key)
    for version in range(API[api_key].lowest, API[api_key].latest_stable + 1):
        for _ in range(30):
            request = example(request_class(api_key), version, rng)
            await client.send(request, version)
            if not client.is_answered:
                deadline_ms = client.purgatory.next_deadline_ms
                assert deadline_ms is not None
                client.purgatory.expire(deadline_ms)
            client.take_answer(request, version)
