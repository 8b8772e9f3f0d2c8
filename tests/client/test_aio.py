"""The client for asyncio, against a cluster that runs in the test's own trio loop."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
import trio

from ottla.client import ConsumerConfig, ErrorCode, ProducerConfig, RefusedError, TopicPartition
from ottla.client.aio import ClientClosedError, open_admin, open_consumer, open_producer
from ottla.client.testing import ClusterUnderTest

AT = TopicPartition("numbers", 0)
FROM_START = ConsumerConfig(auto_offset_reset="earliest")
IN_GROUP = ConsumerConfig(
    group_id="g", auto_offset_reset="earliest", enable_auto_commit=False, poll_records_max=10
)


async def in_asyncio(program: Callable[[], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with asyncio.timeout(60):
            return await program()

    return await trio.to_thread.run_sync(lambda: asyncio.run(main()))


async def fill(bootstrap: str, count: int) -> None:
    async with open_producer(bootstrap) as producer:
        for number in range(count):
            await producer.send("numbers", b"%d" % number)


def threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name == "ottla.client.aio"]


async def test_records_go_and_come(ottla_cluster: ClusterUnderTest) -> None:
    async def program() -> None:
        async with open_producer(ottla_cluster.bootstrap) as producer:
            assert (await (await producer.send("numbers", b"0", key=b"k"))).offset == 0
            assert await producer.partitions_of("numbers") == (0,)
        async with open_consumer(ottla_cluster.bootstrap, FROM_START) as consumer:
            assert len(threads()) == 1
            await consumer.assign([AT])
            assert await consumer.assignment() == {AT}
            assert (await anext(consumer)).key == b"k"
            assert await consumer.poll(0.01) == []
            assert await consumer.position(AT) == 1
        async with open_admin(ottla_cluster.bootstrap) as admin:
            await admin.create_topic("more", partition_count=3)
            assert await admin.list_topics() == ["more", "numbers"]

    await in_asyncio(program)


async def test_errors_are_those_of_the_client(ottla_cluster: ClusterUnderTest) -> None:
    async def program() -> None:
        async with open_producer(ottla_cluster.bootstrap) as producer:
            with pytest.raises(TypeError, match="value is 'x'"):
                await producer.send("numbers", "x")  # type: ignore[arg-type]  # the mistake itself
        with pytest.raises(ClientClosedError):
            await producer.send("numbers", b"x")
        with pytest.raises(ValueError, match="bootstrap is empty"):
            async with open_consumer(""):
                raise AssertionError
        with pytest.raises(ZeroDivisionError):
            async with open_admin(ottla_cluster.bootstrap) as admin:
                with pytest.raises(RefusedError) as caught:
                    await admin.describe_topic("none")
                assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                raise ZeroDivisionError

    await in_asyncio(program)


async def test_a_cancelled_poll_loses_nothing(ottla_cluster: ClusterUnderTest) -> None:
    async def program() -> list[int]:
        found: list[int] = []
        async with open_consumer(ottla_cluster.bootstrap, FROM_START) as consumer:
            await consumer.assign([AT])
            task: asyncio.Task[Any] = asyncio.create_task(consumer.poll())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await fill(ottla_cluster.bootstrap, 100)
            waits = 0.0
            while len(found) < 100:
                # Cut at other instants each time.
                waits = (waits + 0.0003) % 0.01
                task = asyncio.create_task(consumer.poll(record_count_max=7))
                await asyncio.wait((task,), timeout=waits)
                task.cancel()
                with suppress(asyncio.CancelledError):
                    found += [int(record.value) for record in await task]
        return found

    assert await in_asyncio(program) == list(range(100))


async def test_a_commit_covers_what_was_given_out(ottla_cluster: ClusterUnderTest) -> None:
    revoked: list[Any] = []

    async def program() -> None:
        await fill(ottla_cluster.bootstrap, 30)

        async def on_revoked(partitions: tuple[TopicPartition, ...]) -> None:
            await asyncio.sleep(0)
            revoked.append(partitions)

        async with open_consumer(ottla_cluster.bootstrap, IN_GROUP) as consumer:
            await consumer.subscribe(["numbers"], on_revoked=on_revoked)
            for _ in range(13):
                await anext(consumer)
            await consumer.commit()
            assert (await consumer.committed([AT]))[AT].offset == 13
            assert await consumer.position(AT) == 13
            await consumer.unsubscribe()
        async with open_consumer(ottla_cluster.bootstrap, IN_GROUP) as consumer:
            await consumer.subscribe(["numbers"])
            assert (await anext(consumer)).offset == 13

    await in_asyncio(program)
    assert revoked == [(AT,)]


async def test_a_transaction_commits_or_aborts(ottla_cluster: ClusterUnderTest) -> None:
    async def program() -> list[Any]:
        config = ProducerConfig(transactional_id="t")
        async with open_producer(ottla_cluster.bootstrap, config) as producer:
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send("numbers", b"no")
                    raise ZeroDivisionError
            async with producer.transaction():
                await producer.send("numbers", b"yes")
        committed = ConsumerConfig(auto_offset_reset="earliest", isolation_level="read_committed")
        async with open_consumer(ottla_cluster.bootstrap, committed) as consumer:
            await consumer.assign([AT])
            return [record.value for record in await consumer.poll()]

    assert await in_asyncio(program) == [b"yes"]


async def test_the_thread_ends_with_its_loop() -> None:
    def program() -> None:
        loop = asyncio.new_event_loop()
        manager = open_producer("localhost")
        loop.run_until_complete(manager.__aenter__())
        assert len(threads()) == 1
        loop.close()  # nothing was closed before

    await trio.to_thread.run_sync(program)
    with trio.fail_after(60):
        while threads():
            await trio.sleep(0.05)
