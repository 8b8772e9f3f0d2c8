"""A producer requests its producer id until it gets one, in virtual time."""

from collections.abc import Iterable
from typing import Any, NoReturn

import pytest
import trio
from trio.testing import MockClock

from ottla.client.network.background import open_background
from ottla.client.network.cluster import Cluster
from ottla.client.network.connection import ConnectionLostError
from ottla.client.produce.accumulator import Accumulator, ProducerIdentity
from ottla.client.produce.partition_queue import NotDeliveredError
from ottla.client.producer import Producer
from ottla.model.errors import ErrorCode
from ottla.model.ids import ProducerId
from ottla.model.settings.client import ProducerConfig
from ottla.wire.codec_types import Message
from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse
from ottla.wire.messages.metadata_request import MetadataRequest
from ottla.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

CONFIG = ProducerConfig(retry_backoff_ms=100)
GIVEN = InitProducerIdResponse(producer_id=7, producer_epoch=0)
METADATA = MetadataResponse(
    brokers=[MetadataResponseBroker(node_id=1, host="h", port=9092)],
    topics=[
        MetadataResponseTopic(
            name="t", partitions=[MetadataResponsePartition(partition_index=0, leader_id=1)]
        )
    ],
)


class ScriptedCluster(Cluster):
    """A cluster with one partition, whose leader accepts no record, and scripted producer ids."""

    def __init__(self, answers: Iterable[InitProducerIdResponse | ConnectionLostError]) -> None:
        super().__init__([("h", 9092)])
        self.asked_at_s: list[float] = []
        """Times of the requests for an id."""
        self._answers = iter(answers)
        self._began_s = trio.current_time()

    async def version_of(self, *_: object) -> int:
        return 5

    async def request(self, message: Message, *_: object, **__: object) -> Any:
        if isinstance(message, MetadataRequest):
            return METADATA
        self.asked_at_s.append(round(trio.current_time() - self._began_s, 3))
        answer = next(self._answers)
        if isinstance(answer, ConnectionLostError):
            raise answer
        return answer

    async def connect(self, *_: object, **__: object) -> NoReturn:
        await trio.sleep_forever()
        raise AssertionError("nothing ends that")


def refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


@pytest.mark.parametrize(
    "trouble",
    [
        # A broker of Kafka answers so to the first one, while it fetches its first block of ids.
        refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        refused(ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ConnectionLostError("it is gone"),
    ],
)
async def test_one_that_got_no_id_asks_again_though_nothing_else_happens(
    trouble: InitProducerIdResponse | ConnectionLostError, autojump_clock: MockClock
) -> None:
    cluster = ScriptedCluster([trouble, trouble, GIVEN])
    gathered = Accumulator(CONFIG)

    async with open_background() as nursery:
        producer = Producer(cluster, CONFIG, nursery, gathered=gathered)
        nursery.start_soon(producer._run)
        await producer.send("t", b"x")
        await trio.sleep(CONFIG.delivery_timeout_ms / 2_000)

    assert gathered.identity == ProducerIdentity(ProducerId(7), 0)
    assert cluster.asked_at_s == [0, 0.1, 0.2]


async def test_one_that_may_have_no_id_asks_once_for_a_record(
    autojump_clock: MockClock,
) -> None:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    cluster = ScriptedCluster([refused(code)])

    async with open_background() as nursery:
        producer = Producer(cluster, CONFIG, nursery)
        nursery.start_soon(producer._run)
        delivery = await producer.send("t", b"x")
        with pytest.raises(NotDeliveredError, match="no producer id"):
            await delivery
        await trio.sleep(CONFIG.delivery_timeout_ms / 2_000)

    assert cluster.asked_at_s == [0]
