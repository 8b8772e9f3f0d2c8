"""A producer's link to one broker, over a connection without a network."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client.network.background import open_background
from ottla.client.network.broker_link import GRACE_S
from ottla.client.network.cluster import KnownLeader
from ottla.client.network.connection import ConnectionLostError
from ottla.client.produce.accumulator import Accumulator, ProducerIdentity
from ottla.client.produce.producer_link import ProducerLink
from ottla.model.ids import Epoch, NodeId, ProducerId, TopicPartition
from ottla.model.settings.client import ProducerConfig
from ottla.wire.messages.produce_request import ProduceRequest
from ottla.wire.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

AT = TopicPartition("t", 0)
TOPIC_ID = UUID(int=5)
LEADER = NodeId(1)
ANSWER_S = 0.5
TIMEOUT_S = 3.0


class Broker:
    """A connection to a broker that answers a number of requests, one after the other, each in
    `ANSWER_S` seconds. An answer arrives even if it is not read."""

    address = "host:9092"

    def __init__(self, answered_count: int, *, reads: bool = True, send_s: float = 0.0) -> None:
        self.left_count = answered_count
        self.reads = reads
        self.send_s = send_s
        self.sent_s: list[float] = []
        self.partitions: list[int] = []
        self.is_sending = False
        self.free_s = 0.0

    def version_of(self, api_key: int) -> int:
        return 13

    async def submit(self, request: ProduceRequest, kind: Any, version: int, trace: Any) -> Any:
        self.sent_s.append(trio.current_time())
        assert not self.is_sending
        self.is_sending = True
        if not self.reads:
            await trio.sleep_forever()
        if self.send_s:
            await trio.sleep(self.send_s)
        self.is_sending = False
        found = [one.index for topic in request.topic_data for one in topic.partition_data]
        self.partitions += found
        self.free_s = arrives_s = max(self.free_s, trio.current_time()) + ANSWER_S
        return SimpleNamespace(answer=lambda: self.answer(found, arrives_s))

    async def answer(self, partitions: list[int], arrives_s: float) -> ProduceResponse:
        if not self.left_count:
            await trio.sleep_forever()
        self.left_count -= 1
        await trio.sleep_until(arrives_s)
        found = [PartitionProduceResponse(index=one, base_offset=7) for one in partitions]
        topic = TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=found)
        return ProduceResponse(responses=[topic])


class Records:
    """A producer's buffer, its link, and the notifications of the link."""

    def __init__(self, in_flight_count_max: int = 5, *, linger_ms: int = 0) -> None:
        config = ProducerConfig(
            linger_ms=linger_ms,
            batch_bytes=90,  # one record
            request_timeout_ms=round(TIMEOUT_S * 1_000),
            in_flight_count_max=in_flight_count_max,
        )
        self.gathered = Accumulator(config)
        self.gathered.become(ProducerIdentity(ProducerId(7), 0))
        self.delivered: list[TopicPartition] = []
        self.changed: list[TopicPartition | None] = []
        cluster: Any = SimpleNamespace(
            known_leader=lambda at: KnownLeader(LEADER, Epoch(1)),
            address_of=lambda node: ("host", 9092),
            topics={"t": SimpleNamespace(topic_id=TOPIC_ID)},
        )
        self.link = ProducerLink(
            LEADER,
            cluster=cluster,
            gathered=self.gathered,
            config=config,
            on_change=self.changed.append,
            on_delivered=lambda at, node: self.delivered.append(at),
        )

    def send(self, partition: int = 0) -> None:
        at = TopicPartition("t", partition)
        self.gathered.append(at, 0, None, b"v", (), round(trio.current_time() * 1_000))
        self.link.wake_up.set()


async def test_a_delivered_batch_is_no_reason_to_look_for_changes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    records = Records()
    broker: Any = Broker(answered_count=2)
    records.send()

    with trio.move_on_after(1_000):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(records.link._serve, broker)
            await trio.sleep(10 * TIMEOUT_S)
            records.send()

    assert broker.sent_s == [0.0, 10 * TIMEOUT_S]
    assert records.delivered == [AT, AT]
    assert records.changed == []
    assert records.gathered.buffered_bytes == 0


async def test_what_waits_for_an_answer_is_sent_when_it_arrives(
    autojump_clock: trio.testing.MockClock,
) -> None:
    records = Records(in_flight_count_max=1)
    broker: Any = Broker(answered_count=4)

    with trio.move_on_after(1_000):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(records.link._serve, broker)
            for partition in range(4):
                records.send(partition)
                await trio.sleep(ANSWER_S / 10)

    assert broker.sent_s == [0.0, ANSWER_S]
    assert broker.partitions == [0, 1, 2, 3]
    assert len(records.delivered) == 4


