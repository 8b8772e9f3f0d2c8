"""The stock of producer ids: no id is given twice, and the next block is requested in advance."""

import pytest
import trio
import trio.testing

from ottla.broker.transactions.producer_id_stock_driver import RETRY_S, ProducerIdStock
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import ProducerId


class Blocks:
    """A controller that allocates blocks of ten ids, and fails on demand."""

    def __init__(self) -> None:
        self.given_count = 0
        self.is_down = False

    async def allocate(self) -> tuple[ProducerId, int]:
        if self.is_down:
            raise RefusedError(ErrorCode.REQUEST_TIMED_OUT)
        self.given_count += 1
        return ProducerId(10 * self.given_count), 10


async def test_producer_ids_come_from_blocks_and_never_twice(
    nursery: trio.Nursery, autojump_clock: object
) -> None:
    blocks = Blocks()
    stock = ProducerIdStock(blocks.allocate)
    nursery.start_soon(stock.run)
    given = []
    for _ in range(35):
        await stock.wait(1)
        given.append(stock.take())
    assert given == list(range(10, 45))
    assert blocks.given_count == 4


async def test_the_next_block_is_fetched_before_the_current_one_is_used_up(
    nursery: trio.Nursery,
) -> None:
    blocks = Blocks()
    stock = ProducerIdStock(blocks.allocate)
    nursery.start_soon(stock.run)
    await stock.wait(1)
    for number in range(9):
        assert blocks.given_count == 1, number
        stock.take()
        await trio.testing.wait_all_tasks_blocked()
    assert blocks.given_count == 2


async def test_without_a_controller_the_error_is_retriable(
    nursery: trio.Nursery, autojump_clock: object
) -> None:
    blocks = Blocks()
    blocks.is_down = True
    stock = ProducerIdStock(blocks.allocate)
    nursery.start_soon(stock.run)
    began_at = trio.current_time()
    await stock.wait(30)
    assert trio.current_time() == began_at
    with pytest.raises(RefusedError) as refused:
        stock.take()
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    blocks.is_down = False
    await stock.wait(2 * RETRY_S)
    assert stock.take() == 10
