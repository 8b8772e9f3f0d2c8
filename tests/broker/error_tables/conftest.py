"""A broker that gets invalid requests, over a real socket.

With KAFKA_BOOTSTRAP=host:port in the environment it is any Kafka of one node, otherwise ottla.
Transactions that touch `error-table-stuck` are decided and never complete: in ottla the topic has
no leader (its replica was on a second broker, which is gone); Kafka neither drops a marker that is
larger than its topic's max.message.bytes nor sends it again.
"""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio

from ottla.client.network.connection import BrokerConnection, open_connection
from ottla.client.testing import open_test_cluster
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId
from ottla.model.settings.endpoints import parse_bootstrap
from ottla.wire.apis import response_class
from ottla.wire.codec_types import Message
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.api_versions_response import ApiVersionsResponse
from ottla.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse

OTHER_BROKER = os.environ.get("KAFKA_BOOTSTRAP")
TOPICS = ("error-table", "error-table-elsewhere")
STUCK = "error-table-stuck"
GONE = NodeId(2)
"""The broker that had the only replica of it."""
CODE_FIELDS = ("error_code", "partition_error_code")
LAST_EPOCH = 32_766
KEY_TYPES = (0, 1)
"""Coordinators of groups, and of transactions."""
SETTINGS = {
    "default.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
LOADING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


class AskedBroker:
    """The coordinator of all groups and transactions."""

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection
        self._served: dict[int, range] = {}
        self.skip_epochs: Callable[[str], None] | None = None
        """Gives a transactional id the last epoch, in ottla; with Kafka, by a request for each
        epoch."""

    @property
    def is_ours(self) -> bool:
        """Set if the broker is one of ours, not Kafka's."""
        return self.skip_epochs is not None

    async def prepare(self) -> None:
        """Make the topics, wait for the coordinators, and learn which versions they have."""
        topics = [
            CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in TOPICS
        ]
        too_small = CreatableTopicConfig(name="max.message.bytes", value="1")
        topics.append(
            CreatableTopic(name=STUCK, num_partitions=2, replication_factor=1, configs=[too_small])
        )
        request = self._connection.request
        await request(CreateTopicsRequest(topics=topics), CreateTopicsResponse)
        for key_type in KEY_TYPES:
            find = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g"])
            with trio.fail_after(60):
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
        with trio.fail_after(60):
            while True:
                kind = response_class(request.API_KEY)
                answer = await self._connection.request(request, kind, version)
                if code_in(answer) not in LOADING:
                    return answer
                await trio.sleep(0.1)

    async def code_of(self, request: Message, version: int) -> ErrorCode:
        """Return the first error of the answer."""
        return code_in(await self.ask(request, version))

    @staticmethod
    def names(answer: Any) -> str:
        """Return each code of an answer once: brokers order their answers as they like."""
        return " ".join(sorted({code.name for code in codes_in(answer)}))

    async def accepted_in(self, request: Message, version: int) -> Any:
        """Return the answer to something that no broker refuses, once it stops to wait."""
        with trio.fail_after(60):
            while True:
                answer = await self.ask(request, version)
                if codes_in(answer) != [ErrorCode.CONCURRENT_TRANSACTIONS]:
                    break
                await trio.sleep(0.01)
        assert set(codes_in(answer)) <= {ErrorCode.NONE}, answer
        return answer

    async def use_up_epochs(self, request: Message) -> int:
        """Have a producer id that has its first epoch get the last one; return that."""
        if self.skip_epochs is not None:
            self.skip_epochs(request.transactional_id)  # type: ignore[attr-defined]
            return LAST_EPOCH
        for _ in range(LAST_EPOCH):
            answer = await self.accepted(request)
        assert answer.producer_epoch == LAST_EPOCH
        return LAST_EPOCH

    async def accepted(self, request: Message) -> Any:
        """Return the response to an always accepted request, in its newest shared version."""
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


def codes_in(answer: Any) -> list[ErrorCode]:
    """Return every error of an answer; that of the whole where it has one or has no parts."""
    own = [ErrorCode(getattr(answer, name)) for name in CODE_FIELDS if hasattr(answer, name)]
    parts = [
        code
        for name in answer.__slots__
        for part in _parts(getattr(answer, name))
        for code in codes_in(part)
    ]
    return parts if parts and not any(own) else own


def _parts(value: Any) -> list[Any]:
    return [one for one in value if hasattr(one, "__slots__")] if isinstance(value, list) else []


@asynccontextmanager
async def open_broker() -> AsyncIterator[AskedBroker]:
    """Connect to a broker, and have it ready."""
    if OTHER_BROKER is not None:
        async with connected(OTHER_BROKER) as asked:
            yield asked
        return
    async with open_test_cluster(broker_count=2, settings=SETTINGS) as ours:
        here, gone = (ours.brokers[NodeId(1)], ours.brokers[GONE])
        host, port = here.addresses["PLAINTEXT"]
        await make_leaderless(host, port)
        await gone.leave()
        coordinator = here.core.transactions

        def skip_epochs(transactional_id: str) -> None:
            (shard,) = coordinator.shards()
            found = shard.transactions[transactional_id]
            found.facts = replace(found.facts, producer_epoch=LAST_EPOCH)

        async with connected(f"{host}:{port}") as asked:
            asked.skip_epochs = skip_epochs
            yield asked


async def make_leaderless(host: str, port: int) -> None:
    """Make the topic that a broker takes away."""
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=[GONE]) for index in range(2)
    ]
    topic = CreatableTopic(
        name=STUCK, num_partitions=-1, replication_factor=-1, assignments=assignments
    )
    async with open_connection(host, port) as connection:
        answer = await connection.request(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse)
    assert codes_in(answer) == [ErrorCode.NONE]


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
