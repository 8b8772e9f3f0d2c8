"""States of share partitions on real processes: failover of the share coordinator, and the answers
beside Kafka's.

The second part runs where OTTLA_KAFKA_JARS names a directory with the jars of Kafka's release.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import trio

from ottla.bench.kafka.kafka_server import java_program, open_kafka
from ottla.broker.coordinators.share_persister import SharePartitionKey
from ottla.client.admin import open_admin
from ottla.client.network.connection import ConnectionLostError, connect
from ottla.model.errors import ErrorCode
from ottla.model.internal_topics import SHARE_STATE_TOPIC
from ottla.wire.apis import request_class, response_class
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from ottla.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse

pytestmark = pytest.mark.cluster

JARS = "OTTLA_KAFKA_JARS"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
FORMATTER = "org.apache.kafka.tools.consumer.group.share.ShareGroupStateMessageFormatter"
TOPIC = "orders"
INITIALIZE, READ, WRITE, DELETE, SUMMARY = 83, 84, 85, 86, 87
VERSIONS = {INITIALIZE: 0, READ: 0, WRITE: 1, DELETE: 0, SUMMARY: 1}
GROUP, SHARE = 0, 2
WAIT_S = 60.0
E = ErrorCode


def request_of(api_key: int, key: SharePartitionKey, fields: dict[str, Any]) -> Any:
    """Return a request for one share partition."""
    kind = request_class(api_key)
    module: Any = __import__(kind.__module__, fromlist=["PartitionData"])
    changed = dict(fields)
    if "batches" in changed:
        changed["state_batches"] = [
            module.StateBatch(
                first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
            )
            for first, last, state, count in changed.pop("batches")
        ]
    part = module.PartitionData(partition=key.partition, **changed)
    of_topic = next(
        value for name, value in vars(module).items() if name.endswith(("StateData", "SummaryData"))
    )
    topic = of_topic(topic_id=key.topic_id, partitions=[part])
    request: Any = kind
    return request(group_id=key.group_id, topics=[topic])


def outcome_of(result: Any) -> dict[Any, Any]:
    """Return the fields of a partition's result; batches as count and state by offset."""
    found: dict[Any, Any] = {
        name: getattr(result, name)
        for name in result.__slots__
        if name not in ("error_message", "state_batches", "partition")
    }
    for batch in getattr(result, "state_batches", ()):
        for offset in range(batch.first_offset, batch.last_offset + 1):
            assert offset not in found, "batches overlap"
            found[offset] = (batch.delivery_count, batch.delivery_state)
    return found


