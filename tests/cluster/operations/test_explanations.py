"""`ottla explain` on real clusters: causes are made one after the other, and each is named with the
command that removes it. The MCP tool and the console's page name the same command."""

import json
import shlex
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition

from ottla.client import ShareConsumerConfig, open_share_consumer
from ottla.client.admin import open_admin
from ottla.client.testing import open_test_cluster
from ottla.insight.answers_driver import answer
from ottla.model.ids import TopicPartition
from tests.cluster.faults.test_full_disks import fill
from tests.insight.interfaces import check_interfaces

pytestmark = pytest.mark.cluster

Processes = Any  # the class of the fixtures, in conftest.py
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PATIENCE_S = 120.0
DISK_BYTES = 32 * 1024 * 1024
CAUSED, CLEAR = 2, 0


@pytest.fixture(scope="module")
def cluster(plan_module_cluster: Callable[..., Processes]) -> Processes:
    """A controller and two brokers with an authorizer, whose admins are not restricted."""
    processes = plan_module_cluster(
        brokers=2,
        is_secure=False,
        authorizer_class_name=AUTHORIZER,
        super_users="User:ANONYMOUS",
        auto_leader_rebalance_enable="false",
        offsets_topic_replication_factor="1",
        transaction_state_log_replication_factor="1",
    )
    processes.start()
    return processes


def explained(cluster: Processes, *words: str, code: int | None = CAUSED) -> dict[str, Any]:
    """Return the output of `ottla explain` in the JSON form."""
    done = cluster.ottla("explain", *words, "--format", "json", code=code)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def first(cluster: Processes, *words: str) -> dict[str, Any]:
    """Return the first cause of an explanation, which the other interfaces name, too."""
    cause: dict[str, Any] = explained(cluster, *words)["causes"][0]
    check_others(cluster, cause, *words)
    return cause


def check_others(cluster: Processes, cause: dict[str, Any], *words: str) -> None:
    """Check that the cause has a command that removes it, and that the MCP tool and the console's
    page name a cause of the same kind and its command, too."""
    assert cause["fix"], cause

    async def ask() -> None:
        async with open_admin(cluster.bootstrap) as admin:
            await check_interfaces(admin, words, cause["kind"], cause["fix"])

    trio.run(ask)


def fix(cluster: Processes, cause: dict[str, Any], *more: str) -> None:
    """Run the command that removes a cause."""
    program, *words = shlex.split(cause["fix"])
    assert program == "ottla"
    cluster.ottla(*words, *more)


def kind_within_patience(cluster: Processes, kind: str, *words: str) -> dict[str, Any]:
    """Wait until a cause of this kind is found; return it."""

    def look() -> dict[str, Any] | None:
        causes = explained(cluster, *words, code=None)["causes"]
        return next((one for one in causes if one["kind"] == kind), None)

    found: dict[str, Any] = cluster.wait_for(look, f"cause {kind}", PATIENCE_S)
    check_others(cluster, found, *words)
    return found


