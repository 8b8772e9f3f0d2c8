"""A cluster of real processes is balanced under load, while its controllers are killed."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer

pytestmark = pytest.mark.cluster

Processes = Any  # the class of the fixtures, in conftest.py
PARTITION_COUNT = 12
RECORDS = 600
VALUE = b"v" * 10_000


def produce(cluster: Processes, count: int) -> None:
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all")
    sent = [producer.send("t", VALUE, partition=n % PARTITION_COUNT) for n in range(count)]
    for one in sent:
        one.get(60)
    producer.close()


def plan_of(cluster: Processes) -> dict[str, Any]:
    shown = cluster.ottla("cluster", "balance", "--status", "--format=json").stdout
    found: dict[str, Any] = json.loads(shown)
    return found


def test_a_balance_goes_on_when_the_active_controller_is_killed(
    plan_cluster: Callable[..., Processes],
) -> None:
    cluster = plan_cluster(controllers=3, brokers=3, replica_fetch_max_bytes="1")
    cluster.start()
    cluster.ottla("topic", "create", "t", "-p", str(PARTITION_COUNT), "-r", "2")
    cluster.ottla("topic", "reassign", "t", "--brokers=1,2", "--yes")
    produce(cluster, RECORDS)

    # 4 MB have to be copied to broker 3, the first second's share at once.
    begun = cluster.ottla("cluster", "balance", "--yes", "--no-wait", "--throttle=400k")
    assert "go on with the moves" in begun.stderr
    count = len(plan_of(cluster)["moves"])
    assert count > 2
    killed = cluster.active_controller()
    cluster.kill(killed)
    cluster.wait_for(lambda: cluster.active_controller() != killed, "another controller")
    assert plan_of(cluster)["moves"], "the plan outlives the controller that started it"
    produce(cluster, RECORDS)

    cluster.wait_for(lambda: not plan_of(cluster)["moves"], "end of the moves", 120)
    counts = Counter(one for found in cluster.replicas("t").values() for one in found)
    assert counts == {1: 8, 2: 8, 3: 8}
    settings = cluster.ottla("config", "get", "--cluster", "--format=json").stdout
    assert "throttled" not in settings
    cluster.start(killed)
    cluster.wait_healthy()
    consumer = KafkaConsumer(
        "t",
        bootstrap_servers=cluster.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=3_000,
    )
    assert sum(1 for _ in consumer) == 2 * RECORDS
    consumer.close()
