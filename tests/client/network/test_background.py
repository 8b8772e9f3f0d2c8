"""What serves a client's block in the background."""

import trio
from trio.testing import MockClock

from ottla.client.network.background import Bell, now_ms


async def test_who_slept_until_an_instant_finds_it_come(autojump_clock: MockClock) -> None:
    """1015 ms are 1.015 s, and 1.015 times 1000 is below 1015: the waiter would spin."""
    bell = Bell()
    for instant_ms in (1_015, 4_350, 8_029, 1_000_003):
        await bell.wait(instant_ms)
        assert now_ms() == instant_ms
    assert trio.current_time() < 1_001
