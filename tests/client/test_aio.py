"""The client for asyncio, against a cluster that runs in the test's own trio loop."""

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
import trio

from ottla.client import ConsumerConfig, ErrorCode, ProducerConfig, RefusedError, TopicPartition
from ottla.client.aio import (
    ClientClosedError,
    WouldBlock,
    open_admin,
    open_consumer,
    open_producer,
)
from ottla.client.produce.record_run import EncodedRecords
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
            while len(threads()) > 1:
                await asyncio.sleep(0.01)  # the producer's ends after it
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
        with pytest.warns(ResourceWarning, match="a client of open_producer was never closed"):
            del manager
            gc.collect()

    await trio.to_thread.run_sync(program)
    with trio.fail_after(60):
        while threads():
            await trio.sleep(0.05)


async def values_of(bootstrap: str, count: int, topic: str = "numbers") -> list[int]:
    async with open_consumer(bootstrap, FROM_START) as consumer:
        await consumer.assign([TopicPartition(topic, 0)])
        found: list[int] = []
        while len(found) < count:
            found += [int(record.value or b"") for record in await consumer.poll()]
        return found


async def test_records_of_one_task_keep_their_order_however_full_the_buffer_is(
    ottla_cluster: ClusterUnderTest,
) -> None:
    config = ProducerConfig(buffer_bytes_max=20_000, batch_bytes=2_000, linger_ms=5)

    async def program() -> None:
        async with open_producer(ottla_cluster.bootstrap, config) as producer:
            for number in range(3_000):
                await producer.send("numbers", b"%d" % number, headers=[("h", b"x" * 40)])
        assert await values_of(ottla_cluster.bootstrap, 3_000) == list(range(3_000))

    await in_asyncio(program)


