"""The simulated object store: the contract of every store, and each of its faults."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.object_store import (
    SimulatedObjectStore,
    StoreFaults,
    StoreOperation,
    StoreOutcome,
)
from ottla.storage.tier.store_seam import (
    ObjectExistsError,
    ObjectNotFoundError,
    StoreError,
    StoreRefusedError,
)
from tests.storage.tier.store_conformance import CHECKS, Check

DAY_S = 86_400


def _store(seed: int = 1, **faults: Any) -> SimulatedObjectStore:
    return SimulatedObjectStore(Chance(seed), StoreFaults(**faults))


async def _listed(store: SimulatedObjectStore) -> set[str]:
    return {entry.key async for entry in store.entries("")}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_simulated_store_keeps_the_contract(
    check: Check, autojump_clock: MockClock
) -> None:
    for seed in range(3):
        await check(_store(seed))


async def test_a_failed_request_has_no_effect(autojump_clock: MockClock) -> None:
    store = _store(failed=1.0)
    with pytest.raises(StoreError) as caught:
        await store.put("a", b"x")
    assert caught.value.is_retriable
    assert store.objects == {}
    assert store.outcomes == {StoreOutcome.FAILED: 1}


async def test_a_request_whose_response_is_lost_has_its_effect(autojump_clock: MockClock) -> None:
    store = _store(lost_response=1.0)
    with pytest.raises(StoreError):
        await store.put("a", b"x", only_new=True)
    assert store.objects == {"a": b"x"}
    # The repetition meets the caller's own object; its response is lost, too.
    with pytest.raises(StoreError) as caught:
        await store.put("a", b"x", only_new=True)
    assert not isinstance(caught.value, ObjectExistsError)
    store.faults.end()
    with pytest.raises(ObjectExistsError):
        await store.put("a", b"x", only_new=True)


async def test_an_effect_may_follow_its_error(autojump_clock: MockClock) -> None:
    store = _store(late=1.0, late_s=1000.0)
    with pytest.raises(StoreError):
        await store.put("a", b"late")
    assert store.objects == {}
    assert store.has_late_effects
    store.faults.end()
    await store.put("a", b"newer")
    await trio.sleep(1001)
    assert not store.has_late_effects
    assert await store.get("a", 0, 10) == b"late"  # it came over the newer one


async def test_a_late_conditional_put_replaces_nothing(autojump_clock: MockClock) -> None:
    store = _store(late=1.0)
    with pytest.raises(StoreError):
        await store.put("a", b"late", only_new=True)
    store.faults.end()
    await store.put("a", b"newer")
    await trio.sleep(31)
    assert store.objects == {"a": b"newer"}


async def test_a_deletion_may_fail_in_the_middle(autojump_clock: MockClock) -> None:
    left = set()
    for seed in range(40):
        store = _store(seed)
        for key in ("a", "b", "c"):
            await store.put(key, b"x")
        store.faults.partial_delete = 1.0
        with pytest.raises(StoreError):
            await store.delete(["a", "b", "c"])
        left.add(tuple(store.objects))
    assert left == {("a", "b", "c"), ("b", "c"), ("c",)}


async def test_a_listing_may_be_stale_and_a_read_is_not(autojump_clock: MockClock) -> None:
    store = _store(latency_s=(0.0, 0.0))
    await store.put("old", b"x")
    await trio.sleep(100)
    store.faults.stale_list_s = 10.0
    await store.put("new", b"x")
    await store.delete(["old"])
    await trio.sleep(5)
    seen = {frozenset(await _listed(store)) for _ in range(50)}
    assert seen == {frozenset({"old"}), frozenset({"new"})}
    with pytest.raises(ObjectNotFoundError):
        await store.head("old")
    assert (await store.head("new")).size_bytes == 1
    await trio.sleep(11)
    assert {frozenset(await _listed(store)) for _ in range(50)} == {frozenset({"new"})}


async def test_old_versions_are_dropped(autojump_clock: MockClock) -> None:
    store = _store(latency_s=(0.0, 0.0))
    for _ in range(100):
        await store.put("a", b"x")
        await trio.sleep(600)
    assert len(store._versions["a"]) < 10


async def test_the_order_of_a_listing_is_random(autojump_clock: MockClock) -> None:
    store = _store()
    for key in ("a", "b", "c"):
        await store.put(key, b"x")
    orders = {tuple([entry.key async for entry in store.entries("")]) for _ in range(60)}
    assert len(orders) == 6


async def test_a_store_that_is_down_refuses_calls_for_hours(autojump_clock: MockClock) -> None:
    store = _store(is_down=True)
    for _ in range(3):
        with pytest.raises(StoreError) as caught:
            await store.put("a", b"x")
        assert caught.value.is_retriable
        await trio.sleep(3600)
    store.faults.is_down = False
    await store.put("a", b"x")
    assert trio.current_time() > 3 * 3600


async def test_a_store_that_refuses_credentials_is_no_retriable_error(
    autojump_clock: MockClock,
) -> None:
    store = _store(is_refusing=True)
    with pytest.raises(StoreRefusedError) as caught:
        await store.get("a", 0, 1)
    assert not caught.value.is_retriable


async def test_a_hanging_call_waits_and_may_be_cancelled(autojump_clock: MockClock) -> None:
    effects = set()
    for seed in range(20):
        store = _store(seed, latency_s=(0.03, 0.05))
        with trio.move_on_after(DAY_S) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.put, "a", b"x")
                await trio.sleep(0.04)  # before the effect, or after it
                store.hang()
        assert scope.cancelled_caught
        effects.add("a" in store.objects)
        store.resume()
        await store.put("b", b"x")
    assert effects == {True, False}


async def test_a_hanging_call_continues(autojump_clock: MockClock) -> None:
    store = _store()
    store.hang()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.put, "a", b"x")
        await trio.sleep(DAY_S)
        assert store.objects == {}
        store.resume()
    assert store.objects == {"a": b"x"}


async def test_a_store_throttles_by_requests(autojump_clock: MockClock) -> None:
    store = _store(requests_per_s=5, latency_s=(0.0, 0.0))
    results = []
    for _ in range(8):
        try:
            await store.put("a", b"x")
            results.append(True)
        except StoreError as error:
            assert error.is_retriable
            results.append(False)
    assert results == [True] * 5 + [False] * 3
    await trio.sleep(1)
    await store.put("a", b"x")


async def test_calls_share_the_bandwidth(autojump_clock: MockClock) -> None:
    store = _store(bytes_per_s=1000.0, latency_s=(0.0, 0.0))
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(store.put, f"a/{number}", b"x" * 500)
    assert trio.current_time() - began == pytest.approx(2.0)
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(store.get, f"a/{number}", 0, 250)
    assert trio.current_time() - began == pytest.approx(1.0)


async def test_a_stream_with_a_failed_part_stores_nothing(autojump_clock: MockClock) -> None:
    async def parts() -> AsyncGenerator[bytes, None]:
        yield b"x"
        store.faults.failed = 1.0
        yield b"y"

    store = _store()
    async with aclosing(parts()) as given:
        with pytest.raises(StoreError):
            await store.put_stream("a", given)
    assert store.objects == {}
    assert store.requests == {StoreOperation.PART: 3}


async def test_requests_are_counted_by_kind(autojump_clock: MockClock) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"x"
        yield b"y"

    store = _store()
    await store.put("a", b"x")
    await store.put_stream("b", parts())
    await store.get("b", 0, 2)
    await store.head("b")
    await _listed(store)
    await store.delete(["a", "b"])
    assert store.requests == {
        StoreOperation.PUT: 1,
        StoreOperation.PART: 4,
        StoreOperation.GET: 1,
        StoreOperation.HEAD: 1,
        StoreOperation.LIST: 1,
        StoreOperation.DELETE: 1,
    }


async def _busy_hour(store: SimulatedObjectStore) -> list[object]:
    """Return the results of many calls, with their times."""
    results: list[object] = []
    calls: list[Callable[[int], Awaitable[object]]] = [
        lambda at: store.put(f"a/{at % 7}", b"%d" % at),
        lambda at: store.put(f"a/{at % 5}", b"%d" % at, only_new=True),
        lambda at: store.get(f"a/{at % 7}", 0, 9),
        lambda at: store.delete([f"a/{at % 3}", f"a/{at % 7}"]),
        lambda _: _listed(store),
    ]
    for at in range(300):
        try:
            result = await calls[at * 7 % 5](at)
        except StoreError as error:
            result = str(error)
        results.append((round(trio.current_time(), 6), result))
    return results


FAULTY = {
    "failed": 0.1,
    "lost_response": 0.1,
    "late": 0.1,
    "partial_delete": 0.3,
    "stale_list_s": 5.0,
}


def test_a_seed_determines_everything() -> None:
    def run(chance: Chance) -> tuple[list[object], dict[str, bytes]]:
        async def main() -> tuple[list[object], dict[str, bytes]]:
            store = SimulatedObjectStore(chance, StoreFaults(**FAULTY))  # type: ignore[arg-type]
            return await _busy_hour(store), store.objects

        return trio.run(main, clock=MockClock(autojump_threshold=0))

    first = Chance(7)
    expected = run(first)
    assert run(Chance(7)) == expected
    assert run(Chance(0, first.decisions)) == expected
    assert run(Chance(8)) != expected


async def test_the_decision_0_is_always_harmless(autojump_clock: MockClock) -> None:
    faults = StoreFaults(**FAULTY)  # type: ignore[arg-type]
    store = SimulatedObjectStore(Chance(0, replay=[]), faults)
    for check in CHECKS:
        if check.__name__ != "many_objects_are_listed_and_deleted":
            await check(SimulatedObjectStore(Chance(0, replay=[]), StoreFaults()))
    await _busy_hour(store)
    assert set(store.outcomes) == {StoreOutcome.DONE}


async def test_all_outcomes_happen(autojump_clock: MockClock) -> None:
    store = _store(3, **FAULTY)
    await _busy_hour(store)
    assert set(store.outcomes) == set(StoreOutcome)
