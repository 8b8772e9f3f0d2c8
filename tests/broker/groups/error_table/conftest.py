"""A broker whose coordinator is asked wrong things, over a real socket.

With KAFKA_BOOTSTRAP=host:port in the environment that is any Kafka, else one of ours.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from ottla.client.network.connection import BrokerConnection, open_connection
from ottla.client.testing import open_test_cluster
from ottla.model.errors import ErrorCode
from ottla.model.settings.endpoints import parse_bootstrap
from ottla.wire.apis import response_class
from ottla.wire.codec_types import Message
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.api_versions_response import ApiVersionsResponse
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse

OTHER_BROKER = os.environ.get("KAFKA_BOOTSTRAP")
TOPICS = ("error-table", "error-table-elsewhere")
LOADING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


class AskedBroker:
    """The coordinator of all groups."""

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection
        self._served: dict[int, range] = {}

    async def prepare(self) -> None:
        """Make the topics, wait for the coordinator, and learn which versions it has."""
        topics = [
            CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in TOPICS
        ]
        request = self._connection.request
        await request(CreateTopicsRequest(topics=topics), CreateTopicsResponse)
        find = FindCoordinatorRequest(coordinator_keys=["g"])
        with trio.fail_after(30):
            while (await request(find, FindCoordinatorResponse)).coordinators[0].error_code:
                await trio.sleep(0.1)
        versions = ApiVersionsRequest(client_software_name="table", client_software_version="1")
        self._served = {
            one.api_key: range(one.min_version, one.max_version + 1)
            for one in (await request(versions, ApiVersionsResponse)).api_keys
        }

    def serves(self, request: Message, version: int) -> bool:
        """Return whether it has this version of a request."""
        return version in self._served.get(request.API_KEY, ())

    async def ask(self, request: Message, version: int | None = None) -> Any:
        """Ask again while the coordinator loads its groups."""
        with trio.fail_after(30):
            while True:
                kind = response_class(request.API_KEY)
                answer = await self._connection.request(request, kind, version)
                if code_in(answer) not in LOADING:
                    return answer
                await trio.sleep(0.1)

    async def code_of(self, request: Message, version: int) -> ErrorCode:
        """Return the first error of the answer."""
        return code_in(await self.ask(request, version))

    async def accepted(self, request: Message) -> Any:
        """Return the answer to something nobody refuses, in the newest version of both."""
        answer = await self.ask(request)
        assert code_in(answer) is ErrorCode.NONE, answer
        return answer


def code_in(answer: Any) -> ErrorCode:
    """Return the first error an answer has: of the whole, or of the one thing asked for."""
    code = getattr(answer, "error_code", 0)
    if code:
        return ErrorCode(code)
    for name in ("groups", "topics", "partitions", "members", "results"):
        for part in getattr(answer, name, None) or ():
            if hasattr(part, "__slots__"):
                code = code_in(part)
                if code:
                    return code
    return ErrorCode.NONE


@asynccontextmanager
async def open_broker() -> AsyncIterator[AskedBroker]:
    """Connect to a broker, and have it ready."""
    if OTHER_BROKER is not None:
        async with connected(OTHER_BROKER) as asked:
            yield asked
        return
    settings = {"offsets.topic.num.partitions": "1"}
    async with open_test_cluster(settings=settings) as ours, connected(ours.bootstrap) as asked:
        yield asked


@asynccontextmanager
async def connected(bootstrap: str) -> AsyncIterator[AskedBroker]:
    ((host, port),) = parse_bootstrap(bootstrap)
    async with open_connection(host, port) as connection:
        asked = AskedBroker(connection)
        await asked.prepare()
        yield asked


@pytest.fixture
async def broker() -> AsyncIterator[AskedBroker]:
    """Give the broker that is asked."""
    async with open_broker() as asked:
        yield asked
