"""Contract of every Rpc, as checks that gRPC and the world's both pass.

`check_rpc_conforms` runs them all; a test may also take them one by one from `CHECKS`, so that a
failure names the promise that broke.  A check gets the procedures of two processes, and a host at
which the first may listen.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import trio
from google.protobuf.wrappers_pb2 import BytesValue, StringValue

from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.rpc.method import MethodHandler, RpcMethod
from ottla.rpc.rpc_seam import Rpc, RpcPeer, join_address

ECHO = RpcMethod("/ottla.Test/Echo", StringValue, StringValue)
RAW_ECHO = RpcMethod("/ottla.Test/Echo", BytesValue, StringValue)
UNKNOWN = RpcMethod("/ottla.Test/Unknown", StringValue, StringValue)

PATIENCE_MS = 5_000
SHORT_MS = 50


@dataclass(frozen=True, slots=True)
class Pair:
    """Two processes and where the first may listen."""

    server: Rpc
    client: Rpc
    host: str
    free_port: int

    async def serve(self, answer: Callable[[StringValue], Awaitable[StringValue]]) -> RpcPeer:
        """Answer ECHO at the server; return the client's way there."""
        port = await self.server.serve(self.host, 0, [MethodHandler(ECHO, answer)])
        return await self.client.channel(join_address(self.host, port))


Check = Callable[[Pair], Awaitable[None]]
OpenPair = Callable[[], AbstractAsyncContextManager[Pair]]


async def check_rpc_conforms(open_pair: OpenPair) -> None:
    """Run every check, each with two processes of its own; the AssertionError names the broken
    guarantee."""
    for check in CHECKS:
        async with open_pair() as pair:
            await check(pair)


async def _echo(request: StringValue) -> StringValue:
    return StringValue(value=request.value)


async def _refusal_of(call: Awaitable[object]) -> RefusedError:
    try:
        await call
    except RefusedError as refusal:
        return refusal
    raise AssertionError("the call was not refused")


async def a_call_goes_there_and_back(pair: Pair) -> None:
    """The caller gets the response that the handler returns."""
    peer = await pair.serve(_echo)
    answer = await peer.call(ECHO, StringValue(value="otter"), deadline_ms=PATIENCE_MS)
    assert answer.value == "otter"


async def a_refusal_arrives_with_its_code_and_sentence(pair: Pair) -> None:
    """RefusedError crosses the wire as itself."""

    async def refuse(_request: StringValue) -> StringValue:
        raise RefusedError(ErrorCode.STALE_BROKER_EPOCH, "epoch 3 is past")

    peer = await pair.serve(refuse)
    refusal = await _refusal_of(peer.call(ECHO, StringValue(), deadline_ms=PATIENCE_MS))
    assert refusal.code is ErrorCode.STALE_BROKER_EPOCH
    assert refusal.message == "epoch 3 is past"


async def an_absent_server_is_reported_as_unreachable(pair: Pair) -> None:
    """An address without a listener refuses with NETWORK_EXCEPTION."""
    peer = await pair.client.channel(join_address(pair.host, pair.free_port))
    refusal = await _refusal_of(peer.call(ECHO, StringValue(), deadline_ms=PATIENCE_MS))
    assert refusal.code is ErrorCode.NETWORK_EXCEPTION


async def a_late_call_times_out_and_its_work_is_cancelled(pair: Pair) -> None:
    """A deadline that passes refuses with REQUEST_TIMED_OUT and cancels the handler."""
    is_cancelled = trio.Event()

    async def never(_request: StringValue) -> StringValue:
        try:
            await trio.sleep_forever()
        finally:
            is_cancelled.set()
        raise AssertionError("the sleep ended")

    peer = await pair.serve(never)
    refusal = await _refusal_of(peer.call(ECHO, StringValue(), deadline_ms=SHORT_MS))
    assert refusal.code is ErrorCode.REQUEST_TIMED_OUT
    with trio.fail_after(PATIENCE_MS / 1_000):
        await is_cancelled.wait()


async def a_caller_that_goes_away_cancels_the_handler(pair: Pair) -> None:
    """The handler is cancelled when its caller stops waiting."""
    has_come, is_cancelled = trio.Event(), trio.Event()

    async def never(_request: StringValue) -> StringValue:
        has_come.set()
        try:
            await trio.sleep_forever()
        finally:
            is_cancelled.set()
        raise AssertionError("the sleep ended")

    peer = await pair.serve(never)

    async def ask() -> None:
        await peer.call(ECHO, StringValue(), deadline_ms=PATIENCE_MS)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await has_come.wait()
        nursery.cancel_scope.cancel()
    with trio.fail_after(PATIENCE_MS / 1_000):
        await is_cancelled.wait()


async def an_unknown_method_is_an_unsupported_version(pair: Pair) -> None:
    """A peer that is older than we are says so."""
    peer = await pair.serve(_echo)
    refusal = await _refusal_of(peer.call(UNKNOWN, StringValue(), deadline_ms=PATIENCE_MS))
    assert refusal.code is ErrorCode.UNSUPPORTED_VERSION


async def bytes_that_are_no_request_are_refused(pair: Pair) -> None:
    """A request that does not parse never reaches the handler."""
    peer = await pair.serve(_echo)
    wrong = BytesValue(value=b"\xff\xfe")
    refusal = await _refusal_of(peer.call(RAW_ECHO, wrong, deadline_ms=PATIENCE_MS))
    assert refusal.code is ErrorCode.INVALID_REQUEST


async def a_closed_server_refuses_calls(pair: Pair) -> None:
    """Calls in progress are aborted, and new ones are not accepted."""
    has_come = trio.Event()

    async def never(_request: StringValue) -> StringValue:
        has_come.set()
        await trio.sleep_forever()
        raise AssertionError("the sleep ended")

    peer = await pair.serve(never)
    refusals: list[RefusedError] = []

    async def ask() -> None:
        call = peer.call(ECHO, StringValue(), deadline_ms=PATIENCE_MS)
        refusals.append(await _refusal_of(call))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await has_come.wait()
        await pair.server.stop_serving()
    await ask()
    assert [refusal.code for refusal in refusals] == [ErrorCode.NETWORK_EXCEPTION] * 2


async def a_taken_port_is_not_shared(pair: Pair) -> None:
    """Two servers at one address would answer for each other."""
    port = await pair.server.serve(pair.host, 0, [MethodHandler(ECHO, _echo)])
    try:
        await pair.client.serve(pair.host, port, [MethodHandler(ECHO, _echo)])
    except ConfigError:
        return
    raise AssertionError("the port was shared")


CHECKS: tuple[Check, ...] = (
    a_call_goes_there_and_back,
    a_refusal_arrives_with_its_code_and_sentence,
    an_absent_server_is_reported_as_unreachable,
    a_late_call_times_out_and_its_work_is_cancelled,
    a_caller_that_goes_away_cancels_the_handler,
    an_unknown_method_is_an_unsupported_version,
    bytes_that_are_no_request_are_refused,
    a_closed_server_refuses_calls,
    a_taken_port_is_not_shared,
)
