"""Apache Kafka answers the requests of the ACL cases with the codes of the table: its own test.

Runs where OTTLA_KAFKA_JARS names a directory with the jars of Kafka's release. Cases that need a
later release are printed and left out.
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import trio

from ottla.bench.kafka.kafka_server import KafkaServer, open_kafka
from ottla.client import ConnectionLostError, open_admin
from ottla.client.network.connection import open_connection
from ottla.model.settings.security.authorizer import (
    AUTHORIZER_CLASS,
    STANDARD_AUTHORIZER,
    SUPER_USERS,
)
from ottla.wire.apis import CREATE_ACLS, FIND_COORDINATOR, request_class, response_class
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.metadata_response import MetadataResponse
from tests.jepsen.oracles.acl_cases import (
    ACL_CASES,
    BROKER_CASES,
    CONTROLLER_CASES,
    TOPIC,
    Ask,
    answer_of,
    asks,
    codes_of,
    creation_of,
    refusal_in,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

JARS = "OTTLA_KAFKA_JARS"
PASSWORD = "secret"
ENTRIES_AT_ONCE = 500
SETTINGS = {
    AUTHORIZER_CLASS: STANDARD_AUTHORIZER,
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
ALL_CASES = (*BROKER_CASES, *CONTROLLER_CASES, *ACL_CASES)


@pytest.fixture(scope="module")
def asked() -> list[Ask]:
    return list(asks(ALL_CASES))


@pytest.fixture
async def kafka(tmp_path: Path, asked: list[Ask]) -> AsyncIterator[KafkaServer]:
    jars = os.environ.get(JARS)
    if not jars:
        pytest.skip(f"LOUD: {JARS} is not set; the table of operations was NOT held against Kafka")
    supers = ["User:ANONYMOUS", *(f"User:{one.user}" for one in asked if one.is_super)]
    settings = {**SETTINGS, SUPER_USERS: ";".join(supers)}
    users = {one.user: PASSWORD for one in asked}
    with open_kafka(Path(jars), tmp_path, settings, users=users) as server:
        yield server


async def test_kafka_refuses_and_allows_what_the_table_says(
    kafka: KafkaServer, asked: list[Ask]
) -> None:
    assert kafka.users_address is not None
    topic_id = await prepare(kafka, asked)
    wrong = {}
    for one in asked:
        expected = {int(one.expected)} - {0}
        try:
            answer = await answer_of(
                one, *kafka.users_address, topic_id=topic_id, node_id=1, password=PASSWORD
            )
        except (trio.TooSlowError, ConnectionLostError) as error:
            wrong[one.title] = (repr(error), expected)
            continue
        if refusal_in(answer) != expected:
            wrong[one.title] = (str(codes_of(answer)), expected)
    assert not wrong, "\n".join(f"{title}: {codes}" for title, codes in wrong.items())


async def prepare(kafka: KafkaServer, asked: list[Ask]) -> UUID:
    """Make the topics and the entries; return the id of the topic of the cases."""
    host, _, port = kafka.bootstrap.partition(":")
    async with open_admin(kafka.bootstrap) as admin:
        await admin.create_topic(TOPIC, partition_count=1, replication_factor=1)
    async with open_connection(host, int(port)) as connection:
        for key_type in (0, 1):
            coordinator: Any = request_class(FIND_COORDINATOR)()
            coordinator.key_type, coordinator.coordinator_keys = key_type, ["k"]
            answer: Any = None
            with trio.fail_after(60):
                while answer is None or answer.coordinators[0].error_code:
                    answer = await connection.request(
                        coordinator, response_class(FIND_COORDINATOR), 4
                    )
                    await trio.sleep(0.1)
        entries = list(dict.fromkeys(entry for one in asked for entry in one.entries))
        for at in range(0, len(entries), ENTRIES_AT_ONCE):
            made: Any = await connection.request(
                creation_of(entries[at : at + ENTRIES_AT_ONCE]), response_class(CREATE_ACLS), 3
            )
            assert {one.error_code for one in made.results} == {0}
        await trio.sleep(2)  # a broker of Kafka follows its controller
        metadata = await connection.request(
            MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), MetadataResponse, 12
        )
    return metadata.topics[0].topic_id
