"""The store of simulated worlds: serialisable, and whole at every crash of its caller."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

import ottla.testing.world as world
from ottla.client.consumer import open_consumer
from ottla.model.settings.client import ConsumerConfig
from ottla.testing.world.databases.store import StoreConflictError, StoreTransaction, WorldStore
from ottla.testing.world.life import LIFE, InstanceLife
from ottla.testing.world.timeline import Timeline

KEYS = ["a/1", "a/2", "b"]
OPERATIONS = st.one_of(
    st.tuples(st.just("get"), st.sampled_from(KEYS)),
    st.tuples(st.just("put"), st.sampled_from(KEYS)),
    st.tuples(st.just("delete"), st.sampled_from(KEYS)),
    st.tuples(st.just("scan"), st.sampled_from(["", "a/", "b"])),
)
PROGRAMS = st.lists(
    st.tuples(st.integers(0, 20), st.lists(OPERATIONS, min_size=1, max_size=5)),
    min_size=1,
    max_size=6,
)
"""Transactions: their start in ms, and their operations, which take 1 ms each."""


def run(main: Callable[[], Awaitable[object]]) -> None:
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


class Execution:
    """One transaction: its answers, and the version whose snapshot it read or that it wrote."""

    def __init__(self, number: int, operations: list[tuple[str, str]]) -> None:
        self.number = number
        self.operations = operations
        self.answers: list[object] = []
        self.place: tuple[int, int] | None = None
        """Place in the serial order; None if the transaction was rolled back."""

    async def run(self, store: WorldStore, start_ms: int) -> None:
        await trio.sleep(start_ms / 1_000)
        try:
            async with store.transaction() as transaction:
                for operation, key in self.operations:
                    self.answers.append(await self._do(transaction, operation, key))
        except StoreConflictError:
            return
        version = transaction.commit_version
        self.place = (transaction.version, 1) if version is None else (version, 0)

    async def _do(self, transaction: StoreTransaction, operation: str, key: str) -> object:
        if operation == "get":
            return await transaction.get(key)
        if operation == "scan":
            return await transaction.scan(key)
        if operation == "put":
            await transaction.put(key, f"written by {self.number}")
        else:
            await transaction.delete(key)
        return None

    def serial_answers(self, state: dict[str, str]) -> list[object]:
        """Apply the operations to a state without concurrency; return their answers."""
        answers: list[object] = []
        for operation, key in self.operations:
            match operation:
                case "get":
                    answers.append(state.get(key))
                case "scan":
                    found = sorted(one for one in state.items() if one[0].startswith(key))
                    answers.append(found)
                case "put":
                    state[key] = f"written by {self.number}"
                    answers.append(None)
                case _:
                    state.pop(key, None)
                    answers.append(None)
        return answers


def check_serialisable(programs: list[tuple[int, list[tuple[str, str]]]]) -> int:
    """Run transactions at once, and find them equal to the same ones in the order of their commits.
    Returns the number of conflicts."""
    store = WorldStore(latency_s=0.001)
    executions = [Execution(number, one[1]) for number, one in enumerate(programs)]

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for (start_ms, _), execution in zip(programs, executions, strict=True):
                nursery.start_soon(execution.run, store, start_ms)

    run(main)
    state: dict[str, str] = {}
    committed = [one for one in executions if one.place is not None]
    for execution in sorted(committed, key=lambda one: one.place or (0, 0)):
        assert execution.serial_answers(state) == execution.answers
    assert store.rows() == state
    return len(executions) - len(committed)


@given(PROGRAMS)
def test_transactions_equal_a_serial_order(
    programs: list[tuple[int, list[tuple[str, str]]]],
) -> None:
    check_serialisable(programs)


WRITE_SKEW = [
    (0, [("get", "b"), ("put", "a/1")]),
    (0, [("get", "a/1"), ("put", "b")]),
]
PHANTOM = [(0, [("scan", "a/"), ("put", "b")]), (0, [("get", "b"), ("put", "a/1")])]


@pytest.mark.parametrize("programs", [WRITE_SKEW, PHANTOM])
def test_a_store_that_forgets_what_was_read_is_found(
    programs: list[tuple[int, list[tuple[str, str]]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check_serialisable(programs) == 1
    monkeypatch.setattr(WorldStore, "_changed_since", lambda *_: None)
    with pytest.raises(AssertionError):
        check_serialisable(programs)


def test_an_exception_rolls_back_and_a_snapshot_does_not_move() -> None:
    async def main() -> None:
        store = WorldStore()
        await store.put("k", 1)
        with pytest.raises(ZeroDivisionError):
            async with store.transaction() as transaction:
                await transaction.put("k", 2)
                raise ZeroDivisionError
        assert store.rows() == {"k": 1}
        async with store.transaction() as transaction:
            await store.put("k", 3)
            assert await transaction.get("k") == 1
        assert await store.get("k") == 3
        with pytest.raises(RuntimeError, match="the transaction is over"):
            await transaction.get("k")

    run(main)


def test_the_store_keeps_copies() -> None:
    async def main() -> None:
        store = WorldStore()
        value = [1]
        await store.put("k", value)
        value.append(2)
        (await store.get("k")).append(3)
        store.rows()["k"].append(4)
        async with store.transaction() as transaction:
            (await transaction.get("k")).append(5)
            assert await transaction.scan() == [("k", [1])]
        assert await store.get("missing") is None

    run(main)


def test_a_key_that_is_no_text_is_refused() -> None:
    async def main() -> None:
        with pytest.raises(TypeError, match="keys of a store are text, not bytes"):
            await WorldStore().put(b"k", 1)  # type: ignore[arg-type] # the refused type

    run(main)


def life_that_dies_at(step: str, tmp_path: Path) -> InstanceLife:
    async def on_step(name: str) -> None:
        if name == step:
            await trio.sleep_forever()

    return InstanceLife("a", 1, tmp_path, on_step)


@pytest.mark.parametrize(
    ("step", "kept"),
    [("store.write", 1), ("store.commit", 1), ("store.committed", 2), ("none", 2)],
)
def test_a_crash_keeps_a_transaction_only_after_its_commit(
    step: str, kept: int, tmp_path: Path
) -> None:
    async def main() -> None:
        store = WorldStore()
        await store.put("k", 1)
        await store.put("other", 1)

        async def program() -> None:
            LIFE.set(life_that_dies_at(step, tmp_path))
            async with store.transaction() as transaction:
                await transaction.put("other", await transaction.get("k"))
                await transaction.put("k", 2)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(program)
            await trio.sleep(10)
            # The dead transaction is in the way of no other one.
            assert store.rows() == {"k": kept, "other": 1}
            await store.put("k", 3)
            nursery.cancel_scope.cancel()
        assert store.rows() == {"k": 3, "other": 1}

    run(main)


def test_the_latency_of_each_call_is_virtual_time() -> None:
    async def main() -> None:
        store = WorldStore(latency_s=0.5)
        start = trio.current_time()
        async with store.transaction() as transaction:
            await transaction.get("k")
            await transaction.put("k", 1)
        assert trio.current_time() - start == pytest.approx(1.5)

    run(main)


def test_programs_of_asyncio_use_the_same_store() -> None:
    async def main() -> dict[str, Any]:
        store = WorldStore(latency_s=0)
        async with store.transaction() as transaction:
            await transaction.put("k", await transaction.get("k") or "new")
        return store.rows()

    assert asyncio.run(main()) == {"k": "new"}


def test_the_timeline_names_instance_key_and_value(tmp_path: Path) -> None:
    timeline = Timeline()

    async def main() -> None:
        LIFE.set(life_that_dies_at("none", tmp_path))
        store = WorldStore("bills", timeline=timeline)
        await store.put("k", "v\x1b")
        async with store.transaction() as transaction:
            for number in range(7):
                await transaction.put(f"k{number}", number)
        with pytest.raises(StoreConflictError, match="another transaction has changed 'k'"):
            async with store.transaction() as transaction:
                await transaction.get("k")
                await transaction.put("k", 2)
                await store.put("k", 3)

    run(main)
    events = list(timeline)
    assert {event.where for event in events} == {"a"}
    assert events[0].text == "bills: commit 1 puts 'k' = 'v\\x1b'"
    assert events[0].facts == {"store": "bills", "key": "'k'"}
    assert [event.text for event in events if "other keys" in event.text] == [
        "bills: and 2 other keys"
    ]
    assert events[-1].text == "bills: conflict: 'k' has changed"


async def count_orders(bootstrap: str, store: world.Store) -> None:
    config = ConsumerConfig(group_id="counters", auto_offset_reset="earliest")
    async with open_consumer(bootstrap, config) as consumer:
        consumer.subscribe(["orders"])
        while True:
            for record in await consumer.poll(1.0):
                async with store.transaction() as transaction:
                    await transaction.put(f"{record.partition}@{record.offset}", record.value)


@pytest.mark.parametrize(("step", "kept"), [("store.commit", 1), ("store.committed", 2)])
def test_a_schedule_kills_an_instance_at_a_step_of_the_store(step: str, kept: int) -> None:
    faults = world.FaultSchedule((world.Kill(0, world.Mark(step, 2), restart_after_s=20),))
    report: list[int] = []

    async def scenario(w: world.World) -> None:
        await w.create_topic("orders")
        sent = await w.produce("orders", [b"1", b"2", b"3"])
        store = w.store()
        assert w.store() is store
        w.start("a", count_orders, w.bootstrap, store, runtime="trio")
        await w.sleep(10)
        report.append(len(store.rows()))
        await w.settle()
        world.exactly_once([f"0@{one.offset}" for one in sent], store.rows(), key=lambda one: one)
        events = [event for event in w.timeline if event.kind == "store"]
        assert {event.where for event in events} == {"a"}
        assert events[0].at_s < 10

    world.run(scenario, faults=faults)
    assert report == [kept]