class ShareClient:
    """Client that finds the coordinator of each share partition, as a broker does."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.split(",")[0].rpartition(":")
        self.first = (host, int(port))

    async def ask(
        self, api_key: int, key: SharePartitionKey, **fields: Any
    ) -> dict[Any, Any] | None:
        """Return the outcome of a request, or None if the response has no result. Waits for a
        coordinator."""
        request = request_of(api_key, key, fields)
        with trio.fail_after(WAIT_S):
            while True:
                at = await self.coordinator_of(key)
                try:
                    connection = await connect(*at, client_id="share-test", timeout_s=WAIT_S)
                except ConnectionLostError:
                    await trio.sleep(0.1)  # The metadata has a coordinator that was killed.
                    continue
                try:
                    response: Any = await connection.request(
                        request, response_class(api_key), VERSIONS[api_key]
                    )
                finally:
                    await connection.aclose()
                if not response.results:
                    return None
                ((result,),) = [topic.partitions for topic in response.results]
                if result.error_code not in (
                    E.NOT_COORDINATOR,
                    E.COORDINATOR_LOAD_IN_PROGRESS,
                    E.COORDINATOR_NOT_AVAILABLE,
                ):
                    return outcome_of(result)
                await trio.sleep(0.1)

    async def coordinator_of(
        self, key: SharePartitionKey | None, group_id: str = ""
    ) -> tuple[str, int]:
        """Return the address of the coordinator of a share partition, or else of a group, once
        there is one."""
        request = FindCoordinatorRequest(
            key_type=SHARE if key else GROUP, coordinator_keys=[key.text if key else group_id]
        )
        connection = await connect(*self.first, client_id="share-test", timeout_s=WAIT_S)
        try:
            while True:
                found = await connection.request(request, FindCoordinatorResponse, 6)
                (one,) = found.coordinators
                if not one.error_code:
                    return one.host, one.port
                assert one.error_code == E.COORDINATOR_NOT_AVAILABLE
                await trio.sleep(0.1)
        finally:
            await connection.aclose()


async def new_topic(bootstrap: str, partition_count: int = 2) -> UUID:
    """Create the topic of the share partitions. Returns its id."""
    async with open_admin(bootstrap) as admin:
        await admin.create_topic(TOPIC, partition_count=partition_count)
        while True:
            (found,) = (await admin.cluster.metadata([TOPIC])).topics
            if not found.error_code:
                return UUID(int=found.topic_id.int)
            await trio.sleep(0.1)


def test_a_killed_share_coordinator_loses_no_state(plan_cluster: Callable[..., Any]) -> None:
    cluster = plan_cluster(
        brokers=3,
        share_coordinator_state_topic_num_partitions="3",
        broker_heartbeat_interval_ms="200",
        broker_session_timeout_ms="2000",
        offsets_topic_num_partitions="1",
    )
    cluster.start()

    async def before() -> tuple[ShareClient, SharePartitionKey, tuple[str, int]]:
        client = ShareClient(cluster.bootstrap)
        key = SharePartitionKey("queue", await new_topic(cluster.bootstrap), 0)
        assert (await client.ask(INITIALIZE, key, state_epoch=1, start_offset=-1)) == {
            "error_code": 0
        }
        await client.ask(READ, key, leader_epoch=1)
        for offset in range(20):
            found = await client.ask(
                WRITE,
                key,
                state_epoch=1,
                leader_epoch=1,
                start_offset=0,
                delivery_complete_count=offset + 1,
                batches=[(2 * offset, 2 * offset, 2, 1)],
            )
            assert found == {"error_code": 0}
        return client, key, await client.coordinator_of(key)

    client, key, (_, port) = trio.run(before)
    brokers = cluster.named("broker")
    name = next(one for one in brokers if cluster.node(one).port == port)
    survivor = next(one for one in brokers if one != name)
    client.first = ("127.0.0.1", cluster.node(survivor).port)
    cluster.kill(name)

    async def after() -> None:
        found = await client.ask(READ, key, leader_epoch=2)
        assert found is not None
        assert (found.pop("error_code"), found.pop("state_epoch"), found.pop("start_offset")) == (
            0,
            1,
            0,
        )
        assert found == {2 * offset: (1, 2) for offset in range(20)}
        stale = await client.ask(WRITE, key, state_epoch=1, leader_epoch=1, start_offset=9)
        assert stale == {"error_code": E.FENCED_LEADER_EPOCH}
        assert await client.ask(DELETE, key) == {"error_code": 0}

    trio.run(after)


def test_a_group_has_its_states_created_at_coordinators_on_all_brokers(
    plan_cluster: Callable[..., Any],
) -> None:
    partition_count = 12
    cluster = plan_cluster(
        brokers=3,
        share_coordinator_state_topic_num_partitions="6",
        offsets_topic_num_partitions="1",
    )
    cluster.start()

    async def joined() -> None:
        topic_id = await new_topic(cluster.bootstrap, partition_count)
        client = ShareClient(cluster.bootstrap)
        at = await client.coordinator_of(None, "queue")
        keys = [SharePartitionKey("queue", topic_id, index) for index in range(partition_count)]
        request = ShareGroupHeartbeatRequest(
            group_id="queue", member_id="m", member_epoch=0, subscribed_topic_names=[TOPIC]
        )
        connection = await connect(*at, client_id="share-test", timeout_s=WAIT_S)
        assigned: set[int] = set()
        with trio.fail_after(WAIT_S):
            while len(assigned) < partition_count:
                found = await connection.request(request, ShareGroupHeartbeatResponse, 1)
                if found.error_code in (E.NOT_COORDINATOR, E.COORDINATOR_LOAD_IN_PROGRESS):
                    await trio.sleep(0.1)
                    continue
                assert not found.error_code, found
                request.member_epoch = found.member_epoch
                request.subscribed_topic_names = None
                if found.assignment is not None:
                    assigned = {
                        index
                        for topic in found.assignment.topic_partitions
                        for index in topic.partitions
                    }
                await trio.sleep(0.1)
        await connection.aclose()
        for key in keys:
            summary = await client.ask(SUMMARY, key, leader_epoch=0)
            assert summary is not None
            assert summary["error_code"] == 0
            assert summary["state_epoch"] > 0
        assert len({await client.coordinator_of(key) for key in keys}) == 3

    trio.run(joined)


STEPS: list[tuple[int, dict[str, Any]]] = [
    (READ, {"leader_epoch": 0}),
    (WRITE, {"state_epoch": 1, "leader_epoch": 0, "start_offset": 0}),
    (SUMMARY, {"leader_epoch": 0}),
    (DELETE, {}),
    (INITIALIZE, {"state_epoch": -1, "start_offset": 0}),
    (INITIALIZE, {"state_epoch": 1, "start_offset": -1}),
    (INITIALIZE, {"state_epoch": 0, "start_offset": 0}),
    (SUMMARY, {"leader_epoch": 0}),
    (READ, {"leader_epoch": 0}),
    (READ, {"leader_epoch": -1}),
    (
        WRITE,
        {
            "state_epoch": 1,
            "leader_epoch": 0,
            "start_offset": 5,
            "delivery_complete_count": 3,
            "batches": [(0, 3, 2, 1), (4, 8, 2, 1), (10, 14, 0, 1), (16, 16, 4, 3)],
        },
    ),
    (READ, {"leader_epoch": 0}),
    (
        WRITE,
        {
            "state_epoch": 4,
            "leader_epoch": 2,
            "start_offset": 5,
            "delivery_complete_count": 1,
            "batches": [(11, 12, 2, 1), (12, 12, 0, 2), (7, 9, 0, 1), (16, 18, 0, 2)],
        },
    ),
    (READ, {"leader_epoch": 0}),
    (SUMMARY, {"leader_epoch": 0}),
    (READ, {"leader_epoch": 3}),
    (READ, {"leader_epoch": 2}),
    (SUMMARY, {"leader_epoch": -1}),
    (WRITE, {"state_epoch": 1, "leader_epoch": 2, "start_offset": 0}),
    (WRITE, {"state_epoch": 0, "leader_epoch": 2, "start_offset": 0}),
    (WRITE, {"state_epoch": 0, "leader_epoch": 3, "start_offset": 0}),
    (WRITE, {"state_epoch": -1, "leader_epoch": 3, "start_offset": 0}),
    (WRITE, {"state_epoch": 1, "leader_epoch": -1, "start_offset": 0}),
    (
        WRITE,
        {
            "state_epoch": 1,
            "leader_epoch": 3,
            "start_offset": 2,
            "delivery_complete_count": 99,
            "batches": [(1, 5, 4, 4)],
        },
    ),
    (SUMMARY, {"leader_epoch": 3}),
    (
        WRITE,
        {
            "state_epoch": 1,
            "leader_epoch": 3,
            "start_offset": 12,
            "delivery_complete_count": 0,
            "batches": [],
        },
    ),
    (READ, {"leader_epoch": 3}),
    (SUMMARY, {"leader_epoch": 3}),
    (INITIALIZE, {"state_epoch": 2, "start_offset": 7}),
    (READ, {"leader_epoch": 3}),
    (READ, {"leader_epoch": 2}),
    (WRITE, {"state_epoch": 1, "leader_epoch": 3, "start_offset": 8}),
    (DELETE, {}),
    (READ, {"leader_epoch": 3}),
    (SUMMARY, {"leader_epoch": 3}),
    (INITIALIZE, {"state_epoch": 0, "start_offset": 4}),
    (SUMMARY, {"leader_epoch": 0}),
]
"""Requests about one share partition, in this order; Kafka's outcomes are the expected ones."""

