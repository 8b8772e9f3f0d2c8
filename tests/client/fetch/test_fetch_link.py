"""A consumer's link to one broker, over a connection without a network."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
import trio
import trio.testing

from ottla.client.fetch.fetch_link import PATIENCE_MS, FetchLink
from ottla.client.fetch.positions import Positions
from ottla.client.network.broker_link import GRACE_S
from ottla.client.network.cluster import KnownLeader
from ottla.client.network.connection import ConnectionLostError
from ottla.model.ids import Epoch, NodeId, Offset, TopicPartition
from ottla.model.settings.client import ConsumerConfig
from ottla.model.settings.offset_reset import parse_offset_reset
from ottla.wire.messages.fetch_request import FetchRequest
from ottla.wire.messages.fetch_response import FetchResponse

AT = TopicPartition("t", 0)
LEADER = NodeId(1)
ANSWER_S = 0.5


class Broker:
    """A connection to a broker that answers a number of fetches, each after `ANSWER_S` seconds."""

    address = "host:9092"

    def __init__(self, answered_count: int) -> None:
        self.left_count = answered_count
        self.asked_s: list[float] = []

    def version_of(self, api_key: int) -> int:
        return 17

    async def request(self, request: FetchRequest, kind: Any, version: int) -> FetchResponse:
        self.asked_s.append(trio.current_time())
        if not self.left_count:
            await trio.sleep_forever()
        self.left_count -= 1
        await trio.sleep(ANSWER_S)
        return FetchResponse(session_id=1)


def link_of(positions: Positions, config: ConsumerConfig) -> FetchLink:
    cluster: Any = SimpleNamespace(
        known_leader=lambda at: KnownLeader(LEADER, Epoch(1)),
        address_of=lambda node: ("host", 9092),
        topics={"t": SimpleNamespace(topic_id=UUID(int=5))},
    )
    return FetchLink(
        LEADER,
        cluster=cluster,
        positions=positions,
        config=config,
        on_records=lambda: None,
        on_moved=lambda: None,
        on_stale=lambda topic: None,
        on_failure=lambda error: None,
    )


def assigned() -> Positions:
    positions = Positions(parse_offset_reset("earliest"), ahead_bytes=200)
    positions.assign([AT])
    positions.seek(AT, Offset(5))
    return positions


async def test_a_broker_that_does_not_answer_a_fetch_is_lost_after_the_patience(
    autojump_clock: trio.testing.MockClock,
) -> None:
    config = ConsumerConfig(fetch_wait_ms_max=500)
    broker: Any = Broker(answered_count=3)

    with pytest.raises(ConnectionLostError, match="did not answer a fetch"):
        await link_of(assigned(), config)._serve(broker)

    assert broker.asked_s == [0.0, 0.5, 1.0, 1.5]
    assert trio.current_time() == pytest.approx(1.5 + (500 + PATIENCE_MS) / 1_000 + GRACE_S)


async def test_a_link_without_work_waits_without_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    positions = assigned()
    broker: Any = Broker(answered_count=2)
    link = link_of(positions, ConsumerConfig())

    with trio.move_on_after(3_600):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(link._serve, broker)
            await trio.sleep(0.7)
            positions.place(AT).is_paused = True
            link.wake_up.set()
            await trio.sleep(1_000)
            assert broker.asked_s == [0.0, 0.5]
            positions.place(AT).is_paused = False
            broker.left_count = 10_000
            link.wake_up.set()
            await trio.sleep(0.1)
            assert len(broker.asked_s) == 3
            nursery.cancel_scope.cancel()
    assert trio.current_time() == pytest.approx(1_000.8)


async def test_a_response_that_arrives_while_the_loop_is_blocked_is_read(
    mock_clock: trio.testing.MockClock,
) -> None:
    broker: Any = Broker(answered_count=1_000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link_of(assigned(), ConsumerConfig())._serve, broker)
        for count in range(1, 30):
            await trio.testing.wait_all_tasks_blocked()
            assert len(broker.asked_s) == count
            mock_clock.jump(10 * PATIENCE_MS / 1_000)
        nursery.cancel_scope.cancel()
