"""gRPC under trio, over real loopback sockets."""

import logging
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress

import pytest
import trio
from google.protobuf.wrappers_pb2 import BytesValue, StringValue

from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.rpc.method import MethodHandler, RpcMethod
from ottla.rpc.rpc_driver import GRPC_LOGGER, RpcRuntime, is_no_lost_caller, open_rpc_runtime
from ottla.rpc.status import LostCallError

ECHO = RpcMethod("/ottla.Test/Echo", StringValue, StringValue)
RAW_ECHO = RpcMethod("/ottla.Test/Echo", BytesValue, StringValue)

Answer = Callable[[StringValue], Awaitable[StringValue]]


async def echo(request: StringValue) -> StringValue:
    return StringValue(value=request.value)


async def serve(runtime: RpcRuntime, answer: Answer, port: int = 0) -> int:
    return await runtime.serve("127.0.0.1", port, [MethodHandler(ECHO, answer)])


async def test_a_call_goes_there_and_back() -> None:
    async with open_rpc_runtime() as runtime:
        channel = await runtime.channel(f"127.0.0.1:{await serve(runtime, echo)}")
        answer = await channel.call(ECHO, StringValue(value="otter"), deadline_ms=60_000)
    assert answer.value == "otter"


async def test_a_unix_socket_serves_as_well(tmp_path: object) -> None:
    async with open_rpc_runtime() as runtime:
        address = f"unix:{tmp_path}/rpc.sock"
        await runtime.serve(address, 0, [MethodHandler(ECHO, echo)])
        channel = await runtime.channel(address)
        answer = await channel.call(ECHO, StringValue(value="otter"), deadline_ms=60_000)
    assert answer.value == "otter"


async def test_a_thousand_calls_wait_without_a_thread_each() -> None:
    gate = trio.Event()
    arrived = 0

    async def answer_late(request: StringValue) -> StringValue:
        nonlocal arrived
        arrived += 1
        if arrived == 1000:
            gate.set()
        await gate.wait()
        return request

    async with open_rpc_runtime() as runtime:
        channel = await runtime.channel(f"127.0.0.1:{await serve(runtime, answer_late)}")
        answers = []

        async def call(number: int) -> None:
            request = StringValue(value=str(number))
            answers.append((await channel.call(ECHO, request, deadline_ms=60_000)).value)

        async with trio.open_nursery() as nursery:
            for number in range(1000):
                nursery.start_soon(call, number)
    assert sorted(answers, key=int) == [str(number) for number in range(1000)]


async def test_a_refusal_arrives_with_its_code_and_sentence() -> None:
    async def refuse(_request: StringValue) -> StringValue:
        raise RefusedError(ErrorCode.STALE_BROKER_EPOCH, "epoch 3 is past")

    async with open_rpc_runtime() as runtime:
        channel = await runtime.channel(f"127.0.0.1:{await serve(runtime, refuse)}")
        refusal = await refusal_of_call(channel.call(ECHO, StringValue(), deadline_ms=60_000))
    assert refusal.code is ErrorCode.STALE_BROKER_EPOCH
    assert refusal.message == "epoch 3 is past"


async def test_bytes_that_are_no_request_are_refused_and_the_server_lives() -> None:
    async with open_rpc_runtime() as runtime:
        channel = await runtime.channel(f"127.0.0.1:{await serve(runtime, echo)}")
        request = BytesValue(value=b"\xff\xfe")
        refusal = await refusal_of_call(channel.call(RAW_ECHO, request, deadline_ms=60_000))
        answer = await channel.call(ECHO, StringValue(value="alive"), deadline_ms=60_000)
    assert refusal.code is ErrorCode.INVALID_REQUEST
    assert answer.value == "alive"


async def test_a_deadline_that_passes_is_a_timeout_and_cancels_the_handler() -> None:
    cancelled = trio.Event()

    async def never(_request: StringValue) -> StringValue:
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    async with open_rpc_runtime() as runtime:
        channel = await runtime.channel(f"127.0.0.1:{await serve(runtime, never)}")
        refusal = await refusal_of_call(channel.call(ECHO, StringValue(), deadline_ms=50))
        with trio.fail_after(60):
            await cancelled.wait()
    assert refusal.code is ErrorCode.REQUEST_TIMED_OUT


