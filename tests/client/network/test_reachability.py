"""Log lines about unreachable brokers."""

import logging
import socket

import pytest
import trio

from ottla.client import ConsumerConfig, ProducerConfig, RefusedError, open_consumer, open_producer
from ottla.client.network.reachability import ADDRESS_COUNT_MAX, Reachability
from ottla.client.network.transport import TRANSPORT
from ottla.model.ids import TopicPartition
from ottla.model.seams import ByteStream

HERE = ("localhost", 9092)
NOBODY = "127.0.0.1:1"


def texts(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "ottla.client.network"]


def test_an_outage_is_one_line_after_a_second_and_one_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    known = Reachability()
    for tenths in range(30):
        known.note_failure(HERE, "refused", began_s=tenths / 10, now_s=tenths / 10)
        assert texts(caplog) == ["refused, trying again"] * (tenths >= 10)
    known.note_success(HERE, now_s=3.0)
    known.note_success(HERE, now_s=4.0)
    assert texts(caplog)[1:] == ["connected to localhost:9092 again after 3.0 s"]


def test_another_reason_is_another_line(caplog: pytest.LogCaptureFixture) -> None:
    known = Reachability()
    for second, reason in enumerate(("refused", "refused", "not found", "not found", "refused")):
        known.note_failure(HERE, reason, began_s=second, now_s=second)
    assert texts(caplog) == [
        f"{reason}, trying again" for reason in ("refused", "not found", "refused")
    ]


def test_a_short_outage_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    known = Reachability()
    known.note_failure(HERE, "refused", began_s=0, now_s=0.9)
    known.note_success(HERE, now_s=1.0)
    known.note_failure(HERE, "refused", began_s=5, now_s=5)
    assert texts(caplog) == []


def test_an_attempt_that_hung_counts_from_its_beginning(caplog: pytest.LogCaptureFixture) -> None:
    Reachability().note_failure(HERE, "no answer", began_s=0, now_s=10)
    assert texts(caplog) == ["no answer, trying again"]


def test_addresses_beyond_the_bound_are_not_remembered(caplog: pytest.LogCaptureFixture) -> None:
    known = Reachability()
    for port in range(ADDRESS_COUNT_MAX + 1):
        known.note_failure(("h", port), "refused", began_s=0, now_s=5)
    assert len(texts(caplog)) == ADDRESS_COUNT_MAX


async def test_a_consumer_that_reaches_no_broker_says_so(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    caplog.set_level(logging.INFO)
    async with open_consumer(NOBODY, ConsumerConfig()) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        with trio.move_on_after(30):
            while True:
                await consumer.poll(1)
    assert texts(caplog) == [f"cannot connect to {NOBODY}: no process listens there, trying again"]


async def test_a_refusal_is_one_sentence_without_a_chain_of_causes() -> None:
    async with open_producer(NOBODY, ProducerConfig(block_ms_max=300)) as producer:
        with pytest.raises(RefusedError) as refused:
            await producer.send("t", b"x")
    assert refused.value.message == f"cannot connect to {NOBODY}: no process listens there"
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


async def test_a_host_that_is_not_found_is_named() -> None:
    class NoNames:
        """A network whose name server resolves no host."""

        async def connect(self, host: str, port: int) -> ByteStream:
            await trio.lowlevel.checkpoint()
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    TRANSPORT.set(NoNames())
    async with open_producer("nosuch.invalid:1", ProducerConfig(block_ms_max=300)) as producer:
        with pytest.raises(RefusedError, match=r"the host name nosuch\.invalid is not found"):
            await producer.send("t", b"x")
