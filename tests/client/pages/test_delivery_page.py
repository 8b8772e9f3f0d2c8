"""The programs of docs/delivery.md and client/README.md run unchanged.

Each is run with the failure that its text describes.
"""

import itertools
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.client import (
    ConsumerConfig,
    ConsumerRecord,
    TopicPartition,
    open_consumer,
    open_producer,
)
from ottla.client.testing import ClusterUnderTest

ROOT = Path(__file__).parents[3]
PAGES = (ROOT / "docs" / "delivery.md", ROOT / "client" / "README.md")
COUNT = 6
FAILS_AT = 3

Process = Callable[[ConsumerRecord], Awaitable[None]]
Transform = Callable[[ConsumerRecord], bytes]


class CrashError(Exception):
    """The process died."""


class DoneError(Exception):
    """All is read."""


class Database:
    """Results and position, saved together or not at all."""

    def __init__(self) -> None:
        self.results: list[int] = []
        self.next_offset = 0
        self.fails_at: int | None = FAILS_AT

    def save(self, value: bytes, *, next_offset: int) -> None:
        if int(value) == self.fails_at:
            self.fails_at = None
            raise CrashError
        self.results.append(int(value))
        self.next_offset = next_offset


def program(name: str) -> Callable[..., Awaitable[Any]]:
    """Return a function of the pages by its name."""
    for page in PAGES:
        for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
            if f"async def {name}(" in block:
                names: dict[str, Any] = {
                    "Process": Process,
                    "Database": Database,
                    "Transform": Transform,
                }
                exec(compile(block, f"{page.name}: {name}", "exec"), names)
                found: Callable[..., Awaitable[Any]] = names[name]
                return found
    raise AssertionError(f"no page has {name}")


async def fill(bootstrap: str) -> None:
    async with open_producer(bootstrap) as producer:
        for number in range(COUNT):
            await producer.send("numbers", b"%d" % number)


async def written(
    bootstrap: str, topic: str = "numbers", isolation_level: str = "read_uncommitted"
) -> list[bytes | None]:
    """Return the values in the log."""
    at = TopicPartition(topic, 0)
    config = ConsumerConfig(auto_offset_reset="earliest", isolation_level=isolation_level)
    found: list[bytes | None] = []
    async with open_consumer(bootstrap, config) as consumer:
        consumer.assign([at])
        end = (await consumer.end_offsets([at]))[at]
        while await consumer.position(at) < end:
            found += [record.value for record in await consumer.poll(1)]
    return found


async def run_and_crash(name: str, bootstrap: str) -> list[int]:
    """Run a reader that dies within one record, then its successor; return the work of both."""
    done: list[int] = []
    has_crashed = False

    async def process(record: ConsumerRecord) -> None:
        nonlocal has_crashed
        number = int(record.value or b"")
        if name != "read_at_most_once":
            done.append(number)
        if number == FAILS_AT and not has_crashed:
            has_crashed = True
            raise CrashError
        if name == "read_at_most_once":
            done.append(number)
        if number == COUNT - 1:
            raise DoneError

    with trio.fail_after(60):
        with pytest.raises(CrashError):
            await program(name)(bootstrap, process)
        with pytest.raises(DoneError):
            await program(name)(bootstrap, process)
    return done


async def test_at_most_once_loses_the_record_it_died_with(ottla_cluster: ClusterUnderTest) -> None:
    await fill(ottla_cluster.bootstrap)

    assert await run_and_crash("read_at_most_once", ottla_cluster.bootstrap) == [0, 1, 2, 4, 5]


async def test_at_least_once_does_that_record_again(ottla_cluster: ClusterUnderTest) -> None:
    await fill(ottla_cluster.bootstrap)

    done = await run_and_crash("read_at_least_once", ottla_cluster.bootstrap)

    assert done == [0, 1, 2, 3, 3, 4, 5]


@pytest.mark.parametrize("name", ["read_and_commit_behind", "read_in_a_group"])
async def test_a_commit_that_is_not_waited_for_may_be_behind_and_skips_nothing(
    ottla_cluster: ClusterUnderTest, name: str
) -> None:
    await fill(ottla_cluster.bootstrap)

    done = await run_and_crash(name, ottla_cluster.bootstrap)

    assert done[: FAILS_AT + 1] == list(range(FAILS_AT + 1))
    again = done[FAILS_AT + 1 :]
    assert again == list(range(again[0], COUNT))
    assert again[0] <= FAILS_AT


async def test_a_position_kept_with_the_results_makes_it_once(
    ottla_cluster: ClusterUnderTest,
) -> None:
    await fill(ottla_cluster.bootstrap)
    database = Database()

    with trio.fail_after(60):
        with pytest.raises(CrashError):
            await program("read_once")(ottla_cluster.bootstrap, database)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(program("read_once"), ottla_cluster.bootstrap, database)
            while len(database.results) < COUNT:
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()

    assert database.results == list(range(COUNT))


async def test_an_idempotent_producer_sends_once_though_answers_are_lost(behind_proxy: Any) -> None:
    values = [b"%d" % number for number in range(20)]
    async with behind_proxy(itertools.repeat(True, 3)) as (_, known_at, proxy):
        await program("send_once")(known_at, values)
        assert proxy.cut_count == 3
        assert await written(known_at) == values


async def test_a_producer_without_retries_says_what_may_be_lost(behind_proxy: Any) -> None:
    values = [b"%d" % number for number in range(20)]
    async with behind_proxy(itertools.repeat(True, 1)) as (_, known_at, proxy):
        lost = await program("send_at_most_once")(known_at, values)
        assert proxy.cut_count == 1
        assert lost == values, "all went in one request, whose answer was lost"
        assert await written(known_at) in (values, [])


async def test_a_transaction_holds_results_and_position_together(
    ottla_cluster: ClusterUnderTest,
) -> None:
    bootstrap = ottla_cluster.bootstrap
    await fill(bootstrap)
    has_crashed = False

    def square(record: ConsumerRecord) -> bytes:
        nonlocal has_crashed
        number = int(record.value or b"")
        if number == FAILS_AT and not has_crashed:
            has_crashed = True
            raise CrashError
        return b"%d" % number**2

    run = program("transform_once")
    with trio.fail_after(60):
        with pytest.raises(CrashError):
            await run(bootstrap, square)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, bootstrap, square)
            while len(await written(bootstrap, "squares", "read_committed")) < COUNT:
                await trio.sleep(0.05)
            nursery.cancel_scope.cancel()

        found = await written(bootstrap, "squares", "read_committed")
    assert found == [b"%d" % number**2 for number in range(COUNT)]
