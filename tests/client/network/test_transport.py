"""TCP connections of a client: sending, receiving, and the error after a connection has ended."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from ottla.client.network.blocking_connection import BlockingConnection
from ottla.client.network.connection import ConnectionLostError, connect
from ottla.client.network.transport import TcpStream, send_chunks


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[TcpStream, trio.SocketStream]]:
    """Open a connection; give both ends."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listeners[0] as listener:
        ours = await trio.open_tcp_stream(*listener.socket.getsockname())
        theirs = await listener.accept()
        async with ours, theirs:
            yield TcpStream(ours), theirs


async def test_what_the_kernel_does_not_take_at_once_is_sent_too() -> None:
    data = bytes(range(256)) * 80_000
    received = bytearray()

    async def receive(peer: trio.SocketStream) -> None:
        while len(received) < len(data):
            received.extend(await peer.receive_some())

    async with pair() as (stream, peer), trio.open_nursery() as nursery:
        nursery.start_soon(stream.send_all, data)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(receive, peer)

    assert received == data


@pytest.mark.parametrize("sizes", [(9, 5_000_000, 0, 3, 6_000_000, 1), (1, 2, 3), (70_000,) * 90])
async def test_chunks_arrive_as_one_sequence_of_bytes(sizes: tuple[int, ...]) -> None:
    chunks = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
    data = b"".join(chunks)
    received = bytearray()

    async def receive(peer: trio.SocketStream) -> None:
        while len(received) < len(data):
            received.extend(await peer.receive_some())

    async with pair() as (stream, peer), trio.open_nursery() as nursery:
        nursery.start_soon(send_chunks, stream, chunks)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(receive, peer)

    assert received == data


async def test_it_receives_what_there_is_and_nothing_at_the_end() -> None:
    async with pair() as (stream, peer):
        await peer.send_all(b"abcdef")
        assert await stream.receive_some(4) == b"abcd"
        assert await stream.receive_some(4) == b"ef"
        await peer.aclose()
        assert await stream.receive_some(4) == b""


async def test_others_run_while_bytes_arrive_all_the_time() -> None:
    async with pair() as (stream, peer):
        await peer.send_all(b"abcdef")
        with trio.testing.assert_checkpoints():
            await stream.receive_some(1)


async def test_a_wait_that_is_cancelled_takes_nothing() -> None:
    async with pair() as (stream, peer):
        with trio.move_on_after(0) as scope:
            await stream.send_all(b"never")
        assert scope.cancelled_caught
        with trio.move_on_after(0) as scope:
            await stream.receive_some(1)
        assert scope.cancelled_caught
        await stream.send_all(b"a")
        assert await peer.receive_some() == b"a"
        await peer.send_all(b"b")
        assert await stream.receive_some(1) == b"b"


async def test_a_peer_that_is_gone_is_reported() -> None:
    async with pair() as (stream, peer):
        await stream.send_all(b"not read by the peer, which resets")
        await trio.lowlevel.wait_readable(peer.socket)
        await peer.aclose()
        with pytest.raises(trio.BrokenResourceError):
            await stream.receive_some(1)
        with pytest.raises(trio.BrokenResourceError):
            await stream.send_all(b"x")
        with pytest.raises(trio.BrokenResourceError):
            await stream.send_chunks([b"x", b"y"])


async def test_a_closed_stream_ends_present_and_later_waits() -> None:
    async def is_closed(stream: TcpStream) -> None:
        with pytest.raises(trio.ClosedResourceError):
            await stream.receive_some(1)

    async with pair() as (stream, _), trio.open_nursery() as nursery:
        nursery.start_soon(is_closed, stream)
        await trio.testing.wait_all_tasks_blocked()
        stream.abort()
        await is_closed(stream)
        with pytest.raises(trio.ClosedResourceError):
            await stream.send_all(b"x")


async def test_a_number_that_is_anothers_by_now_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A task that is due in the same turn of the loop may close the stream, and open another."""
    async with pair() as (stream, peer):
        number = stream.socket.fileno()
        wait = trio.lowlevel.wait_readable
        reader, writer = os.pipe()

        async def wait_while_others_close(awaited: int) -> None:
            await wait(awaited)
            stream.abort()
            os.dup2(reader, number)
            os.write(writer, b"another's")

        monkeypatch.setattr(trio.lowlevel, "wait_readable", wait_while_others_close)
        await peer.send_all(b"a")
        try:
            with pytest.raises(trio.ClosedResourceError):
                await stream.receive_some(1)
        finally:
            for one in (reader, writer, number):
                os.close(one)


@pytest.mark.parametrize("port", [-1, 0, 9_092, 65_536, 1 << 40])
@pytest.mark.parametrize(
    "host",
    ["", ".", "a..b", ".a", "a" * 64, "a b", "a\0b", "a\n", "\udc80", "\u0130" * 30, "x" * 70_000],
)
async def test_no_host_or_port_of_a_broker_raises_anything_but_a_connection_error(
    host: str, port: int
) -> None:
    with pytest.raises(ConnectionLostError, match="cannot connect to"):
        await connect(host, port, client_id="test", timeout_s=5)
    with pytest.raises(OSError, match=r"host name|no port"):
        BlockingConnection(host, port, client_id="test", timeout_s=5)


@pytest.mark.parametrize("port", [-1, 0, 65_536, 1 << 40])
async def test_no_port_of_a_known_host_raises_anything_but_a_connection_error(port: int) -> None:
    with pytest.raises(ConnectionLostError, match=f"there is no port {port}"):
        await connect("127.0.0.1", port, client_id="test", timeout_s=5)
