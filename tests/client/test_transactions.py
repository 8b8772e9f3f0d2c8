"""Transactions of the producer against a real cluster, by both protocols."""

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from ottla.client import (
    ConsumerConfig,
    ConsumerRecord,
    ErrorCode,
    Membership,
    NotDeliveredError,
    ProducerConfig,
    ProducerFencedError,
    RefusedError,
    TopicPartition,
    TransactionAbortedError,
    TransactionOutcomeUnknownError,
    open_admin,
    open_consumer,
    open_producer,
)
from ottla.client.testing import open_test_cluster
from ottla.model.errors import ConfigError
from ottla.wire.apis import (
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
)

EXPLICIT = {END_TXN: 4, TXN_OFFSET_COMMIT: 4, PRODUCE: 11}
PROTOCOLS: dict[str, dict[int, int]] = {"explicit": EXPLICIT, "implicit": {}}
CONFIG = ProducerConfig(transactional_id="t-1", retry_backoff_ms=20, linger_ms=0)
COMMITTED = ConsumerConfig(auto_offset_reset="earliest", isolation_level="read_committed")


class CrashError(Exception):
    """The program failed."""


@pytest.fixture(params=list(PROTOCOLS))
async def known_at(request: pytest.FixtureRequest, behind_proxy: Any) -> AsyncIterator[str]:
    """Give the address of a cluster that offers one protocol."""
    with trio.fail_after(60):
        async with behind_proxy(highest=PROTOCOLS[request.param]) as (_, address, proxy):
            yield address
            is_explicit = request.param == "explicit"
            # The broker adds too, by later versions.
            added = any((ADD_PARTITIONS_TO_TXN, number) in proxy.asked for number in range(4))
            assert added == is_explicit, "it spoke the protocol that the test is named after"


async def committed(bootstrap: str, topic: str = "t") -> list[bytes | None]:
    """Return the values that a reader of committed records sees."""
    at = TopicPartition(topic, 0)
    found: list[bytes | None] = []
    async with open_consumer(bootstrap, COMMITTED) as consumer:
        consumer.assign([at])
        end = (await consumer.end_offsets([at]))[at]
        while await consumer.position(at) < end:
            found += [record.value for record in await consumer.poll(1)]
    return found


async def test_what_is_committed_is_seen_and_what_is_aborted_is_not(known_at: str) -> None:
    async with open_producer(known_at, CONFIG) as producer:
        for number in range(3):
            async with producer.transaction():
                await producer.send("t", b"committed %d" % number)
            with pytest.raises(CrashError):
                async with producer.transaction():
                    await (await producer.send("t", b"aborted %d" % number))
                    raise CrashError
            async with producer.transaction():
                pass
        async with producer.transaction():
            await producer.send("t", b"last")

    assert await committed(known_at) == [b"committed 0", b"committed 1", b"committed 2", b"last"]


async def test_a_cancelled_transaction_is_aborted_and_the_next_one_begins(known_at: str) -> None:
    async with open_producer(known_at, CONFIG) as producer:
        with trio.CancelScope() as scope:
            async with producer.transaction():
                await (await producer.send("t", b"cancelled"))
                scope.cancel()
                await trio.sleep_forever()
        assert scope.cancelled_caught
        async with producer.transaction():
            await producer.send("t", b"next")

    assert await committed(known_at) == [b"next"]


async def test_offsets_are_committed_with_the_records_or_not_at_all(known_at: str) -> None:
    async with open_producer(known_at) as plain:
        for number in range(4):
            await plain.send("in", b"%d" % number)
    at = TopicPartition("in", 0)
    readers = ConsumerConfig(
        group_id="g", auto_offset_reset="earliest", enable_auto_commit=False,
        isolation_level="read_committed",
    )  # fmt: skip
    async with (
        open_producer(known_at, CONFIG) as producer,
        open_consumer(known_at, readers) as consumer,
    ):
        consumer.subscribe(["in"])
        records: list[ConsumerRecord] = []
        while len(records) < 4:
            records += await consumer.poll(1)
        async with producer.transaction() as transaction:
            await producer.send("t", records[0].value)
            await transaction.send_offsets({at: 1}, consumer.group_metadata())
        assert (await consumer.committed([at]))[at].offset == 1

        with pytest.raises(CrashError):
            async with producer.transaction() as transaction:
                await producer.send("t", records[1].value)
                await transaction.send_offsets({at: 2}, consumer.group_metadata())
                raise CrashError
        assert (await consumer.committed([at]))[at].offset == 1

        stale = consumer.group_metadata()._replace(generation_id=77)
        with pytest.raises(TransactionAbortedError) as refused:
            async with producer.transaction() as transaction:
                await producer.send("t", b"of another generation")
                await transaction.send_offsets({at: 3}, stale)
        assert refused.value.code is ErrorCode.ILLEGAL_GENERATION
        assert (await consumer.committed([at]))[at].offset == 1

    assert await committed(known_at) == [b"0"]