ELSEWHERE: list[tuple[int, dict[str, Any]]] = [
    (INITIALIZE, {"state_epoch": 0, "start_offset": 0}),
    (READ, {"leader_epoch": 0}),
    (SUMMARY, {"leader_epoch": 0}),
    (DELETE, {}),
]
"""Requests about partitions that do not exist."""


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[str]:
    """The address of a running Kafka."""
    if not (jars := os.environ.get(JARS)):
        pytest.skip(f"{JARS} names no directory with Kafka's jars")
    settings = {
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "3",
        "offsets.topic.replication.factor": "1",
    }
    with open_kafka(Path(jars), tmp_path, settings) as server:
        yield server.bootstrap


def records_of(bootstrap: str) -> list[dict[str, Any]]:
    """Return the records of share states as Kafka's formatter prints them, without timestamps."""
    jars = os.environ[JARS]
    words = f"--topic {SHARE_STATE_TOPIC} --formatter {FORMATTER} --from-beginning"
    done = subprocess.run(
        [
            *(java_program(os.environ), "-cp", f"{jars}/*", CONSOLE_CONSUMER),
            *("--bootstrap-server", bootstrap, "--timeout-ms", "8000", *words.split()),
        ],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    # The formatter writes one object after the other, without ends of lines.
    found = json.loads(f"[{done.stdout.strip().replace('}{', '},{')}]")
    assert isinstance(found, list)
    for record in found:
        record["key"]["data"].pop("topicId")
        content = (record["value"] or {}).get("data", {})
        for name in ("createTimestamp", "writeTimestamp"):
            content.pop(name, None)
    return found


def test_the_answers_are_those_of_kafka(plan_cluster: Callable[..., Any], kafka: str) -> None:
    cluster = plan_cluster(
        brokers=1,
        share_coordinator_state_topic_num_partitions="3",
    )
    cluster.start()

    async def outcomes(bootstrap: str) -> list[Any]:
        client = ShareClient(bootstrap)
        topic_id = await new_topic(bootstrap)
        key = SharePartitionKey("queue", topic_id, 1)
        found = [await client.ask(api_key, key, **fields) for api_key, fields in STEPS]
        for other in (
            key._replace(partition=2),
            key._replace(partition=-1),
            key._replace(topic_id=UUID(int=1 << 90)),
        ):
            found += [await client.ask(api_key, other, **fields) for api_key, fields in ELSEWHERE]
        return found

    theirs = trio.run(outcomes, kafka)
    ours = trio.run(outcomes, cluster.bootstrap)
    assert {found["error_code"] for found in theirs} == {
        E.NONE,
        E.INVALID_REQUEST,
        E.FENCED_LEADER_EPOCH,
        E.FENCED_STATE_EPOCH,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert ours == theirs
    kafkas, own = records_of(kafka), records_of(cluster.bootstrap)
    resets = [
        record["value"]["data"]
        for record in own
        if record["value"] and record["value"]["data"].get("stateEpoch") == 2
    ]
    for reset in resets:
        # Kafka stores 0, and forgets the fence once the records before the reset are deleted.
        assert reset["leaderEpoch"] == 3
        reset["leaderEpoch"] = 0
    assert own == kafkas
    assert len(own) > 8
