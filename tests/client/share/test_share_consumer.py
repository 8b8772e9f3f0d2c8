"""The share consumer at Ottla's brokers, with faults and with the time advanced."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import pytest
import trio
import trio.testing

from ottla.client import (
    ConfigKind,
    ConfigResource,
    ErrorCode,
    FeatureUpdateKind,
    RefusedError,
    ShareConsumer,
    ShareConsumerConfig,
    ShareRecord,
    open_admin,
    open_producer,
    open_share_consumer,
)
from ottla.client.testing import ClusterUnderTest, open_test_cluster

TIMEOUT_S = 120.0
TOPICS = map("queue-{}".format, count())


async def filled(bootstrap: str, values: int, *, partitions: int = 1, replicas: int = 1) -> str:
    """Create a topic with records, whose name is that of its group too, and return it."""
    topic = next(TOPICS)
    async with open_admin(bootstrap) as admin:
        await admin.create_topic(topic, partition_count=partitions, replication_factor=replicas)
        group = ConfigResource(ConfigKind.GROUP, topic)
        await admin.alter_configs(group, {"share.auto.offset.reset": "earliest"})
    async with open_producer(bootstrap) as producer:
        await producer.send_many(topic, [b"%d" % one for one in range(values)])
    return topic


@asynccontextmanager
async def joined(bootstrap: str, topic: str) -> AsyncIterator[ShareConsumer]:
    config = ShareConsumerConfig(group_id=topic, fetch_wait_ms_max=100)
    with trio.fail_after(TIMEOUT_S):
        async with open_share_consumer(bootstrap, config) as consumer:
            consumer.subscribe([topic])
            yield consumer


def number(record: ShareRecord) -> int:
    return int(record.value or b"")


async def test_a_lock_that_ends_delivers_the_record_again(ottla_cluster: ClusterUnderTest) -> None:
    topic = await filled(ottla_cluster.bootstrap, 1)
    async with (
        joined(ottla_cluster.bootstrap, topic) as consumer,
        joined(ottla_cluster.bootstrap, topic) as other,
    ):
        (record,) = await consumer.poll()
        await ottla_cluster.advance(20)
        await record.renew()
        await ottla_cluster.advance(20)
        assert await other.poll(timeout_s=0.5) == [], "the lock was renewed"
        await ottla_cluster.advance(20)
        (again,) = await other.poll()
        assert again.delivery_count == 2
        await again.accept()
        with pytest.raises(RefusedError) as refused:
            await record.accept()
        assert refused.value.code is ErrorCode.INVALID_RECORD_STATE


async def test_locks_are_renewed_while_handlers_run(ottla_cluster: ClusterUnderTest) -> None:
    topic = await filled(ottla_cluster.bootstrap, 3)
    async with joined(ottla_cluster.bootstrap, topic) as consumer:
        deliveries: list[int] = []
        goes_on = trio.Event()

        async def handle(record: ShareRecord) -> None:
            deliveries.append(record.delivery_count)
            await goes_on.wait()
            await record.accept()  # an error if the lock has ended
            consumer.stop()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.work, handle)
            while len(deliveries) < 3:
                await trio.sleep(0.01)
            await ottla_cluster.advance(100)
            goes_on.set()
        assert deliveries == [1, 1, 1]


async def test_a_lost_connection_loses_the_records_in_hand(ottla_cluster: ClusterUnderTest) -> None:
    topic = await filled(ottla_cluster.bootstrap, 2)
    async with joined(ottla_cluster.bootstrap, topic) as consumer:
        records = await consumer.poll()
        assert [number(one) for one in records] == [0, 1]
        await records[0].accept()
        ottla_cluster.cut_connections(1)
        with pytest.raises(RefusedError) as refused:
            await records[1].accept()
        assert refused.value.code is ErrorCode.NETWORK_EXCEPTION
        (again,) = await consumer.poll()
        assert (number(again), again.delivery_count) == (1, 2)
        await again.accept()
        assert consumer._measures.record_count == 3


async def test_an_acknowledgement_fails_with_the_code_that_polls_fail_with(
    ottla_cluster: ClusterUnderTest,
) -> None:
    """The cluster loses its share groups between a poll and an acknowledgement."""
    topic = await filled(ottla_cluster.bootstrap, 2)
    async with open_admin(ottla_cluster.bootstrap) as admin:
        level = (await admin.describe_features())["share.version"].finalized
        async with joined(ottla_cluster.bootstrap, topic) as consumer:
            (record,) = await consumer.poll(record_count_max=1)
            await admin.update_features({"share.version": 0}, kind=FeatureUpdateKind.SAFE_DOWNGRADE)
            with pytest.raises(RefusedError, match="no share groups") as refused:
                await record.accept()
            assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
            with pytest.raises(RefusedError, match="no share groups") as refused:
                await consumer.poll()
            assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
        await admin.update_features({"share.version": level})


async def test_failures_that_no_task_awaits_are_one_message(
    ottla_cluster: ClusterUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await filled(ottla_cluster.bootstrap, 20)
    async with joined(ottla_cluster.bootstrap, topic) as consumer:
        records = await consumer.poll()
        assert len(records) == 20
        ottla_cluster.cut_connections(1)
        for record in records:
            record.accept()
        await consumer.flush()
        messages = [one for one in caplog.messages if "to broker 1 have failed" in one]
        assert len(messages) == 1


async def test_an_acknowledgement_without_an_answer_is_an_error(
    ottla_cluster: ClusterUnderTest,
) -> None:
    topic = await filled(ottla_cluster.bootstrap, 2)
    async with joined(ottla_cluster.bootstrap, topic) as consumer:
        (record,) = await consumer.poll(record_count_max=1)
        lost = ottla_cluster.lose_answers("ShareAcknowledge")
        with pytest.raises(RefusedError) as refused:
            await record.accept()
        assert refused.value.code is ErrorCode.NETWORK_EXCEPTION
        assert lost.lost == 1
        assert consumer._acknowledged() == (1, 1)
        (next_one,) = await consumer.poll()
        assert number(next_one) == 1, "the broker has stored what it could not confirm"
        await next_one.accept()


async def test_a_cancelled_worker_releases_its_records_at_once(
    ottla_cluster: ClusterUnderTest,
) -> None:
    topic = await filled(ottla_cluster.bootstrap, 3)
    started = trio.Event()

    async def hang(_: ShareRecord) -> None:
        started.set()
        await trio.sleep_forever()

    async def work_in_a_block() -> None:
        async with joined(ottla_cluster.bootstrap, topic) as consumer:
            await consumer.work(hang)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work_in_a_block)
        await started.wait()
        nursery.cancel_scope.cancel()
    async with joined(ottla_cluster.bootstrap, topic) as consumer:
        found: dict[int, int] = {}
        while len(found) < 3:
            for record in await consumer.poll():
                found[number(record)] = record.delivery_count
                record.accept()
        assert found == {0: 2, 1: 2, 2: 2}, "long before the locks end"


async def test_every_record_is_handled_though_brokers_stop() -> None:
    async with open_test_cluster(broker_count=3) as cluster:
        topic = await filled(cluster.bootstrap, 300, partitions=6, replicas=3)
        seen: set[int] = set()
        async with joined(cluster.bootstrap, topic) as consumer:

            async def handle(record: ShareRecord) -> None:
                await trio.sleep(0.005)
                seen.add(number(record))
                if len(seen) == 300:
                    consumer.stop()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(consumer.work, handle)
                while len(seen) < 50:
                    await trio.sleep(0.01)
                await cluster.stop(2)
                while len(seen) < 150:
                    await trio.sleep(0.01)
                await cluster.start(2)
        async with joined(cluster.bootstrap, topic) as consumer:
            left = await consumer.poll(timeout_s=5)
            assert left == [], "what was handled is acknowledged"


async def test_two_tasks_do_not_share_one_consumer(ottla_cluster: ClusterUnderTest) -> None:
    topic = await filled(ottla_cluster.bootstrap, 0)
    async with joined(ottla_cluster.bootstrap, topic) as consumer, trio.open_nursery() as nursery:
        nursery.start_soon(consumer.poll)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(RuntimeError, match="another task reads"):
            await consumer.poll(timeout_s=0)
        nursery.cancel_scope.cancel()


async def test_a_consumer_without_a_subscription_says_so(ottla_cluster: ClusterUnderTest) -> None:
    config = ShareConsumerConfig(group_id="g")
    async with open_share_consumer(ottla_cluster.bootstrap, config) as consumer:
        with pytest.raises(RefusedError, match=r"call subscribe\(topics\) first"):
            await consumer.poll()
        with pytest.raises(RefusedError, match=r"call subscribe\(topics\) first"):
            await consumer.work(consumer.poll)  # type: ignore[arg-type]  # never called
        with pytest.raises(ValueError, match="needs topics"):
            consumer.subscribe([])
        with pytest.raises(TypeError, match="topics is the text"):
            consumer.subscribe("one")
        for wrong in ({"concurrency": 0}, {"in_hand_count_max": 0}):
            with pytest.raises(ValueError, match="must be at least 1"):
                await consumer.work(consumer.poll, **wrong)  # type: ignore[arg-type]
