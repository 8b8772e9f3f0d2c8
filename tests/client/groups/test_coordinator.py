"""The way to a group's coordinator, where there is none at present."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ottla.client.groups.coordinator import Coordinator
from ottla.client.network.cluster import Cluster
from ottla.client.network.connection import ConnectionLostError
from ottla.model.errors import ErrorCode, RefusedError
from ottla.wire.messages.find_coordinator_response import Coordinator as Row
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.heartbeat_response import HeartbeatResponse


class NoCoordinator:
    """A cluster that refuses to name a coordinator."""

    def __init__(self, code: ErrorCode) -> None:
        self.code = code

    async def request(self, *_: Any, **__: Any) -> FindCoordinatorResponse:
        await trio.lowlevel.checkpoint()
        return FindCoordinatorResponse(coordinators=[Row(key="g", error_code=self.code)])


def without_coordinator(code: ErrorCode) -> Coordinator:
    return Coordinator(NoCoordinator(code), "g", client_id="c")  # type: ignore[arg-type]


async def ask(coordinator: Coordinator) -> HeartbeatResponse:
    return await coordinator.request(HeartbeatRequest(), HeartbeatResponse, timeout_s=1)


async def test_a_missing_coordinator_is_a_loss_that_a_member_survives() -> None:
    with pytest.raises(ConnectionLostError, match="No coordinator is available"):
        await ask(without_coordinator(ErrorCode.COORDINATOR_NOT_AVAILABLE))


async def test_that_one_may_not_know_is_reported_as_it_is() -> None:
    with pytest.raises(RefusedError) as refused:
        await ask(without_coordinator(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    assert refused.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED


async def test_who_waits_for_an_answer_hears_in_the_end_why_there_was_none(
    autojump_clock: MockClock,
) -> None:
    coordinator = without_coordinator(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    with pytest.raises(RefusedError) as refused:
        await coordinator.until_it_answers(lambda: ask(coordinator), 5)
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_coordinator_out_of_reach_is_logged_like_any_broker(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    class Elsewhere(Cluster):
        """A cluster that names a coordinator at a closed port."""

        async def request(self, *_: Any, **__: Any) -> Any:
            await trio.lowlevel.checkpoint()
            row = Row(key="g", host="127.0.0.1", port=1)
            return FindCoordinatorResponse(coordinators=[row])

    coordinator = Coordinator(Elsewhere([]), "g", client_id="c")
    with pytest.raises(ConnectionLostError, match=r"cannot connect to 127\.0\.0\.1:1"):
        await coordinator.until_it_answers(lambda: ask(coordinator), 5)
    lines = [record.message for record in caplog.records if record.name == "ottla.client.network"]
    assert lines == ["cannot connect to 127.0.0.1:1: no process listens there, trying again"]