async def test_what_is_flushed_was_sent_before_and_a_report_is_there_at_once(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async def program() -> None:
        config = ProducerConfig(linger_ms=30_000)
        async with open_producer(ottla_cluster.bootstrap, config) as producer:
            await producer.partitions_of("numbers")
            reports = [producer.send_nowait("numbers", b"%d" % number) for number in range(500)]
            assert not reports[0].is_settled
            await producer.flush()
            assert all(report.is_settled for report in reports)
            assert [report.result().offset for report in reports] == list(range(500))
            late = await producer.send("numbers", b"500")
        assert (await late).offset == 500

    await in_asyncio(program)


async def test_a_record_that_would_have_to_wait_is_not_taken_nowait(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async def program() -> None:
        async with open_producer(ottla_cluster.bootstrap) as producer:
            with pytest.raises(WouldBlock):
                producer.send_nowait("numbers", b"x")
            await producer.partitions_of("numbers")
            assert (await producer.send_nowait("numbers", b"x")).offset == 0
            with pytest.raises(TypeError, match="value is 'x'"):
                producer.send_nowait("numbers", "x")  # type: ignore[arg-type]  # the mistake itself
        with pytest.raises(ClientClosedError):
            producer.send_nowait("numbers", b"x")

    await in_asyncio(program)


async def test_a_refusal_after_the_send_comes_by_the_report_or_by_the_flush(
    ottla_cluster: ClusterUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = RefusedError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not yours")

    async def program() -> None:
        async with open_producer(ottla_cluster.bootstrap) as producer:
            await producer.partitions_of("numbers")
            own = producer._kept.value
            # As if a refusal came between the look from outside and the producer's own.
            own._gathered.refusal = why
            monkeypatch.setattr(own, "_accepts", lambda *_, **__: 10)
            report = producer.send_nowait("numbers", b"x")
            with pytest.raises(RefusedError, match="not yours"):
                await report
            assert report.is_settled
            assert report.failure is why
            await producer.send("numbers", b"x")
            with pytest.raises(RefusedError, match="not yours"):
                await producer.flush()
            await producer.flush()

    await in_asyncio(program)


async def test_a_refusal_that_was_not_awaited_aborts_the_transaction(
    ottla_cluster: ClusterUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def program() -> None:
        config = ProducerConfig(transactional_id="t")
        async with open_producer(ottla_cluster.bootstrap, config) as producer:
            await producer.partitions_of("numbers")
            own = producer._kept.value
            monkeypatch.setattr(own, "_accepts", lambda *_, **__: 10)
            with pytest.raises(RefusedError, match=r"max\.request\.size"):
                async with producer.transaction():
                    await producer.send("numbers", b"1")
                    await producer.send("numbers", bytes(2_000_000))
            async with producer.transaction():
                await producer.send("numbers", b"2")
        committed = ConsumerConfig(auto_offset_reset="earliest", isolation_level="read_committed")
        async with open_consumer(ottla_cluster.bootstrap, committed) as consumer:
            await consumer.assign([AT])
            assert [record.value for record in await consumer.poll()] == [b"2"]

    await in_asyncio(program)


async def test_records_of_an_aborted_transaction_reach_no_other_one(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async def program() -> list[Any]:
        config = ProducerConfig(transactional_id="t")
        async with open_producer(ottla_cluster.bootstrap, config) as producer:
            await producer.partitions_of("numbers")
            for number in range(20):
                with suppress(ZeroDivisionError):
                    async with producer.transaction():
                        for _ in range(30):
                            producer.send_nowait("numbers", b"%d" % number)
                        if number % 2:
                            raise ZeroDivisionError
        committed = ConsumerConfig(auto_offset_reset="earliest", isolation_level="read_committed")
        found: list[Any] = []
        async with open_consumer(ottla_cluster.bootstrap, committed) as consumer:
            await consumer.assign([AT])
            while len(found) < 300:
                found += [int(record.value or b"") for record in await consumer.poll()]
            assert await consumer.poll(0.2) == []
        return found

    assert await in_asyncio(program) == [number for number in range(0, 20, 2) for _ in range(30)]


async def test_a_cancelled_wait_for_a_report_leaves_the_record(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async def program() -> None:
        config = ProducerConfig(linger_ms=200)
        async with open_producer(ottla_cluster.bootstrap, config) as producer:
            report = await producer.send("numbers", b"1")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await report
            assert (await report).offset == 0
            waiting = [asyncio.ensure_future(report.wait()) for _ in range(3)]
            assert {one.offset for one in await asyncio.gather(*waiting)} == {0}

    await in_asyncio(program)


async def test_a_commit_behind_ones_back_is_settled_by_its_end(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async def program() -> None:
        await fill(ottla_cluster.bootstrap, 30)
        async with open_consumer(ottla_cluster.bootstrap, IN_GROUP) as consumer:
            await consumer.subscribe(["numbers"])
            for _ in range(13):
                await anext(consumer)
            commit = await consumer.commit_async()
            assert commit.offsets[AT].offset == 13
            await commit
            assert commit.is_settled
            assert commit.error is None
            assert (await consumer.committed([AT]))[AT].offset == 13
            assert await consumer.coordinator_address() == ottla_cluster.bootstrap
            await consumer.pause(AT)
            assert await consumer.paused() == {AT}

    await in_asyncio(program)


async def test_a_run_of_records_keeps_its_place(ottla_cluster: ClusterUnderTest) -> None:
    class RunOfSends:
        """Three records that are all one number."""

        def __init__(self) -> None:
            self.left = [b"7"] * 3

        @property
        def next_bytes(self) -> int:
            return 32 if self.left else 0

        @property
        def largest_bytes(self) -> int:
            return 32

        def take(self, room_bytes: int, first_delta: int, timestamp_delta: int) -> EncodedRecords:
            self.left.pop()
            # length, attributes, timestamp delta, offset delta, no key, value, no headers
            body = bytes([14, 0, timestamp_delta * 2, first_delta * 2, 1, 2]) + b"7" + bytes([0])
            return EncodedRecords(body, 1)

    async def program() -> None:
        async with open_producer(ottla_cluster.bootstrap) as producer:
            await producer.send("numbers", b"6")
            await producer.send_run("numbers", RunOfSends(), partition=0)
            await producer.send("numbers", b"8")
        assert await values_of(ottla_cluster.bootstrap, 5) == [6, 7, 7, 7, 8]

    await in_asyncio(program)


async def test_many_records_cross_over_in_one_call(ottla_cluster: ClusterUnderTest) -> None:
    async def program() -> None:
        async with open_producer(ottla_cluster.bootstrap) as producer:
            await producer.send("numbers", b"first")
            sent = await producer.send_many("numbers", (b"%d" % one for one in range(2_000)))
            reported = await sent
            assert sent.is_settled and sent.failures == {} and sent.record_count == 2_000
            assert reported[0].offset == 1
            assert [at for batch in reported for at in batch.positions] == list(range(2_000))
            with pytest.raises(TypeError, match="one value"):
                await producer.send_many("numbers", b"text")  # type: ignore[arg-type]

    await in_asyncio(program)


async def test_batches_and_records_take_turns_and_a_commit_covers_what_was_given_out(
    ottla_cluster: ClusterUnderTest,
) -> None:
    bootstrap = ottla_cluster.bootstrap

    async def program() -> None:
        await fill(bootstrap, 30)
        found: list[int] = []
        async with open_consumer(bootstrap, IN_GROUP) as consumer:
            await consumer.assign([AT])
            found.append((await anext(consumer)).offset)
            (batch,) = await consumer.poll_batches(record_count_max=4)
            assert (batch.at, batch.values) == (AT, [b"1", b"2", b"3", b"4"])
            found += batch.offsets
            assert await consumer.position(AT) == 5
            await consumer.commit()
            assert (await consumer.committed([AT]))[AT].offset == 5
            found += [one.offset for one in await consumer.poll(record_count_max=2)]
            found.append((await anext(consumer)).offset)
            while len(found) < 30:
                for batch in await consumer.poll_batches(bytes_max=20):
                    assert batch.size_bytes <= 20
                    found += batch.offsets
        assert found == list(range(30))

    await in_asyncio(program)