async def test_a_second_producer_fences_the_first_for_good(known_at: str) -> None:
    async with open_producer(known_at, CONFIG) as first:
        with pytest.raises(ProducerFencedError):
            async with first.transaction():
                await (await first.send("t", b"of the first"))
                async with open_producer(known_at, CONFIG) as second, second.transaction():
                    await second.send("t", b"of the second")
                await first.send("t", b"too late")
        with pytest.raises(ProducerFencedError):
            async with first.transaction():
                raise AssertionError("it begins nothing again")

    assert await committed(known_at) == [b"of the second"]


async def test_a_record_that_is_not_delivered_makes_a_commit_impossible(known_at: str) -> None:
    async with open_admin(known_at) as admin:
        await admin.create_topic("t", partition_count=1, configs={"max.message.bytes": "2000"})
    async with open_producer(known_at, CONFIG) as producer:
        with pytest.raises(TransactionAbortedError) as aborted:
            async with producer.transaction():
                await producer.send("t", b"good")
                bad = await producer.send("t", b"x" * 3_000)
                with pytest.raises(NotDeliveredError):
                    await bad
        assert aborted.value.code is ErrorCode.MESSAGE_TOO_LARGE
        async with producer.transaction():
            await producer.send("t", b"again")

    assert await committed(known_at) == [b"again"]


async def test_nothing_is_sent_outside_a_transaction(known_at: str) -> None:
    async with open_producer(known_at, CONFIG) as producer:
        with pytest.raises(RefusedError, match=r"within `async with producer\.transaction"):
            await producer.send("t", b"outside")
        async with producer.transaction() as first:
            await producer.send("t", b"inside")
            with pytest.raises(RefusedError, match="still open"):
                async with producer.transaction():
                    raise AssertionError("two at once")
        with pytest.raises(RefusedError, match="within"):
            await producer.send("t", b"outside")
        with pytest.raises(RefusedError, match="within"):
            await first.send_offsets({TopicPartition("t", 0): 1}, Membership(group_id="g"))

    assert await committed(known_at) == [b"inside"]


async def test_a_producer_without_a_transactional_id_has_no_transactions() -> None:
    async with (
        open_test_cluster() as cluster,
        open_producer(cluster.bootstrap) as producer,
    ):
        with pytest.raises(RefusedError, match=r"needs a transactional\.id"):
            producer.transaction()


@pytest.mark.parametrize("name", list(PROTOCOLS))
async def test_answers_that_are_cut_off_make_neither_gap_nor_duplicate(
    behind_proxy: Any, name: str
) -> None:
    cuts = (number % 3 == 1 for number in range(60))
    with trio.fail_after(60):
        async with behind_proxy(cuts, PROTOCOLS[name]) as (_, address, proxy):
            async with open_producer(address, CONFIG) as producer:
                for number in range(12):
                    async with producer.transaction():
                        for part in range(3):
                            await producer.send("t", b"%d" % (number * 3 + part))
            assert proxy.cut_count > 2
            assert await committed(address) == [b"%d" % number for number in range(36)]


@pytest.mark.parametrize("name", list(PROTOCOLS))
@pytest.mark.parametrize("api_key", [INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, END_TXN])
async def test_an_answer_of_the_coordinator_that_is_cut_off_is_asked_for_again(
    behind_proxy: Any, name: str, api_key: int
) -> None:
    with trio.fail_after(60):
        async with behind_proxy((), PROTOCOLS[name]) as (_, address, proxy):
            proxy.cut_api_key, proxy.cuts = api_key, (number % 2 == 0 for number in range(12))
            async with open_producer(address, CONFIG) as producer:
                for number in range(4):
                    async with producer.transaction():
                        await producer.send("t", b"%d" % number)
                    with pytest.raises(CrashError):
                        async with producer.transaction():
                            await (await producer.send("t", b"aborted"))
                            raise CrashError
            # By the implicit protocol the broker adds, which coordinates too: it asks itself.
            is_asked = not (name == "implicit" and api_key == ADD_PARTITIONS_TO_TXN)
            assert (proxy.cut_count > 0) == is_asked
            assert await committed(address) == [b"0", b"1", b"2", b"3"]


async def test_a_commit_without_an_answer_is_reported_as_unknown_and_ends_the_producer(
    behind_proxy: Any,
) -> None:
    hasty = ProducerConfig(transactional_id="t-1", retry_backoff_ms=20, block_ms_max=1_500)
    with trio.fail_after(60):
        async with behind_proxy() as (_, address, proxy):
            async with open_producer(address, hasty) as producer:
                with pytest.raises(TransactionOutcomeUnknownError):
                    async with producer.transaction():
                        await (await producer.send("t", b"committed all the same"))
                        proxy.cut_api_key, proxy.cuts = END_TXN, itertools.repeat(True)
                with pytest.raises(TransactionOutcomeUnknownError):
                    async with producer.transaction():
                        raise AssertionError("it begins nothing again")
            proxy.cuts = iter(())
            async with open_producer(address, CONFIG):
                assert await committed(address) == [b"committed all the same"]


@pytest.mark.parametrize(
    "settings",
    [{"transactional_id": "x", "enable_idempotence": False}, {"transactional_id": ""}],
)
def test_a_transactional_id_needs_a_name_and_numbers(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ProducerConfig(**settings)
