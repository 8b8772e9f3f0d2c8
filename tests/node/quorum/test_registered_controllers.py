"""Registrations of controllers that run as processes."""

from pathlib import Path

import pytest
import trio

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId
from ottla.proto import controller_pb2 as pb
from ottla.wire.apis import UNREGISTER_CONTROLLER
from ottla.wire.codec import encode
from ottla.wire.messages.unregister_controller_request import UnregisterControllerRequest
from tests.node.quorum.test_three_processes import (
    DEADLINE_MS,
    READY_S,
    Controllers,
    three_controllers,
)

pytestmark = pytest.mark.cluster

UNKNOWN = NodeId(999)


async def unregister(controllers: Controllers, node_id: NodeId) -> ErrorCode:
    """Ask the active controller to forget another one, and return the error code."""
    body = encode(UnregisterControllerRequest(controller_id=node_id), 0)
    request = pb.ForwardRequest(api_key=UNREGISTER_CONTROLLER, api_version=0, body=body)
    try:
        await controllers.client.forward(request, deadline_ms=DEADLINE_MS)
    except RefusedError as refusal:
        return refusal.code
    return ErrorCode.NONE


async def wait_registered(controllers: Controllers, node_id: NodeId) -> None:
    """Wait until a controller is registered, and unregister it."""
    with trio.fail_after(READY_S):
        while (code := await unregister(controllers, node_id)) is not ErrorCode.NONE:
            assert code is ErrorCode.CONTROLLER_ID_NOT_REGISTERED
            await trio.sleep(0.02)


async def test_controllers_register_and_a_stopped_one_is_forgotten(tmp_path: Path) -> None:
    async with three_controllers(tmp_path) as controllers:
        await controllers.change()
        leader = await controllers.leader_id()
        assert await unregister(controllers, leader) is ErrorCode.INVALID_REQUEST
        assert await unregister(controllers, UNKNOWN) is ErrorCode.CONTROLLER_ID_NOT_REGISTERED

        stopped, running = (node_id for node_id in controllers.ids if node_id != leader)
        await wait_registered(controllers, running)
        await wait_registered(controllers, running)  # a running controller registers again
        controllers.kill(stopped)
        await unregister(controllers, stopped)
        await trio.sleep(1)
        code = await unregister(controllers, stopped)
        assert code is ErrorCode.CONTROLLER_ID_NOT_REGISTERED