async def test_requests_to_a_slow_reader_are_sent_one_after_the_other(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A task that handles an answer and the task that sends never write at the same time."""
    records = Records(in_flight_count_max=2)
    broker: Any = Broker(answered_count=20, send_s=2 * ANSWER_S)

    with trio.move_on_after(1_000):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(records.link._serve, broker)
            for partition in range(20):
                records.send(partition)
                await trio.sleep(ANSWER_S / 3)

    assert broker.partitions == list(range(20))
    assert len(records.delivered) == 20
    assert records.gathered.buffered_bytes == 0


LINGER_MS = 1_000


async def test_a_batch_waits_no_longer_than_linger_behind_a_sent_one(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The sending task sleeps when the earlier batch is sent by the task that takes the answers."""
    records = Records(in_flight_count_max=1, linger_ms=LINGER_MS)
    broker: Any = Broker(answered_count=9)

    with trio.move_on_after(1_000):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(records.link._serve, broker)
            records.send(0)
            await trio.sleep(0.2)
            records.send(1)  # ready at 1.2 s, when a request is in flight until 1.5 s
            await trio.sleep(1.1)
            records.send(1)  # ready at 2.3 s, when no request is in flight since 2.0 s

    assert broker.sent_s == [1.0, 1.5, 2.3]
    assert broker.partitions == [0, 1, 1]


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=25),
    in_flight_count_max=st.integers(1, 3),
    linger_ms=st.sampled_from([0, 300, LINGER_MS]),
    send_s=st.sampled_from([0.0, 0.4, 1.3]),
)
def test_every_record_is_sent_within_linger_and_the_answers_before_it(
    steps: list[tuple[int, int]], in_flight_count_max: int, linger_ms: int, send_s: float
) -> None:
    """No batch depends on a later event: not on another record, nor on the delivery timeout."""
    records = Records(in_flight_count_max, linger_ms=linger_ms)
    broker: Any = Broker(answered_count=1_000, send_s=send_s)
    last_s = 0.0

    async def run() -> None:
        nonlocal last_s
        async with trio.open_nursery() as nursery:
            nursery.start_soon(records.link._serve, broker)
            for partition, pause in steps:
                records.send(partition)
                await trio.sleep(pause * ANSWER_S / 3)
            last_s = trio.current_time()
            # A batch may wait for its linger time, and each for all others.
            await trio.sleep(linger_ms / 1_000 + len(steps) * (send_s + ANSWER_S) + ANSWER_S)
            nursery.cancel_scope.cancel()

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
    assert records.gathered.buffered_bytes == 0
    assert len(records.delivered) <= len(steps)


@pytest.mark.parametrize(
    ("reads", "error"), [(True, "did not answer in 3000 ms"), (False, "does not read")]
)
async def test_a_broker_that_does_not_answer_is_lost_after_the_timeout(
    autojump_clock: trio.testing.MockClock, reads: bool, error: str
) -> None:
    records = Records()
    broker: Any = Broker(answered_count=0, reads=reads)
    records.send()

    with pytest.raises(ConnectionLostError, match=error):
        await records.link._serve(broker)

    assert trio.current_time() == pytest.approx(TIMEOUT_S + GRACE_S)


async def test_an_answer_that_is_not_read_during_a_slow_request_is_not_overdue(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The task that takes answers sends the third request from 4.5 s to 6.5 s. The answer to the
    second one was due at 5.5 s, and arrived at 5 s."""
    records = Records(in_flight_count_max=2)
    broker: Any = Broker(answered_count=3, send_s=2.0)
    for _ in range(3):
        records.send()

    with trio.move_on_after(1_000):
        await records.link._serve(broker)

    assert broker.sent_s == [0.0, 2.5, 4.5]
    assert records.delivered == [AT, AT, AT]


async def test_a_broker_that_reads_no_request_of_the_reading_task_is_lost(
    autojump_clock: trio.testing.MockClock,
) -> None:
    records = Records(in_flight_count_max=2)
    broker: Any = Broker(answered_count=3)
    for _ in range(2):
        records.send()

    with pytest.raises(ConnectionLostError, match="does not read"):
        async with open_background() as nursery:
            nursery.start_soon(records.link._serve, broker)
            await trio.sleep(ANSWER_S / 2)
            broker.reads = False
            await trio.sleep_forever()

    assert broker.sent_s == [0.0, ANSWER_S]
    assert trio.current_time() == pytest.approx(ANSWER_S + TIMEOUT_S + GRACE_S)


async def test_an_answer_just_before_the_timeout_is_none_of_the_next_request(
    autojump_clock: trio.testing.MockClock,
) -> None:
    records = Records()
    broker: Any = Broker(answered_count=1)
    records.send()

    with pytest.raises(ConnectionLostError, match="did not answer"):
        async with open_background() as nursery:
            nursery.start_soon(records.link._serve, broker)
            await trio.sleep(TIMEOUT_S - ANSWER_S)
            records.send()
            await trio.sleep_forever()

    assert trio.current_time() == pytest.approx(2 * TIMEOUT_S - ANSWER_S + GRACE_S)
