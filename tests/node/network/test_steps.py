"""Costly answers in steps: bounded steps, in turn, apart from the loop where possible."""

import gc
import time
from collections.abc import Coroutine, Generator, Iterator
from typing import Any

import pytest
import trio
import trio.testing

from ottla.model.errors import ProtocolError
from ottla.model.quotas.quota_limits import QuotaEntity
from ottla.model.quotas.rates import WindowShape
from ottla.node.clock_driver import RealClock
from ottla.node.network.dispatch import (
    INLINE_ELEMENTS_BYTES_MAX,
    Dispatcher,
    MalformedRequestError,
    Peer,
    RequestContext,
)
from ottla.node.network.loop_clock import LoopClock
from ottla.node.network.paced_driver import PacedWork
from ottla.node.network.response_queue import ResponseSlot
from ottla.node.network.steps import (
    STEP_COST,
    StepPace,
    Steps,
    ThreadWork,
    begun,
    finished,
    is_steps,
    run_through,
    used_up,
)
from ottla.node.quotas.request_quotas import RequestCharge, RequestQuotas
from ottla.wire.apis import METADATA
from ottla.wire.codec import encode
from ottla.wire.codec_types import Message
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.metadata_response import MetadataResponse

VERSION = 12
PEER = Peer(
    connection_id=1,
    listener_name="PLAINTEXT",
    peer_host="10.0.0.9",
    peer_port=40_000,
    local_host="10.0.0.1",
    local_port=9092,
)


class Owner:
    """Double of the connection that owns a slot."""

    def __init__(self) -> None:
        self.completed: list[ResponseSlot] = []

    def on_slot_completed(self, slot: ResponseSlot) -> None:
        self.completed.append(slot)

    def on_answer_failed(self, fault: Exception) -> None:
        raise fault

    def mute_until(self, deadline_ms: int) -> None:
        raise AssertionError

    def on_steps(self, slot: ResponseSlot, steps: Steps[Message]) -> None:
        raise AssertionError


def slot_of(owner: Owner) -> ResponseSlot:
    return ResponseSlot(owner, RequestHeader(METADATA, VERSION, "test", 0), 7)


def counted(count: int, done: list[str], name: str) -> Steps[Message]:
    for _ in range(count):
        done.append(name)
        yield
    return MetadataResponse()


def test_what_is_small_is_done_at_once() -> None:
    def answer(size: int) -> Steps[int]:
        pace = StepPace()
        for _ in range(size):
            if pace.is_due():
                yield
        return size

    assert begun(answer(STEP_COST - 1)) == STEP_COST - 1
    left = begun(answer(STEP_COST))
    assert isinstance(left, Iterator)
    assert run_through(left) == STEP_COST


def test_what_was_used_is_gone_from_a_request_before_the_next_is_used() -> None:
    values = [1, 2, 3]
    assert [(value, list(values)) for value in used_up(values)] == [(1, [3, 2]), (2, [3]), (3, [])]


async def test_one_step_is_done_in_a_turn_over_all_requests() -> None:
    done: list[str] = []
    paced = PacedWork()
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1
            assert len(done) <= turns + 2

    owners = [Owner() for _ in range(20)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_turns)
        async with trio.open_nursery() as requests:
            for number, owner in enumerate(owners):
                requests.start_soon(paced.result_of, slot_of(owner), counted(10, done, str(number)))
        nursery.cancel_scope.cancel()
    assert len(done) == 200
    # Each gets its step before another gets two.
    assert all(len(set(done[at : at + 20])) == 20 for at in range(0, 200, 20))
    assert all(len(owner.completed) == 1 for owner in owners)


async def test_no_garbage_is_collected_while_costly_answers_are_made() -> None:
    are_enabled: list[bool] = []

    def steps() -> Steps[Any]:
        are_enabled.append(gc.isenabled())
        yield
        return wait()

    async def wait() -> Any:
        are_enabled.append(gc.isenabled())
        return ThreadWork(lambda: are_enabled.append(gc.isenabled()), lambda _: MetadataResponse())

    owner = Owner()
    assert await PacedWork().result_of(slot_of(owner), steps()) is None
    # A coroutine between the costly parts may wait for long.
    assert are_enabled == [False, True, False]
    assert gc.isenabled()
    assert len(owner.completed) == 1


