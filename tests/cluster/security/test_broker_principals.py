"""Brokers that are no super users: one entry each, for ClusterAction, is all that they need."""

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.cluster.conftest import Processes

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

TIMEOUT_S = 60
PARTITION_COUNT = 6
ROUNDS = 6
"""As many transactional ids and groups: their coordinators are on all brokers."""
ENTRY = (
    ResourceType.BROKER,
    "kafka-cluster",
    ResourcePatternType.LITERAL,
    "User:broker",
    "*",
    AclOperation.CLUSTER_ACTION,
    AclPermissionType.ALLOW,
)


def commit_and_abort(client: dict[str, str], number: int) -> None:
    """Send one record to each partition and commit, then another one each and abort."""
    producer = Producer({**client, "transactional.id": f"id-{number}"})
    producer.init_transactions(TIMEOUT_S)
    for value, end in (
        (b"committed", producer.commit_transaction),
        (b"aborted", producer.abort_transaction),
    ):
        producer.begin_transaction()
        for partition in range(PARTITION_COUNT):
            producer.produce("t", value, partition=partition)
        assert producer.flush(TIMEOUT_S) == 0
        end(TIMEOUT_S)


def read_committed(client: dict[str, str], group: str, count: int) -> list[bytes]:
    """Read a number of records and commit them as a group of one; return them."""
    consumer = Consumer(
        {
            **client,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe(["t"])
    found: list[bytes] = []
    while len(found) < count:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None, message.error()
        found.append(message.value())
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def test_brokers_with_an_entry_for_cluster_action_alone_do_all_their_work(
    plan_cluster: Callable[..., Processes],
) -> None:
    """Registration, forwards, replication, markers, coordinators; and nothing without the entry."""
    cluster = plan_cluster(
        controllers=1,
        brokers=3,
        is_secure=True,
        are_brokers_super=False,
        offsets_topic_num_partitions="6",
        transaction_state_log_num_partitions="6",
        broker_session_timeout_ms="3000",
        broker_heartbeat_interval_ms="500",
    )
    cluster.start()
    admin = AdminClient(cluster.client)
    # Whichever broker is asked passes it on to the controller.
    admin.create_topics([NewTopic("t", PARTITION_COUNT, 3)])["t"].result(TIMEOUT_S)
    cluster.wait_healthy()
    for number in range(ROUNDS):
        commit_and_abort(cluster.client, number)
    for number in range(ROUNDS):
        found = read_committed(cluster.client, f"group-{number}", ROUNDS * PARTITION_COUNT)
        assert set(found) == {b"committed"}
    cluster.kill("broker 2")
    cluster.start("broker 2")
    cluster.wait_healthy()

    for gone in admin.delete_acls([AclBindingFilter(*ENTRY)]).values():
        assert len(gone.result(TIMEOUT_S)) == 1
    refusal = "TOPIC_AUTHORIZATION_FAILED"  # as Kafka answers followers
    followers = [cluster.log_of(name) for name in cluster.named("broker")]
    cluster.wait_for(
        lambda: all(refusal in log.read_text() for log in followers), "refusal of followers"
    )
    for made in admin.create_acls([AclBinding(*ENTRY)]).values():
        made.result(TIMEOUT_S)
    cluster.wait_healthy()
    commit_and_abort(cluster.client, ROUNDS)
