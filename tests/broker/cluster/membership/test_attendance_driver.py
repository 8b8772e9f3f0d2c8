"""The call that a broker keeps open at the active controller."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from ottla.broker.cluster.membership.attendance_driver import (
    LEADER_LOOK_MS,
    NOT_SUPPORTED_MS,
    RETRY_MS_FIRST,
    RETRY_MS_MAX,
    AttendanceDriver,
)
from ottla.controller.membership.sessions import SILENCE_MS
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId
from ottla.proto import controller_pb2 as pb


@dataclass
class Controllers:
    """Controllers that keep calls open, or refuse them."""

    leader_id: NodeId | None = NodeId(101)
    code: ErrorCode | None = None
    calls: list[tuple[float, int, pb.AttendRequest]] = field(default_factory=list)
    open_at: list[int] = field(default_factory=list)
    ended: trio.Event = field(default_factory=trio.Event)

    async def attend(self, request: pb.AttendRequest, *, at: NodeId) -> None:
        self.calls.append((trio.current_time(), at, request))
        if self.code is not None:
            raise RefusedError(self.code)
        self.open_at.append(at)
        try:
            await self.ended.wait()
        finally:
            self.open_at.remove(at)

    def end_calls(self) -> None:
        ended, self.ended = self.ended, trio.Event()
        ended.set()

    def gaps_ms(self) -> list[int]:
        times = [when for when, _, _ in self.calls]
        return [round(1000 * (b - a)) for a, b in itertools.pairwise(times)]


@asynccontextmanager
async def attending(controllers: Controllers) -> AsyncIterator[None]:
    driver = AttendanceDriver(
        NodeId(1),
        controllers,  # type: ignore[arg-type]  # the two methods of a client that it needs
        broker_epoch=lambda: 7,
        listener_name="INSIDE",
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(driver.run)
        yield
        nursery.cancel_scope.cancel()


async def test_a_call_stays_open_at_the_leader(autojump_clock: MockClock) -> None:
    controllers = Controllers()
    async with attending(controllers):
        await trio.sleep(50)

    assert [(at, request) for _, at, request in controllers.calls] == [
        (101, pb.AttendRequest(broker_id=1, broker_epoch=7, listener_name="INSIDE"))
    ]


async def test_a_call_that_was_answered_or_lost_is_made_again_well_within_the_silence(
    autojump_clock: MockClock,
) -> None:
    controllers = Controllers()
    async with attending(controllers):
        await trio.sleep(10)
        controllers.end_calls()
        await trio.sleep(1)

    assert len(controllers.calls) == 2
    assert controllers.gaps_ms()[0] - 10_000 == RETRY_MS_FIRST < SILENCE_MS // 4


async def test_another_leader_is_called_though_the_old_one_keeps_its_call(
    autojump_clock: MockClock,
) -> None:
    """It may be paused."""
    controllers = Controllers()
    async with attending(controllers):
        await trio.sleep(10)
        controllers.leader_id = NodeId(102)
        await trio.sleep(2 * LEADER_LOOK_MS / 1000)
        assert controllers.open_at == [102]


async def test_without_a_leader_nothing_is_called_and_an_open_call_is_kept(
    autojump_clock: MockClock,
) -> None:
    controllers = Controllers()
    async with attending(controllers):
        await trio.sleep(10)
        controllers.leader_id = None
        await trio.sleep(10)
        assert controllers.open_at == [101]
        controllers.end_calls()
        await trio.sleep(10)

    assert len(controllers.calls) == 1


@pytest.mark.parametrize("code", [ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_CONTROLLER])
async def test_failed_calls_are_made_again_ever_more_seldom(
    autojump_clock: MockClock, code: ErrorCode
) -> None:
    controllers = Controllers(code=code)
    async with attending(controllers):
        await trio.sleep(10)
        gaps = controllers.gaps_ms()
        controllers.code = None
        await trio.sleep(1)
        await wait_all_tasks_blocked()
        assert controllers.open_at == [101]

    assert gaps[:3] == [RETRY_MS_FIRST, 2 * RETRY_MS_FIRST, 4 * RETRY_MS_FIRST]
    assert max(gaps) == RETRY_MS_MAX


async def test_a_controller_of_an_older_release_is_left_alone(autojump_clock: MockClock) -> None:
    controllers = Controllers(code=ErrorCode.UNSUPPORTED_VERSION)
    async with attending(controllers):
        await trio.sleep(2.5 * NOT_SUPPORTED_MS / 1000)

    assert len(controllers.calls) == 3
