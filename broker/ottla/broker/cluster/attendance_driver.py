"""Keeps one call open at the active controller, whose end tells it when this process is gone.

The call asks for nothing.  Without one a broker lives and serves just the same; its death is then
noticed when its session ends.
"""

from collections.abc import Callable

import trio

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId
from ottla.proto import controller_pb2 as pb
from ottla.rpc.controller_client import ControllerClient

LEADER_LOOK_MS = 1_000
"""How often is looked if another controller leads.  Longer leaves a call at one that is paused."""

RETRY_MS_FIRST = 10
RETRY_MS_MAX = 500
"""Before a call that ended is made again.  It is part of the silence by which a controller knows a
broker gone (`ottla.controller.attendances`), so the first is short."""

NOT_SUPPORTED_MS = 60_000
"""Before a controller of an older release is asked again."""


class AttendanceDriver:
    """The call that this broker keeps open."""

    def __init__(
        self,
        node_id: NodeId,
        controller: ControllerClient,
        *,
        broker_epoch: Callable[[], int],
        listener_name: str,
    ) -> None:
        self._node_id = node_id
        self._controller = controller
        self._broker_epoch = broker_epoch
        self._listener_name = listener_name

    async def run(self) -> None:
        """Keep it open until cancelled."""
        retry_ms = RETRY_MS_FIRST
        while True:
            leader_id, began = self._controller.leader_id, trio.current_time()
            error = None if leader_id is None else await self._attend(leader_id)
            if trio.current_time() - began > RETRY_MS_MAX / 1000:
                retry_ms = RETRY_MS_FIRST
            is_known = error is not ErrorCode.UNSUPPORTED_VERSION
            await trio.sleep((retry_ms if is_known else NOT_SUPPORTED_MS) / 1000)
            retry_ms = min(2 * retry_ms, RETRY_MS_MAX)

    async def _attend(self, leader_id: NodeId) -> ErrorCode | None:
        """Keep a call open until it ends or another leads; return why it failed, if it did."""
        request = pb.AttendRequest(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            listener_name=self._listener_name,
        )
        error: ErrorCode | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._leave_when_another_leads, leader_id, nursery.cancel_scope)
            try:
                await self._controller.attend(request, at=leader_id)
            except RefusedError as refusal:
                error = refusal.code
            nursery.cancel_scope.cancel()
        return error

    async def _leave_when_another_leads(self, leader_id: NodeId, scope: trio.CancelScope) -> None:
        while self._controller.leader_id in (None, leader_id):
            await trio.sleep(LEADER_LOOK_MS / 1000)
        scope.cancel()
