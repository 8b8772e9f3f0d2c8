"""Requests of a broker to itself: every way in which a handler answers, without a connection."""

from collections.abc import Coroutine
from typing import Any

import pytest
import trio
import trio.testing

from ottla.node.clock_driver import RealClock
from ottla.node.network.dispatch import Dispatcher, Handler, NotServedYetError, RequestContext
from ottla.node.network.loopback_driver import Loopback
from ottla.node.network.steps import Answer
from ottla.wire.apis import WRITE_TXN_MARKERS
from ottla.wire.messages.write_txn_markers_request import WriteTxnMarkersRequest
from ottla.wire.messages.write_txn_markers_response import WriteTxnMarkersResponse

ASKED = WriteTxnMarkersRequest()
ANSWER = WriteTxnMarkersResponse()


def loopback_to(handler: Handler) -> Loopback:
    return Loopback(Dispatcher({WRITE_TXN_MARKERS: handler}), RealClock())


def at_once(context: RequestContext, request: Any) -> WriteTxnMarkersResponse:
    assert request is ASKED
    return ANSWER


def by_its_slot(context: RequestContext, request: Any) -> None:
    context.complete(ANSWER)


def in_steps(context: RequestContext, request: Any) -> Answer:
    yield
    yield
    return ANSWER


def in_steps_by_its_slot(context: RequestContext, request: Any) -> Answer:
    yield
    context.complete(ANSWER)
    return None


def after_a_while(context: RequestContext, request: Any) -> Coroutine[Any, Any, Any]:
    async def serve() -> WriteTxnMarkersResponse:
        await trio.sleep(0)
        return ANSWER

    return serve()


@pytest.mark.parametrize(
    "handler", [at_once, by_its_slot, in_steps, in_steps_by_its_slot, after_a_while]
)
async def test_an_answer_is_returned_as_the_message_it_is(handler: Handler) -> None:
    assert await loopback_to(handler).request(ASKED, WriteTxnMarkersResponse) is ANSWER


async def test_an_answer_that_is_given_later_is_waited_for() -> None:
    held: list[RequestContext] = []
    found: list[WriteTxnMarkersResponse] = []
    loopback = loopback_to(lambda context, request: held.append(context))

    async def ask() -> None:
        found.append(await loopback.request(ASKED, WriteTxnMarkersResponse))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        assert not found
        held[0].complete(ANSWER)
    assert found == [ANSWER]


async def test_a_fault_of_the_handler_is_raised() -> None:
    def fails(context: RequestContext, request: Any) -> None:
        context.fail(ZeroDivisionError())

    with pytest.raises(ZeroDivisionError):
        await loopback_to(fails).request(ASKED, WriteTxnMarkersResponse)


async def test_a_request_that_is_given_up_is_abandoned() -> None:
    held: list[RequestContext] = []
    calls: list[str] = []

    def keep(context: RequestContext, request: Any) -> None:
        context.on_abandoned = lambda: calls.append("abandoned")
        held.append(context)

    with trio.move_on_after(0):
        await loopback_to(keep).request(ASKED, WriteTxnMarkersResponse)
    assert calls == ["abandoned"]
    held[0].complete(ANSWER)  # and what comes of it later is nothing to anyone


async def test_what_is_not_served_yet_is_refused() -> None:
    with pytest.raises(NotServedYetError):
        await Loopback(Dispatcher(), RealClock()).request(ASKED, WriteTxnMarkersResponse)
