"""Decides requests that clients send to this controller itself, without gRPC."""

from collections.abc import Callable

import trio

from ottla.controller.controller_driver import Controller
from ottla.controller.controller_service import answer_client_request
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId
from ottla.proto import controller_pb2 as pb

LEADER_MS_MAX = 3_000
"""Maximum time in ms for which a client's request waits while the quorum has no known leader (after
the start, and during an election). With a longer time, the client contacts other controllers later.
With a shorter time, a client of the only controller is refused right after its start."""

CHECK_MS = 50
"""Interval in ms between checks whether a leader of the quorum is known."""


class LocalForwarding:
    """Handler of clients' requests that decides them in this process, if this controller is the
    active one."""

    def __init__(self, controller: Controller, leader_id: Callable[[], NodeId | None]) -> None:
        """Create the handler. `leader_id` returns the node id of the quorum's leader, or None if
        this node knows no leader."""
        self._controller = controller
        self._leader_id = leader_id

    async def forward(self, request: pb.ForwardRequest, *, deadline_ms: int) -> pb.ForwardResponse:
        """Decide a client's request in this process. Waits for an election first, if this node
        knows no leader of the quorum.

        Raises RefusedError if the whole request is refused. The error is NOT_CONTROLLER if another
        controller is active, and REQUEST_TIMED_OUT after `deadline_ms`.
        """
        with trio.move_on_after(deadline_ms / 1000):
            if self._is_pending:
                with trio.move_on_after(LEADER_MS_MAX / 1000):
                    await self._wait_for_leader()
            return await answer_client_request(self._controller, request)
        raise RefusedError(
            ErrorCode.REQUEST_TIMED_OUT, "The change was not committed in time; it may be later"
        )

    @property
    def _is_pending(self) -> bool:
        """True if it is unknown which controller will be active."""
        controller = self._controller
        return controller.epoch is None and self._leader_id() in (None, controller.node_id)

    async def _wait_for_leader(self) -> None:
        while self._is_pending:
            turn = self._controller.turn
            with trio.move_on_after(CHECK_MS / 1000):
                await turn.wait()
