"""No request, of any API and version, holds a broker's loop or allocates memory beyond the bounds.

By default an API gets every sixth shape of `kafka_requests` once, in one of its versions; with
OTTLA_WORLDS=full it gets each. With OTTLA_LOOP_HOLD=full every version gets every shape, at 64 KiB
and at 1 MiB. OTTLA_LOOP_HOLD_SEED repeats a failure's printed seed; another seed gives the shapes
to other versions. To show that the oracle finds its subject, tests remove single fixes from the
broker.
"""

import os
from collections.abc import Iterable, Iterator
from random import Random
from time import thread_time_ns

import pytest
import trio

from ottla.broker.groups.offsets import offset_apis
from ottla.jepsen.fuzz.chance import FuzzRng
from ottla.model.limits import KIB, MIB
from ottla.node.network.steps import StepPace, Steps
from ottla.wire.apis import DELETE_TOPICS, DESCRIBE_CONFIGS, METADATA, OFFSET_FETCH
from ottla.wire.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.jepsen.oracles.kafka_requests import KafkaShape, request_of
from tests.jepsen.oracles.loop_cost import GROWTH_BYTES_MAX, HOLD_MS_MAX, Cost, LoopWatch
from tests.jepsen.oracles.loop_hold import BrokerTarget, ClusterSize, costs_of, framed, open_target
from tests.jepsen.search_length import length

IS_FULL = os.environ.get("OTTLA_LOOP_HOLD") == "full"
SEED = int(os.environ.get("OTTLA_LOOP_HOLD_SEED", "1"))
STRIDE = 1 if IS_FULL else length(6, 1)


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
                    target, SEED, bytes_max=bytes_max, is_every_version=IS_FULL, stride=STRIDE
                )

        count, broken = await trio.to_thread.run_sync(judge)
    print(f"seed {SEED}: {count} requests")
    assert not broken, (
        f"seed {SEED}: above {HOLD_MS_MAX} ms or {GROWTH_BYTES_MAX // MIB} MiB:\n"
        + "\n".join(map(str, broken))
    )


SMALL_CLUSTER = ClusterSize(large_topic_partitions=100, small_topics=0, groups=1)


DECIDED_MS_MAX = 20
"""Longest time a decision may hold the loop, in CPU time without garbage collections."""
MANY_ENTRIES = ClusterSize(
    large_topic_partitions=100, small_topics=20, groups=20, acl_entries=10_000
)
NAMING_MUCH = (METADATA, DELETE_TOPICS, DESCRIBE_CONFIGS, OFFSET_FETCH)


async def test_where_10_000_entries_decide_no_request_of_many_names_holds_the_loop() -> None:
    def judge(target: BrokerTarget) -> list[str]:
        keys = NAMING_MUCH
        stride = 1 if IS_FULL else length(4, 1)
        costs = costs_of(
            target,
            SEED,
            api_keys=keys,
            is_every_version=IS_FULL,
            stride=stride,
            own_ms_max=DECIDED_MS_MAX,
        )
        return [str(one) for one in costs if one.own_ms > DECIDED_MS_MAX]

    async with open_target(size=MANY_ENTRIES) as target:
        assert not await trio.to_thread.run_sync(judge, target)


def cost_of(target: BrokerTarget, shape: KafkaShape, version: int, bytes_max: int) -> Cost:
    """Send one OffsetFetch of a shape; return its cost."""
    rng = FuzzRng(Random(SEED))
    api_key = OffsetFetchRequest.API_KEY
    request = request_of(shape, api_key, version, rng, target.names, bytes_max=bytes_max)
    return target.measure(f"OffsetFetch v{version} of {shape.name}", framed(request, version))


@pytest.mark.interpreted_only("plants a fault in the place of a function")
async def test_an_answer_that_is_made_in_one_step_breaks_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of_many = KafkaShape.INVENTED_NESTED, 1, MIB
    async with open_target(size=SMALL_CLUSTER) as target:
        in_steps = await trio.to_thread.run_sync(cost_of, target, *of_many)
        monkeypatch.setattr(StepPace, "is_due", lambda self, cost=1: False)
        at_once = await trio.to_thread.run_sync(cost_of, target, *of_many)
    assert not in_steps.is_too_much, in_steps
    assert at_once.hold_ms > HOLD_MS_MAX, at_once


@pytest.mark.interpreted_only("plants a fault in the place of a function")
async def test_a_group_that_is_answered_as_often_as_it_is_named_breaks_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asked_often(
        groups: Iterable[OffsetFetchRequestGroup],
    ) -> Steps[list[OffsetFetchRequestGroup]]:
        return list(groups)
        yield

    of_one = KafkaShape.DUPLICATED_ALL, 8, 128 * KIB
    async with open_target(size=SMALL_CLUSTER) as target:
        answered_once = await trio.to_thread.run_sync(cost_of, target, *of_one)
        monkeypatch.setattr(offset_apis, "asked_once", asked_often)
        answered_often = await trio.to_thread.run_sync(cost_of, target, *of_one)
    assert not answered_once.is_too_much, answered_once
    assert answered_often.growth_bytes > GROWTH_BYTES_MAX, answered_often


async def test_a_task_that_holds_the_loop_is_seen_and_named() -> None:
    watch = LoopWatch()

    async def hold() -> None:
        ends_ns = thread_time_ns() + 50_000_000
        while thread_time_ns() < ends_ns:
            pass

    with watch.watching():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hold)
        await trio.lowlevel.checkpoint()
    assert watch.hold_ns >= 50_000_000
    assert "hold" in watch.holder
