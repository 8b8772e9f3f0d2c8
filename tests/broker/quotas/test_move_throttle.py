"""Logs that move between directories, held to the rate of their broker, in virtual time."""

import pytest
import trio

from ottla.broker.quotas.move_throttle_driver import MoveThrottle
from ottla.broker.quotas.replication_quota import ReplicationQuota
from ottla.model.limits import INT64_MAX, KIB
from ottla.model.quotas.rates import WindowShape

PIECE = 256 * KIB


def now_ms() -> int:
    return round(trio.current_time() * 1_000)


@pytest.mark.parametrize("moves", [1, 3])
async def test_moves_together_are_copied_at_the_rate_of_their_limit(
    autojump_clock: trio.testing.MockClock, moves: int
) -> None:
    quota = ReplicationQuota(WindowShape(), 4_000_000, now_ms)
    throttle = MoveThrottle(quota)
    copied = 0

    async def move() -> None:
        nonlocal copied
        while True:
            await throttle.take(PIECE)
            copied += PIECE
            await trio.sleep(0.001)

    async with trio.open_nursery() as nursery:
        for _ in range(moves):
            nursery.start_soon(move)
        await trio.sleep(15)
        before = copied
        await trio.sleep(40)
        nursery.cancel_scope.cancel()
    assert (copied - before) / 40 == pytest.approx(4_000_000, rel=0.05)


async def test_a_raised_limit_lets_a_move_go_on_within_half_a_second(
    autojump_clock: trio.testing.MockClock,
) -> None:
    quota = ReplicationQuota(WindowShape(), 1, now_ms)
    throttle = MoveThrottle(quota)
    await throttle.take(PIECE)
    waited_from = trio.current_time()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(throttle.take, PIECE)
        await trio.sleep(2)
        quota.set_limit(INT64_MAX)
    assert trio.current_time() - waited_from <= 2.5
