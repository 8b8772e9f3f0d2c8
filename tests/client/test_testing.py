"""The test cluster for users' own tests, and the cost of importing the client."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

import ottla.client
from ottla.client import TopicPartition, open_admin, open_consumer, open_producer
from ottla.client.testing import ClusterUnderTest, open_test_cluster
from ottla.model.errors import ConfigError

A = TopicPartition("t", 0)


async def produce_one(bootstrap: str) -> int:
    """Return the offset."""
    async with open_producer(bootstrap) as producer:
        return (await (await producer.send("t", b"x", timestamp_ms=1))).offset


async def test_the_fixture_gives_each_test_an_empty_cluster(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async with open_admin(ottla_cluster.bootstrap) as admin:
        assert await admin.list_topics() == []
    assert await produce_one(ottla_cluster.bootstrap) == 0


async def test_a_cluster_has_as_many_brokers_as_are_asked_for_and_copies_on_all() -> None:
    async with open_test_cluster(broker_count=3) as cluster:
        assert await produce_one(cluster.bootstrap) == 0
        async with open_admin(cluster.bootstrap) as admin:
            (partition,) = (await admin.describe_topic("t")).partitions
    assert sorted(partition.replicas) == sorted(partition.in_sync) == [1, 2, 3]


async def test_files_that_are_kept_are_there_for_the_next_cluster(tmp_path: Path) -> None:
    for expected in range(3):
        async with open_test_cluster(directory=tmp_path) as cluster:
            assert await produce_one(cluster.bootstrap) == expected


async def test_the_brokers_clock_is_the_tests_where_it_hands_one_in() -> None:
    class Clock:
        """Tells a wall time of the test's own."""

        def monotonic_ms(self) -> int:

            return int(trio.current_time() * 1_000)

        def wall_ms(self) -> int:
            return 86_400_000

    settings = {"log.message.timestamp.type": "LogAppendTime"}
    async with open_test_cluster(settings=settings, clock=Clock()) as cluster:
        await produce_one(cluster.bootstrap)
        async with open_consumer(cluster.bootstrap) as consumer:
            consumer.assign([A])
            consumer.seek(A, 0)
            (record,) = await consumer.poll()
    assert record.timestamp_ms == 86_400_000


def test_every_public_name_is_there() -> None:
    for name in ottla.client.__all__:
        assert getattr(ottla.client, name).__name__ == name
    assert set(ottla.client.__all__) == set(ottla.client._HOME)


def test_a_connection_costs_no_consumer_and_a_client_no_broker() -> None:
    script = (
        "import sys; import ottla.client.network.connection as c; "
        "assert 'ottla.client.consumer' not in sys.modules; "
        "from ottla.client import open_consumer, open_producer, open_admin; "
        "import ottla.client.testing; "
        "bad = {'ottla.broker', 'ottla.jepsen', 'grpc', 'pytest'} & set(sys.modules); "
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_loading_the_fixture_imports_all_its_first_test_needs() -> None:
    script = (
        "import sys; import ottla.client.testing.fixtures; before = set(sys.modules); "
        "import trio; from ottla.client.testing import open_test_cluster\n"
        "async def main():\n"
        "    async with open_test_cluster(): pass\n"
        "trio.run(main); "
        "late = {name for name in set(sys.modules) - before if name.startswith('ottla.')}; "
        "each = ('ottla.wire.messages.', 'ottla.wire.native'); "
        "late = {name for name in late if not name.startswith(each)}; "
        "assert not late, late"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"num.partition": "6"}, "num.partition: is no setting; did you mean num.partitions"),
        ({"num.partitions": 6}, r"settings\['num.partitions'\] is 6; settings are texts"),
    ],
)
async def test_a_slip_in_the_settings_is_an_error(settings: Any, sentence: str) -> None:
    with pytest.raises((ConfigError, TypeError), match=sentence):
        async with open_test_cluster(settings=settings):
            raise AssertionError


def test_a_cluster_for_trio_in_an_asyncio_program_says_which_one_to_use() -> None:
    async def body() -> None:
        async with open_test_cluster():
            raise AssertionError

    with pytest.raises(RuntimeError, match=r"with asyncio use ottla\.testing\.async_cluster"):
        asyncio.run(body())