def produce(cluster: Processes, topic: str, count: int, **settings: Any) -> None:
    """Write records to partition 0, and wait until they are acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )
    for _ in range(count):
        producer.produce(topic, b"v" * 1_000, partition=0)
    assert producer.flush(60) == 0


@contextmanager
def consumer(cluster: Processes, group: str, topic: str, **settings: Any) -> Iterator[Consumer]:
    """A member of a group that has joined; it commits only if the test does."""
    found = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )
    found.subscribe([topic])
    try:
        while found.poll(1) is None or not found.assignment():
            pass
        yield found
    finally:
        found.close()


READ = ("denial", "alice", "read", "--topic", "orders-eu", "--host", "10.0.0.7")


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        (["--allow", "alice", "--topic", "orders-"], "pattern-differs"),
        (["--allow", "alice", "--topic", "orders-eu", "--host", "10.0.0.8"], "host-differs"),
    ],
)
def test_a_denial_by_an_almost_matching_entry(
    cluster: Processes, entry: list[str], kind: str
) -> None:
    assert first(cluster, *READ)["kind"] == "no-entry"
    cluster.ottla("acl", "create", *entry, "--operation", "read")
    cause = first(cluster, *READ)
    assert cause["kind"] == kind
    fix(cluster, cause)
    assert explained(cluster, *READ, code=CLEAR)["verdict"] == "clear"
    cluster.ottla("acl", "delete", "--principal", "alice", "--yes")


def test_a_denial_by_a_denying_entry(cluster: Processes) -> None:
    cluster.ottla("acl", "create", "--allow", "alice", "--topic", "orders-eu", "--operation=read")
    cluster.ottla("acl", "create", "--deny", "*", "--topic", "orders-eu", "--operation=all")
    cause = first(cluster, *READ)
    assert cause["kind"] == "denied-by-entry"
    fix(cluster, cause, "--yes")
    assert explained(cluster, *READ, code=CLEAR)["verdict"] == "clear"
    cluster.ottla("acl", "delete", "--principal", "alice", "--yes")


def test_a_throttled_producer_consumer_and_requester(cluster: Processes) -> None:
    cluster.ottla("topic", "create", "loads", "-r", "1")
    produce(cluster, "loads", 200)
    for key, limit, kind in (
        ("producer_byte_rate", "1000", "quota-producer-byte-rate"),
        ("consumer_byte_rate", "1000", "quota-consumer-byte-rate"),
        ("request_percentage", "0.001", "quota-request-percentage"),
    ):
        cluster.ottla("quota", "set", f"{key}={limit}", "--client-id", "loader")
        if key == "consumer_byte_rate":
            with consumer(cluster, "loaders", "loads", client_id="loader") as reader:
                reader.poll(1)
                cause = kind_within_patience(cluster, kind, "throttle")
        else:
            produce(cluster, "loads", 100, client_id="loader")
            cause = kind_within_patience(cluster, kind, "throttle")
        assert "client id loader" in cause["summary"]
        fix(cluster, cause)
        cluster.ottla("quota", "delete", "--client-id", "loader")


def test_limits_of_mutations_and_connections(cluster: Processes) -> None:
    cluster.ottla("quota", "set", "controller_mutation_rate=1", "--client-id", "maker")
    cluster.ottla("quota", "set", "connection_creation_rate=2", "--ip", "10.0.0.7")
    for words, kind in (
        (["--client-id", "maker"], "quota-controller-mutation-rate"),
        (["--ip", "10.0.0.7"], "quota-connection-creation-rate"),
    ):
        cause = first(cluster, "throttle", *words)
        assert cause["kind"] == kind
        fix(cluster, cause)
    cluster.ottla("quota", "delete", "--client-id", "maker")
    cluster.ottla("quota", "delete", "--ip", "10.0.0.7")


def test_throttles_of_replicas(cluster: Processes) -> None:
    for key, kind in (
        ("leader.replication.throttled.rate", "replication-throttle"),
        ("follower.replication.throttled.rate", "replication-throttle"),
        ("replica.alter.log.dirs.io.max.bytes.per.second", "log-dirs-throttle"),
    ):
        cluster.ottla("config", "set", "--broker", "1", f"{key}=1000000")
        cause = kind_within_patience(cluster, kind, "throttle")
        assert cause["evidence"]["broker"] == 1
        fix(cluster, cause)
        kinds = {one["kind"] for one in explained(cluster, "throttle", code=None)["causes"]}
        assert kind not in kinds


def test_lag_of_a_member_that_commits_nothing_and_of_one_that_is_slow(cluster: Processes) -> None:
    cluster.ottla("topic", "create", "orders", "-r", "1")
    produce(cluster, "orders", 500)
    with consumer(cluster, "billing", "orders") as reader:
        commit(reader, 3)
        stuck = first(cluster, "lag", "billing")
        assert stuck["kind"] == "no-progress"
        assert stuck["evidence"]["committed offset"] == 3
        record = json.loads(cluster.ottla(*shlex.split(stuck["more"])[1:], "-J").stdout)
        assert record["offset"] == 3
        with slow_commits(reader):
            assert first(cluster, "lag", "billing")["kind"] == "slow-consumer"
    fix(cluster, stuck, "--yes")
    assert first(cluster, "lag", "billing")["kind"] == "no-members"


def commit(reader: Consumer, offset: int) -> None:
    reader.commit(offsets=[ConfluentPartition("orders", 0, offset)], asynchronous=False)


@contextmanager
def slow_commits(reader: Consumer) -> Iterator[None]:
    """Commit one record after the other in a thread, while the caller looks at the lag."""
    is_over = threading.Event()

    def work() -> None:
        offset = 4
        while not is_over.wait(0.2):
            commit(reader, offset)
            offset += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_lag_by_an_open_transaction(cluster: Processes) -> None:
    cluster.ottla("topic", "create", "payments", "-r", "1")
    produce(cluster, "payments", 1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "pay-1"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("payments", b"v", partition=0)
    assert producer.flush(60) == 0
    cluster.ottla("group", "reset", "audit", "--topic", "payments", "--to-offset", "1", "--yes")
    for words in (["lag", "audit"], ["transaction", "payments"]):
        cause = first(cluster, *words)
        assert cause["kind"] == "open-transaction"
        assert cause["evidence"]["transactional id"] == "pay-1"
    fix(cluster, cause, "--yes")
    assert explained(cluster, "transaction", "payments", code=CLEAR)["causes"] == []


def test_a_stuck_rebalance(cluster: Processes) -> None:
    cluster.ottla("topic", "create", "events", "-p", "2", "-r", "1")
    produce(cluster, "events", 5)
    # The first member does not poll again, so that it never joins the rebalance of the second.
    with consumer(cluster, "team", "events"):
        second = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "team"})
        second.subscribe(["events"])
        second.poll(1)
        cause = kind_within_patience(cluster, "rebalance-unfinished", "rebalance", "team")
        assert "waits until all its members have joined" in cause["summary"]
        assert first(cluster, "lag", "team")["kind"] == "rebalance-unfinished"
        fix(cluster, cause, "--yes")
        # Only the second member polls, joins again, and gets both partitions.
        while len(second.assignment()) < 2:
            second.poll(0.1)
        assert explained(cluster, "rebalance", "team", code=CLEAR)["causes"] == []
        second.close()


def test_no_leader_and_below_min_isr(cluster: Processes) -> None:
    cluster.ottla("topic", "create", "alone", "-p", "2", "-r", "1")
    cluster.ottla(
        "topic", "create", "pairs", "-p", "1", "-r", "2", "--config", "min.insync.replicas=2"
    )
    cluster.kill("broker 2")
    for topic, kind in (("alone", "no-leader"), ("pairs", "below-min-isr")):
        cause = kind_within_patience(cluster, kind, "unavailable", "--topic", topic)
        assert "broker 2 is fenced" in cause["summary"]
        assert cause["fix"] == "ottla server broker-2.properties"
    assert explained(cluster, "health")["verdict"] == "caused"
    cluster.start("broker 2")
    cluster.wait_healthy()
    for topic in ("alone", "pairs"):
        assert explained(cluster, "unavailable", "--topic", topic, code=CLEAR)["causes"] == []


def test_lag_by_a_full_disk(fresh: Processes, make_small_disk: Callable[[int], Path]) -> None:
    volume = make_small_disk(DISK_BYTES)
    fresh.start("controller")
    fresh.start("broker", log_dirs=str(volume / "logs"), ottla_disk_check_interval_ms="200")
    fresh.ottla("topic", "create", "orders", "-r", "1")
    produce(fresh, "orders", 20)
    fresh.ottla("group", "reset", "billing", "--topic", "orders", "--to-offset", "5", "--yes")
    filler = fill(volume, leave_bytes=0)
    for words in (["disk"], ["unavailable", "--topic", "orders"], ["lag", "billing"]):
        cause = kind_within_patience(fresh, "disk-full", *words)
        assert str(volume) in cause["summary"]
        assert shlex.split(cause["fix"])[1:3] == ["topic", "trim"]
    filler.unlink()


async def test_a_share_lock_that_is_held() -> None:
    at = TopicPartition("jobs", 0)
    with trio.fail_after(PATIENCE_S):
        async with open_test_cluster() as own, open_admin(own.bootstrap) as admin:
            await admin.create_topic("jobs", partition_count=1)
            await admin.alter_share_group_offsets("workers", {at: 0})
            producer = Producer({"bootstrap.servers": own.bootstrap})
            await trio.to_thread.run_sync(lambda: send(producer, "jobs"))
            config = ShareConsumerConfig(group_id="workers")
            async with open_share_consumer(own.bootstrap, config) as worker:
                worker.subscribe(["jobs"])
                await worker.poll()
                (cause,) = (await answer(admin, "delivery", {"group": "workers"})).causes
                await check_interfaces(admin, ["delivery", "workers"], cause.kind, cause.fix)
    assert cause.kind == "records-acquired"


def send(producer: Producer, topic: str) -> None:
    producer.produce(topic, b"v")
    assert producer.flush(60) == 0
