"""No request, of any API and version, holds a broker's loop or takes memory beyond the bounds.

By default each version of each API gets some of the shapes of `kafka_requests`, in turn, so that
about two minutes of processor time suffice; over its versions an API gets them all.  With
OTTLA_LOOP_HOLD=full every version gets every shape, at 64 KiB and at 1 MiB.  OTTLA_LOOP_HOLD_SEED
repeats what a failure printed.
"""

import os
from collections.abc import Iterator
from time import thread_time_ns

import pytest
import trio

from ottla.jepsen.oracles.loop_cost import GROWTH_BYTES_MAX, HOLD_MS_MAX, Cost, LoopWatch
from ottla.jepsen.oracles.loop_hold import costs_of, open_target
from ottla.model.limits import KIB, MIB

IS_FULL = os.environ.get("OTTLA_LOOP_HOLD") == "full"
SEED = int(os.environ.get("OTTLA_LOOP_HOLD_SEED", "1"))
REQUESTS_PER_VERSION = 4
"""By default: an API of 4 versions still gets every shape."""


@pytest.mark.timeout(14_400 if IS_FULL else 3_600)
async def test_no_request_holds_the_loop_or_takes_memory_beyond_the_bounds() -> None:
    async with open_target() as target:

        def judge() -> tuple[int, list[Cost]]:
            count, broken = 0, []
            for cost in _costs():
                count += 1
                if cost.is_too_much:
                    print(f"seed {SEED}: {cost}")
                    broken.append(cost)
            return count, broken

        def _costs() -> Iterator[Cost]:
            for bytes_max in (64 * KIB, MIB) if IS_FULL else (64 * KIB,):
                yield from costs_of(
                    target,
                    SEED,
                    bytes_max=bytes_max,
                    requests_per_version=None if IS_FULL else REQUESTS_PER_VERSION,
                )

        count, broken = await trio.to_thread.run_sync(judge)
    print(f"seed {SEED}: {count} requests")
    assert not broken, (
        f"seed {SEED}: above {HOLD_MS_MAX} ms or {GROWTH_BYTES_MAX // MIB} MiB:\n"
        + "\n".join(map(str, broken))
    )


async def test_a_task_that_holds_the_loop_is_seen_and_named() -> None:
    watch = LoopWatch()
    trio.lowlevel.add_instrument(watch)

    async def hold() -> None:
        ends_ns = thread_time_ns() + 50_000_000
        while thread_time_ns() < ends_ns:
            pass

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hold)
    await trio.lowlevel.checkpoint()
    await trio.sleep(0.001)
    trio.lowlevel.remove_instrument(watch)
    assert watch.hold_ns >= 50_000_000
    assert "hold" in watch.holder
