"""The gRPC service of the controller: its handlers, and Kafka's encoding of forwarded requests."""

from typing import Any

from ottla.controller.attendance_driver import AttendanceKeeper
from ottla.controller.controller_driver import Controller
from ottla.model.errors import ErrorCode, RefusedError
from ottla.proto import controller_pb2 as pb
from ottla.rpc import controller_methods as methods
from ottla.rpc.method import MethodHandler
from ottla.wire import apis


def controller_handlers(
    controller: Controller, attendances: AttendanceKeeper
) -> list[MethodHandler[Any, Any]]:
    """Return the handlers of the gRPC service `ottla.controller.Controller`. A RefusedError that a
    handler raises is sent to the caller."""

    async def forward(request: pb.ForwardRequest) -> pb.ForwardResponse:
        return await answer_client_request(controller, request)

    return [
        MethodHandler(methods.REGISTER, controller.register),
        MethodHandler(methods.HEARTBEAT, controller.heartbeat),
        MethodHandler(methods.ATTEND, attendances.attend),
        MethodHandler(methods.ALTER_PARTITION, controller.alter_partition),
        MethodHandler(methods.ALLOCATE_PRODUCER_IDS, controller.allocate_producer_ids),
        MethodHandler(methods.ASSIGN_REPLICAS_TO_DIRS, controller.assign_replicas_to_dirs),
        MethodHandler(methods.UNREGISTER, controller.unregister),
        MethodHandler(methods.REGISTER_CONTROLLER, controller.register_controller),
        MethodHandler(methods.FORWARD, forward),
    ]


async def answer_client_request(
    controller: Controller, request: pb.ForwardRequest
) -> pb.ForwardResponse:
    """Decide a client's forwarded request, and return the response in the client's version of the
    API."""
    version = request.api_version
    api = apis.API.get(request.api_key)
    if api is None or not api.lowest <= version <= api.highest:
        raise RefusedError(ErrorCode.UNSUPPORTED_VERSION)
    answer = await controller.decide_client_request(
        request.api_key,
        version,
        request.body,
        principal=request.principal,
        host=request.client_address,
        client_id=request.client_id,
        is_token=request.is_token_authenticated,
    )
    return pb.ForwardResponse(
        body=answer.body,
        metadata_offset=answer.metadata_offset,
        throttle_time_ms=answer.throttle_ms,
    )
