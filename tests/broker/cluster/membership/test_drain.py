"""A drain as the operator's command sees it, against a controller that is only played."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from ottla.broker.cluster.membership.drain_api import DrainApi
from ottla.broker.cluster.membership.lifecycle import BrokerState, Lifecycle
from ottla.broker.cluster.membership.lifecycle_driver import (
    FAILURES_BETWEEN_WARNINGS,
    LifecycleDriver,
)
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Offset
from ottla.model.settings.broker import load_broker_config
from ottla.node.network.dispatch import RequestContext
from ottla.proto import controller_pb2 as pb
from ottla.rpc.controller_client import ControllerClient
from ottla.wire.messages.drain_broker_request import DrainBrokerRequest
from ottla.wire.messages.drain_broker_response import DrainBrokerResponse

CONFIG, _ = load_broker_config({"node.id": "1", "controller.quorum.voters": "101@h:1"})
CONTEXT = cast(RequestContext, SimpleNamespace(api_version=0))


class PlayedController:
    """A controller that fences a draining broker from `grants_at` on, and unfences on request."""

    def __init__(self) -> None:
        self.grants_at = 0.0
        self.is_there = True
        self.heard: list[pb.HeartbeatRequest] = []

    async def heartbeat(
        self, request: pb.HeartbeatRequest, *, deadline_ms: int
    ) -> pb.HeartbeatResponse:
        if not self.is_there:
            raise RefusedError(ErrorCode.NETWORK_EXCEPTION)
        self.heard.append(request)
        is_granted = request.want_shut_down and trio.current_time() >= self.grants_at
        return pb.HeartbeatResponse(
            is_fenced=is_granted or request.want_fence, should_shut_down=is_granted
        )


@asynccontextmanager
async def recovering(controller: PlayedController) -> AsyncIterator[LifecycleDriver]:
    """A broker that is registered, fenced, and heard of every two seconds."""
    lifecycle = Lifecycle()
    lifecycle.become(BrokerState.STARTING)
    lifecycle.on_caught_up()
    lifecycle.on_registered(42)
    driver = LifecycleDriver(
        lifecycle, CONFIG, cast(ControllerClient, controller), metadata_offset=lambda: Offset(50)
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(driver.run)
        yield driver
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def running(controller: PlayedController) -> AsyncIterator[LifecycleDriver]:
    """One that is unfenced, too."""
    async with recovering(controller) as driver:
        await driver.wait_unfenced()
        yield driver


async def test_a_broker_stopped_during_recovery_unregisters_and_stops_serving(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with recovering(PlayedController()) as driver, trio.open_nursery() as nursery:
        nursery.start_soon(driver.leave)
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(60) as start:
            await driver.wait_unfenced()  # its logs are recovered meanwhile

        assert start.cancelled_caught
        assert driver.lifecycle.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
        assert driver.lifecycle.is_leave_granted


def played(body: Callable[[PlayedController, LifecycleDriver], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        controller = PlayedController()
        async with running(controller) as driver:
            return await body(controller, driver)

    return trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


async def asked(driver: LifecycleDriver, *, undo: bool = False) -> DrainBrokerResponse:
    answer = await DrainApi(driver).handle(CONTEXT, DrainBrokerRequest(undo=undo))
    assert isinstance(answer, DrainBrokerResponse)
    return answer


def test_the_answer_comes_when_the_controller_has_granted_it() -> None:
    async def body(controller: PlayedController, driver: LifecycleDriver) -> None:
        controller.grants_at = trio.current_time() + 1.5

        answer = await asked(driver)

        assert answer == DrainBrokerResponse()
        assert 1.5 <= trio.current_time() <= 1.6
        assert driver.lifecycle.state is BrokerState.DRAINED

    played(body)


def test_a_drained_broker_keeps_its_session_and_stays_fenced() -> None:
    async def body(controller: PlayedController, driver: LifecycleDriver) -> None:
        await asked(driver)
        controller.heard.clear()

        await trio.sleep(10)

        assert len(controller.heard) >= 5
        assert all(said.want_fence and not said.want_shut_down for said in controller.heard)

    played(body)


def test_undone_it_is_answered_when_the_broker_is_unfenced() -> None:
    async def body(controller: PlayedController, driver: LifecycleDriver) -> None:
        await asked(driver)

        answer = await asked(driver, undo=True)

        assert answer == DrainBrokerResponse()
        assert driver.lifecycle.state is BrokerState.RUNNING
        assert not driver.lifecycle.is_fenced

    played(body)


def test_a_slow_controller_is_reported_as_a_timeout_while_the_drain_continues() -> None:
    async def body(controller: PlayedController, driver: LifecycleDriver) -> None:
        controller.grants_at = trio.current_time() + 100

        answer = await asked(driver)

        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert "the drain goes on" in (answer.error_message or "")
        await trio.sleep(100)
        assert driver.lifecycle.state is BrokerState.DRAINED

    played(body)


def test_to_undo_halfway_is_refused() -> None:
    async def body(controller: PlayedController, driver: LifecycleDriver) -> None:
        controller.grants_at = trio.current_time() + 100
        driver.lifecycle.drain()

        answer = await asked(driver, undo=True)

        assert answer.error_code == ErrorCode.BROKER_NOT_AVAILABLE

    played(body)


def test_a_drained_broker_that_stops_says_goodbye() -> None:
    async def body(controller: PlayedController, driver: LifecycleDriver) -> None:
        await asked(driver)

        await driver.leave()

        assert controller.heard[-1].want_shut_down

    played(body)


def test_an_unreachable_controller_is_logged_once_and_then_at_intervals(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body(controller: PlayedController, driver: LifecycleDriver) -> None:
        controller.is_there = False
        await trio.sleep(CONFIG.heartbeat_interval_ms / 1000 * FAILURES_BETWEEN_WARNINGS * 1.5)
        controller.is_there = True
        await trio.sleep(CONFIG.heartbeat_interval_ms / 1000 * 1.5)

    with caplog.at_level(logging.WARNING):
        played(body)

    said = [record.getMessage() for record in caplog.records]
    assert [text.split(":")[0] for text in said] == [
        "heartbeat",
        "heartbeat",
        "heartbeats are answered again",
    ]


def test_a_heartbeat_that_leaves_late_is_measured_from_when_it_was_due() -> None:
    async def body(controller: PlayedController, driver: LifecycleDriver) -> None:
        await trio.sleep(10)
        numbers = driver.metrics()
        assert numbers["heartbeats"] >= 5
        assert numbers["heartbeat.delay.longest.ms"] < 1
        assert numbers["broker.epoch"] == 42

    played(body)