async def test_work_of_threads_is_charged() -> None:
    """Half a second of encoding in a thread was charged nothing."""
    clock = LoopClock()
    clock.now_ns = time.perf_counter_ns
    quotas = RequestQuotas(WindowShape(), RealClock(), clock)
    quotas.set_quotas({(QuotaEntity("client-id", True, ""),): {"request_percentage": 1_000_000}})
    used: list[int] = []

    def burn() -> MetadataResponse:
        until_ns = time.thread_time_ns() + 2_000_000
        while time.thread_time_ns() < until_ns:
            pass
        return MetadataResponse()

    def note(response: MetadataResponse) -> MetadataResponse:
        used.append(charge.used_ns)
        return response

    slot = slot_of(Owner())
    slot.charge = charge = RequestCharge(quotas, "", "", 0)
    assert await PacedWork(clock=clock).result_of(slot, ThreadWork(burn, note)) is None
    (decoding_ns,) = used
    assert decoding_ns >= 2_000_000
    assert charge.used_ns > 0, "encoding is charged, too, after the settlement"


async def test_garbage_is_collected_again_after_a_costly_answer_that_failed() -> None:
    def steps() -> Steps[Message]:
        yield
        raise ValueError

    with pytest.raises(ValueError):
        await PacedWork().result_of(slot_of(Owner()), steps())
    assert gc.isenabled()


async def test_work_stops_for_a_client_that_disconnected() -> None:
    done: list[str] = []
    slot = slot_of(Owner())
    slot.abandon()
    assert await PacedWork().result_of(slot, counted(10, done, "a")) is None
    assert not done


def large_request(count: int) -> bytes:
    topics = [MetadataRequestTopic(name="t")] * count
    return encode(MetadataRequest(topics=topics), VERSION)


def dispatched(body: bytes) -> object:
    seen: list[Message] = []

    def handle(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
        seen.append(request)
        return MetadataResponse(controller_id=len(request.topics or ()))

    header = RequestHeader(METADATA, VERSION, "test", 0)
    context = RequestContext(Owner(), header, 7, 0, PEER, 0)
    return Dispatcher({METADATA: handle}).dispatch(context, memoryview(body))


def test_a_request_with_few_elements_is_decoded_at_once() -> None:
    assert isinstance(dispatched(large_request(100)), MetadataResponse)


def test_a_request_with_many_elements_is_decoded_apart() -> None:
    pending = dispatched(large_request(INLINE_ELEMENTS_BYTES_MAX // 50))
    assert isinstance(pending, ThreadWork)
    answer = pending.then(pending.work())
    assert isinstance(answer, MetadataResponse)
    assert answer.controller_id == INLINE_ELEMENTS_BYTES_MAX // 50


def test_a_large_request_that_is_none_is_refused_when_it_is_decoded() -> None:
    pending = dispatched(large_request(20_000)[:-1])
    assert isinstance(pending, ThreadWork)
    with pytest.raises(MalformedRequestError):
        pending.work()


def test_a_small_request_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(ProtocolError):
        dispatched(large_request(10)[:-1])


def test_the_memory_of_a_requests_elements_is_bounded_at_all() -> None:
    pending = dispatched(large_request(700_000))
    assert isinstance(pending, ThreadWork)
    with pytest.raises(MalformedRequestError):
        pending.work()


class CompiledCoroutine:
    """A coroutine in mypyc's form, which also has the methods of a generator."""

    def __init__(self, inner: Coroutine[Any, Any, Any]) -> None:
        self._inner = inner

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._inner.__await__()

    def __iter__(self) -> "CompiledCoroutine":
        return self

    def __next__(self) -> Any:
        raise AssertionError("a coroutine was taken for steps")

    def send(self, value: Any) -> Any:
        return self._inner.send(value)

    def throw(self, *error: Any) -> Any:
        return self._inner.throw(*error)

    def close(self) -> None:
        self._inner.close()


async def test_a_compiled_coroutine_is_awaited_and_not_taken_for_steps() -> None:
    async def answer() -> MetadataResponse:
        await trio.lowlevel.checkpoint()
        return MetadataResponse(cluster_id="waited for")

    waiting = CompiledCoroutine(answer())
    assert isinstance(waiting, Generator)
    assert isinstance(waiting, Coroutine)
    assert not is_steps(waiting)
    answered = await PacedWork().result_of(slot_of(Owner()), waiting)
    assert answered == MetadataResponse(cluster_id="waited for")
    assert await finished(CompiledCoroutine(answer())) == answered
