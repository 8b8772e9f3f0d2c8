"""All APIs that are answered from metadata, or by the controller, together."""

import random
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from ottla.wire.apis import (
    API,
    API_VERSIONS,
    DESCRIBE_ACLS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_DELEGATION_TOKEN,
    DESCRIBE_NODE,
    DESCRIBE_TOPIC_PARTITIONS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    FIND_COORDINATOR,
    FORWARDED_KEYS,
    LIST_CONFIG_RESOURCES,
    METADATA,
    request_class,
)
from ottla.wire.codec_examples import example

Client = Any  # the class of the fixture, in conftest.py
NewClient = Callable[..., Client]

FROM_METADATA = (
    METADATA,
    FIND_COORDINATOR,
    API_VERSIONS,
    DESCRIBE_ACLS,
    DESCRIBE_CONFIGS,
    DESCRIBE_DELEGATION_TOKEN,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    DESCRIBE_CLUSTER,
    LIST_CONFIG_RESOURCES,
    DESCRIBE_TOPIC_PARTITIONS,
    DESCRIBE_NODE,
)


class SeededRng(random.Random):
    """Chance that repeats itself."""

    def below(self, bound: int) -> int:
        return self.randrange(bound)

    def uuid(self) -> UUID:
        return UUID(int=self.getrandbits(128))


@pytest.mark.parametrize("api_key", sorted(FORWARDED_KEYS.union(FROM_METADATA)))
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
