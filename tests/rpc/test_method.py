"""The edge of a remote procedure: whatever ends its answer ends that answer alone."""

import pytest
from google.protobuf.wrappers_pb2 import StringValue

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.rpc.method import MethodHandler, RpcMethod, guarded

ECHO = RpcMethod("/ottla.Test/Echo", StringValue, StringValue)


@pytest.mark.parametrize("error", [ValueError("9" * 5_000), RuntimeError(), AssertionError()])
async def test_an_unexpected_error_is_noted_and_reported_as_an_unknown_server_error(
    error: Exception,
) -> None:
    async def stumble(_request: StringValue) -> StringValue:
        raise error

    errors = UnexpectedErrors()
    (handler,) = guarded([MethodHandler(ECHO, stumble)], errors)
    with pytest.raises(RefusedError) as caught:
        await handler.answer_bytes(StringValue(value="otter").SerializeToString())
    assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "9999" not in caught.value.message
    assert errors.counts == {"request": 1}


async def test_a_refusal_is_no_unexpected_error() -> None:
    async def refuse(_request: StringValue) -> StringValue:
        raise RefusedError(ErrorCode.NOT_CONTROLLER)

    errors = UnexpectedErrors()
    (handler,) = guarded([MethodHandler(ECHO, refuse)], errors)
    with pytest.raises(RefusedError) as caught:
        await handler.answer_bytes(b"")
    assert caught.value.code is ErrorCode.NOT_CONTROLLER
    assert not errors.counts
