"""Coordinators' answers decide a producer's identity, and its end."""

from collections.abc import Iterable
from typing import Any

import pytest

from ottla.client.network.cluster import Cluster
from ottla.client.produce.accumulator import ProducerIdentity
from ottla.client.transactions.producer_transactions import ProducerTransactions
from ottla.client.transactions.transaction_flow import ProducerFencedError
from ottla.model.errors import ErrorCode
from ottla.model.ids import ProducerId
from ottla.model.settings.client import ProducerConfig
from ottla.wire.codec_types import Message
from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse

CONFIG = ProducerConfig(transactional_id="id", block_ms_max=1_000, retry_backoff_ms=1)


class ScriptedCoordinator:
    """Returns given answers, one after another."""

    def __init__(self, answers: Iterable[Message]) -> None:
        self.asked: list[Message] = []
        self._answers = iter(answers)

    async def version_of(self, api_key: int) -> int:
        return 5

    async def feature_level(self, name: str) -> int:
        return 0

    async def request(self, request: Message, *_: Any, **__: Any) -> Message:
        self.asked.append(request)
        return next(self._answers)


def producer_of(*answers: Message) -> tuple[ProducerTransactions, ScriptedCoordinator]:
    cluster: Cluster = None  # type: ignore[assignment]  # nothing but its coordinator is asked
    transactions = ProducerTransactions(cluster, CONFIG)
    coordinator = ScriptedCoordinator(answers)
    transactions._calls.coordinator = coordinator  # type: ignore[assignment]
    return transactions, coordinator


def given(producer_id: int, epoch: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


def refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


async def test_a_producer_is_who_the_coordinator_says() -> None:
    transactions, _ = producer_of(refused(ErrorCode.CONCURRENT_TRANSACTIONS), given(7, 3))
    await transactions.initialise()
    assert transactions.flow.identity == ProducerIdentity(ProducerId(7), 3)


async def test_a_producer_that_is_refused_its_next_epoch_never_asks_for_another_one() -> None:
    transactions, coordinator = producer_of(given(7, 3), refused(ErrorCode.PRODUCER_FENCED))
    await transactions.initialise()
    with pytest.raises(ProducerFencedError):
        await transactions.initialise()
    assert transactions.flow.identity == ProducerIdentity(ProducerId(7), 3)
    with pytest.raises(ProducerFencedError):
        async with transactions.transaction():
            raise AssertionError("it begins nothing again")
    assert len(coordinator.asked) == 2