async def test_a_caller_that_is_cancelled_cancels_the_handler() -> None:
    started, cancelled = trio.Event(), trio.Event()

    async def never(_request: StringValue) -> StringValue:
        started.set()
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    async with open_rpc_runtime() as runtime:
        channel = await runtime.channel(f"127.0.0.1:{await serve(runtime, never)}")
        async with trio.open_nursery() as nursery:

            async def call() -> None:
                await channel.call(ECHO, StringValue(), deadline_ms=60_000)

            nursery.start_soon(call)
            await started.wait()
            nursery.cancel_scope.cancel()
        with trio.fail_after(60):
            await cancelled.wait()


async def test_a_dead_peer_is_found_again_once_it_is_back() -> None:
    async with open_rpc_runtime() as runtime:
        async with open_rpc_runtime() as first:
            port = await serve(first, echo)
            channel = await runtime.channel(f"127.0.0.1:{port}")
            await channel.call(ECHO, StringValue(value="1"), deadline_ms=60_000)
        refusal = await refusal_of_call(channel.call(ECHO, StringValue(), deadline_ms=60_000))
        async with open_rpc_runtime() as second:
            await serve(second, echo, port)
            with trio.fail_after(60):
                answer = await call_until_answered(channel.call)
    assert refusal.code is ErrorCode.NETWORK_EXCEPTION
    assert answer.value == "back"


async def test_a_dead_peer_is_dialled_again_and_again() -> None:
    dials = 0

    async def hang_up(stream: trio.SocketStream) -> None:
        nonlocal dials
        dials += 1
        await stream.aclose()

    async with open_rpc_runtime() as runtime, trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, hang_up, listeners)
        channel = await runtime.channel(f"127.0.0.1:{listeners[0].socket.getsockname()[1]}")
        # With gRPC's own back-off, up to 120 s, these retries take nearly five minutes.
        with trio.fail_after(240):
            while dials < 12:
                await refusal_of_call(channel.call(ECHO, StringValue(), deadline_ms=60_000))
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("says", [None, b"", b"\0\0\0\x0aotterotter"])
async def test_what_is_no_controller_is_refused_in_time_and_said_to_be_none(
    says: bytes | None,
) -> None:
    """A broker's listener closes the connection on gRPC's first bytes; a black hole never
    answers."""
    async with open_rpc_runtime() as runtime, trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")

        async def speak(stream: trio.SocketStream) -> None:
            await stream.receive_some()
            if says is None:
                await trio.sleep_forever()
            with suppress(trio.BrokenResourceError):
                await stream.send_all(says or b"")
            await stream.aclose()

        nursery.start_soon(trio.serve_listeners, speak, listeners)
        port = listeners[0].socket.getsockname()[1]
        channel = await runtime.channel(f"127.0.0.1:{port}")
        # Only the black hole is left at the deadline.
        deadline_ms = 500 if says is None else 240_000
        with trio.fail_after(60):
            call = channel.call(ECHO, StringValue(), deadline_ms=deadline_ms)
            refusal = await refusal_of_call(call)
        nursery.cancel_scope.cancel()
    if says is None:
        assert refusal.code is ErrorCode.REQUEST_TIMED_OUT
    else:
        assert refusal.code is ErrorCode.NETWORK_EXCEPTION
        assert "is it a broker's address?" in refusal.message


async def test_a_taken_port_is_a_bad_setting() -> None:
    async with open_rpc_runtime() as runtime:
        port = await serve(runtime, echo)
        with pytest.raises(ConfigError, match=str(port)):
            await serve(runtime, echo, port)


async def test_a_message_above_the_limit_is_refused_alone() -> None:
    async with open_rpc_runtime() as runtime:
        channel = await runtime.channel(f"127.0.0.1:{await serve(runtime, echo)}")
        big = StringValue(value="x" * (65 << 20))
        refusal = await refusal_of_call(channel.call(ECHO, big, deadline_ms=60_000))
        answer = await channel.call(ECHO, StringValue(value="alive"), deadline_ms=60_000)
    assert refusal.code is ErrorCode.MESSAGE_TOO_LARGE
    assert answer.value == "alive"


async def test_connections_above_the_bound_are_hung_up_on_and_known_peers_served_on() -> None:
    connections_max, more = 8, 4
    async with open_rpc_runtime(connections_max=connections_max) as runtime:
        port = await serve(runtime, echo)
        known = await runtime.channel(f"127.0.0.1:{port}")
        await known.call(ECHO, StringValue(value="first"), deadline_ms=60_000)
        async with AsyncExitStack() as strangers:
            answered = []
            for _ in range(connections_max - 1 + more):
                stranger = await trio.open_tcp_stream("127.0.0.1", port)
                await strangers.enter_async_context(stranger)
                answered.append(await answers_http2(stranger))
            assert answered == [True] * (connections_max - 1) + [False] * more
            answer = await known.call(ECHO, StringValue(value="still"), deadline_ms=60_000)
            assert answer.value == "still"
        with trio.fail_after(60):
            while True:
                async with await trio.open_tcp_stream("127.0.0.1", port) as newcomer:
                    if await answers_http2(newcomer):
                        break


