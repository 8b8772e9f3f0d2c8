"""Requests of clients at a controller that does not know yet whether it is active."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ottla.controller import local_forwarding_driver
from ottla.controller.local_forwarding_driver import LEADER_MS_MAX, LocalForwarding
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, NodeId
from ottla.proto import controller_pb2 as pb

OWN, OTHER = NodeId(101), NodeId(102)


class PlayedController:
    """A controller that becomes active when the test says so."""

    def __init__(self) -> None:
        self.node_id = OWN
        self.epoch: Epoch | None = None
        self.turn = trio.Event()

    def lead(self) -> None:
        self.epoch = Epoch(1)
        self.turn.set()


@pytest.fixture(autouse=True)
def decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(controller: Any, request: pb.ForwardRequest) -> pb.ForwardResponse:
        if controller.epoch is None:
            raise RefusedError(ErrorCode.NOT_CONTROLLER)
        return pb.ForwardResponse(body=b"decided")

    monkeypatch.setattr(local_forwarding_driver, "answer_client_request", answer)


@pytest.mark.parametrize("leader_id", [None, OWN])
async def test_a_request_waits_until_this_controller_is_active(
    autojump_clock: MockClock, leader_id: NodeId | None
) -> None:
    controller: Any = PlayedController()
    port = LocalForwarding(controller, lambda: leader_id)
    async with trio.open_nursery() as nursery:

        async def lead_later() -> None:
            await trio.sleep(1)
            controller.lead()

        nursery.start_soon(lead_later)
        answer = await port.forward(pb.ForwardRequest(), deadline_ms=30_000)
    assert answer.body == b"decided"


async def test_a_request_is_refused_at_once_if_another_controller_leads(
    autojump_clock: MockClock,
) -> None:
    controller: Any = PlayedController()
    port = LocalForwarding(controller, lambda: OTHER)
    began = trio.current_time()
    with pytest.raises(RefusedError) as refused:
        await port.forward(pb.ForwardRequest(), deadline_ms=30_000)
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert trio.current_time() == began


async def test_without_an_election_the_client_searches_elsewhere_after_a_while(
    autojump_clock: MockClock,
) -> None:
    controller: Any = PlayedController()
    port = LocalForwarding(controller, lambda: None)
    began = trio.current_time()
    with pytest.raises(RefusedError) as refused:
        await port.forward(pb.ForwardRequest(), deadline_ms=30_000)
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert trio.current_time() - began == pytest.approx(LEADER_MS_MAX / 1000, abs=0.1)
