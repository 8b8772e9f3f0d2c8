"""Another process completes prepared transactions, against a real cluster, by both protocols."""

import pickle
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from ottla.client import (
    ConsumerConfig,
    Membership,
    PreparedTransaction,
    ProducerConfig,
    ProducerFencedError,
    RefusedError,
    TopicPartition,
    TransactionAbortedError,
    TransactionOutcomeUnknownError,
    complete_transactions,
    open_admin,
    open_consumer,
    open_producer,
)
from ottla.wire.apis import END_TXN, PRODUCE, TXN_OFFSET_COMMIT

AT = TopicPartition("t", 0)
PROTOCOLS: dict[str, dict[int, int]] = {
    "explicit": {END_TXN: 4, TXN_OFFSET_COMMIT: 4, PRODUCE: 11},
    "implicit": {},
}


@pytest.fixture(params=list(PROTOCOLS))
async def proxied(request: pytest.FixtureRequest, behind_proxy: Any) -> AsyncIterator[Any]:
    """Give the address of a cluster that offers one protocol, and the proxy before it."""
    with trio.fail_after(60):
        async with behind_proxy(highest=PROTOCOLS[request.param]) as (_, address, proxy):
            yield address, proxy


@pytest.fixture
def known_at(proxied: Any) -> str:
    address: str = proxied[0]
    return address


def config(number: int) -> ProducerConfig:
    return ProducerConfig(transactional_id=f"t-{number}", retry_backoff_ms=20, linger_ms=0)


async def prepare(bootstrap: str, number: int) -> PreparedTransaction:
    """Write one record and one offset in a transaction, prepare it and leave."""
    async with open_producer(bootstrap, config(number)) as producer:
        async with producer.transaction() as transaction:
            await producer.send("t", b"%d" % number)
            await transaction.send_offsets({AT: number}, Membership(group_id=f"g-{number}"))
            prepared = await transaction.prepare()
            with pytest.raises(RefusedError, match="sends within"):
                await producer.send("t", b"behind the end")
        with pytest.raises(RefusedError, match="is prepared, and ended elsewhere"):
            async with producer.transaction():
                pass
    assert prepared is not None
    copied: PreparedTransaction = pickle.loads(pickle.dumps(prepared))
    return copied


async def committed(bootstrap: str) -> list[bytes | None]:
    """Return the values that a reader of committed records sees."""
    found: list[bytes | None] = []
    reads = ConsumerConfig(auto_offset_reset="earliest", isolation_level="read_committed")
    async with open_consumer(bootstrap, reads) as consumer:
        consumer.assign([AT])
        end = (await consumer.end_offsets([AT]))[AT]
        while await consumer.position(AT) < end:
            found += [record.value for record in await consumer.poll(1)]
    return found


async def offsets_of(bootstrap: str, number: int) -> list[int]:
    async with open_admin(bootstrap) as admin:
        return [int(one.offset) for one in (await admin.group_offsets(f"g-{number}")).values()]


async def test_what_is_prepared_is_seen_when_it_is_committed_as_often_as_that_is_asked(
    known_at: str,
) -> None:
    prepared = [await prepare(known_at, number) for number in range(3)]
    assert await committed(known_at) == []
    await complete_transactions(known_at, prepared[:2], is_commit=True)
    await complete_transactions(known_at, prepared[:2], is_commit=True)
    await complete_transactions(known_at, prepared[2:], is_commit=False)
    assert await committed(known_at) == [b"0", b"1"]
    assert [await offsets_of(known_at, number) for number in range(3)] == [[0], [1], []]


async def test_what_a_later_producer_has_aborted_is_not_committed_and_others_are(
    known_at: str,
) -> None:
    prepared = [await prepare(known_at, number) for number in range(2)]
    async with open_producer(known_at, config(0)):
        pass
    with pytest.raises((ProducerFencedError, TransactionAbortedError), match="t-0"):
        await complete_transactions(known_at, prepared, is_commit=True)
    await complete_transactions(known_at, prepared[:1], is_commit=False)
    assert await committed(known_at) == [b"1"]


async def test_an_error_behind_prepare_still_aborts(known_at: str) -> None:
    with pytest.raises(ZeroDivisionError):
        async with open_producer(known_at, config(0)) as producer, producer.transaction() as one:
            await producer.send("t", b"0")
            await one.prepare()
            raise ZeroDivisionError
    assert await prepare(known_at, 1)
    async with open_admin(known_at) as admin:
        found = {one.transactional_id: one.state for one in await admin.list_transactions()}
    assert found["t-0"] != "Ongoing"
    assert found["t-1"] == "Ongoing"


async def test_a_transaction_without_records_has_nothing_to_end(known_at: str) -> None:
    async with open_producer(known_at, config(0)) as producer, producer.transaction() as one:
        assert await one.prepare() is None


async def test_a_commit_without_an_answer_is_reported_as_unknown(proxied: Any) -> None:
    address, proxy = proxied
    prepared = await prepare(address, 0)
    proxy.cut_api_key = END_TXN
    proxy.cuts = iter(lambda: True, False)
    short = ProducerConfig(block_ms_max=300)
    with pytest.raises(TransactionOutcomeUnknownError, match="t-0"):
        await complete_transactions(address, [prepared], short, is_commit=True)
    proxy.cuts = iter(lambda: False, True)
    await complete_transactions(address, [prepared], is_commit=True)
    assert await committed(address) == [b"0"]
