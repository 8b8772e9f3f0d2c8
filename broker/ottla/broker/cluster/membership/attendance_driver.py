"""Keeps one call open at the active controller. The end of the call shows the controller at once
that this process has ended.

The call carries no data. Without the call, the controller notices the death of a broker only when
its session expires.
"""

from collections.abc import Callable

import trio

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId
from ottla.proto import controller_pb2 as pb
from ottla.rpc.controller_client import ControllerClient

LEADER_LOOK_MS = 1_000
"""Milliseconds between two checks by this broker whether another controller has become active. With
a longer time, the broker's call remains longer at a paused controller."""

RETRY_MS_FIRST = 10
RETRY_MS_MAX = 500
"""Maximum delay in milliseconds before this broker replaces an ended call to the controller. The
controller considers a broker dead if no call arrives for longer than this delay
(`ottla.controller.membership.attendances`)."""

NOT_SUPPORTED_MS = 60_000
"""Delay in milliseconds before this broker tries its call again after the controller answered that
its release does not support the call."""


class AttendanceDriver:
    """Driver of the call that this broker keeps open at the active controller, so that the
    controller notices the broker's death at once."""

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
        """Keep a call to the active controller open until cancelled, so that the controller notices
        the death of this broker at once."""
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
        """Keep one call to the active controller open until it ends or another controller becomes
        active. Returns the error code of a failed call, or None."""
        request = pb.AttendRequest(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            listener_name=self._listener_name,
        )
        error: ErrorCode | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._end_on_leader_change, leader_id, nursery.cancel_scope)
            try:
                await self._controller.attend(request, at=leader_id)
            except RefusedError as refusal:
                error = refusal.code
            nursery.cancel_scope.cancel()
        return error

    async def _end_on_leader_change(self, leader_id: NodeId, scope: trio.CancelScope) -> None:
        while self._controller.leader_id in (None, leader_id):
            await trio.sleep(LEADER_LOOK_MS / 1000)
        scope.cancel()
