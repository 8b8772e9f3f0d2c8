"""Parts of one request that wait concurrently."""

import pytest
import trio
from trio.testing import MockClock

from ottla.node.network.side_by_side_driver import side_by_side


@pytest.mark.parametrize("count", [1, 3])
async def test_parts_wait_at_the_same_time(count: int, autojump_clock: MockClock) -> None:
    done: list[float] = []

    async def part() -> None:
        await trio.sleep(1)
        done.append(trio.current_time())

    begun = trio.current_time()
    await side_by_side([part] * count)
    assert done == [begun + 1] * count


@pytest.mark.parametrize("count", [1, 2])
async def test_the_error_of_a_part_ends_the_others(count: int, autojump_clock: MockClock) -> None:
    async def fails() -> None:
        await trio.sleep(1)
        raise ZeroDivisionError

    begun = trio.current_time()
    with pytest.raises(ZeroDivisionError):
        await side_by_side([fails, trio.sleep_forever][:count])
    assert trio.current_time() == begun + 1
