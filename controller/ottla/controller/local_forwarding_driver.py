"""Decides requests that clients send to this controller itself, without gRPC."""

import trio

from ottla.controller.controller_driver import Controller
from ottla.controller.controller_service import answer_client_request
from ottla.model.errors import ErrorCode, RefusedError
from ottla.proto import controller_pb2 as pb


class LocalForwarding:
    """Port by which a client's request is decided in this process, if this controller is the active
    one."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def forward(self, request: pb.ForwardRequest, *, deadline_ms: int) -> pb.ForwardResponse:
        """Decide a request. Raises RefusedError if the whole request is refused, with
        NOT_CONTROLLER if another controller is active, and with REQUEST_TIMED_OUT after
        `deadline_ms`."""
        with trio.move_on_after(deadline_ms / 1000):
            return await answer_client_request(self._controller, request)
        raise RefusedError(
            ErrorCode.REQUEST_TIMED_OUT, "The change was not committed in time; it may be later"
        )