async def answers_http2(stream: trio.SocketStream) -> bool:
    """Return whether the server greets back, and has not hung up."""
    try:
        await stream.send_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
        with trio.fail_after(60):
            return await stream.receive_some() != b""
    except trio.BrokenResourceError:
        return False


async def refusal_of_call(call: Awaitable[StringValue]) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        await call
    return caught.value


async def call_until_answered(call: Callable[..., Awaitable[StringValue]]) -> StringValue:
    while True:
        try:
            return await call(ECHO, StringValue(value="back"), deadline_ms=1_000)
        except RefusedError as refusal:
            assert refusal.is_retriable
            await trio.lowlevel.checkpoint()


async def test_a_request_above_its_methods_bound_is_refused_and_the_server_serves_on() -> None:
    async with open_rpc_runtime() as runtime:
        channel = await runtime.channel(f"127.0.0.1:{await serve(runtime, echo)}")
        for size in (ECHO.request_bytes_max, 2 * ECHO.request_bytes_max, 8 << 20):
            with pytest.raises(RefusedError) as caught:
                await channel.call(ECHO, StringValue(value="x" * size), deadline_ms=60_000)
            assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        answer = await channel.call(ECHO, StringValue(value="otter"), deadline_ms=60_000)
    assert answer.value == "otter"


async def test_calls_above_a_methods_bound_are_refused_until_others_end() -> None:
    method = RpcMethod("/ottla.Test/Slow", StringValue, StringValue, calls_max=3)
    may_end = trio.Event()
    codes: list[ErrorCode] = []
    started: list[str] = []

    async def slow(request: StringValue) -> StringValue:
        started.append(request.value)
        await may_end.wait()
        return request

    async with open_rpc_runtime() as runtime:
        port = await runtime.serve("127.0.0.1", 0, [MethodHandler(method, slow)])
        channel = await runtime.channel(f"127.0.0.1:{port}")

        async def call() -> None:
            try:
                await channel.call(method, StringValue(), deadline_ms=60_000)
            except RefusedError as refusal:
                codes.append(refusal.code)

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(call)
            while len(codes) < 2:
                await trio.sleep(0)
            may_end.set()
        await call()
    assert codes == [ErrorCode.NETWORK_EXCEPTION] * 2
    assert len(started) == 4


@pytest.mark.parametrize(
    ("said", "is_kept"),
    [
        ("ExecuteBatchError raised in core by servicer method [/a.B/C]", False),
        ("Unexpected [ValueError] raised by servicer method [/a.B/C]", True),
    ],
)
def test_an_answer_whose_caller_has_gone_is_no_error_of_the_log(said: str, is_kept: bool) -> None:
    record = logging.LogRecord(GRPC_LOGGER, logging.ERROR, __file__, 1, said, (), None)

    assert is_no_lost_caller(record) is is_kept


SERVER_THAT_ENDS = """
import os, sys, trio
from google.protobuf.wrappers_pb2 import StringValue
from ottla.rpc.method import MethodHandler, RpcMethod
from ottla.rpc.rpc_driver import open_rpc_runtime
from ottla.rpc.status import LostCallError

async def end(request):
    os._exit(1)

async def main():
    echo = RpcMethod("/ottla.Test/Echo", StringValue, StringValue)
    async with open_rpc_runtime() as runtime:
        print(await runtime.serve("127.0.0.1", 0, [MethodHandler(echo, end)]), flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


async def test_a_call_whose_server_ends_is_distinguished_from_one_that_never_arrived() -> None:
    """The one may have been carried out, or be why the server ended; the other is sent again."""
    command = [sys.executable, "-c", SERVER_THAT_ENDS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        async with open_rpc_runtime() as runtime:
            channel = await runtime.channel(f"127.0.0.1:{port}")
            with pytest.raises(LostCallError) as lost:
                await channel.call(ECHO, StringValue(), deadline_ms=60_000)
            server.wait()
            never_sent: RefusedError = lost.value
            # gRPC may give the next call to the connection that has just ended: it is lost, too.
            while isinstance(never_sent, LostCallError):
                with pytest.raises(RefusedError) as refused:
                    await channel.call(ECHO, StringValue(), deadline_ms=60_000)
                never_sent = refused.value
    assert lost.value.code is never_sent.code is ErrorCode.NETWORK_EXCEPTION
