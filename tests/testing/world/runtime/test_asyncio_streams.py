"""Connections of asyncio programs over the simulated network."""

import asyncio
from collections.abc import Callable

import pytest
import trio

from ottla.jepsen.world.whole.machine import SharedWorld
from ottla.jepsen.world.whole.net.streams import Stream
from tests.testing.world.small_world import Program, in_network, instance


class EchoServer:
    """A simulated server on the machine `server` that returns each byte."""

    def __init__(self, world: SharedWorld, *, delay_s: float = 0.0) -> None:
        self.streams: list[Stream] = []
        self._world = world
        self._delay_s = delay_s
        world.network.on_start(world.network.host("server"))
        world.ports.open("server", 1, self)

    def on_connect(self, stream: Stream) -> None:
        self.streams.append(stream)
        self._world.nursery.start_soon(self._echo, stream)

    async def _echo(self, stream: Stream) -> None:
        await trio.sleep(self._delay_s)
        try:
            while data := await stream.receive_some(1 << 20):
                await stream.send_all(data)
            await stream.aclose()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass


def _with_server(
    program: Program,
    disturb: Callable[[EchoServer], None] | None = None,
    *,
    delay_s: float = 0.0,
) -> None:
    """Run a program beside an echo server. `disturb` is called after one virtual second."""

    async def scenario(world: SharedWorld) -> None:
        server = EchoServer(world, delay_s=delay_s)
        machine = instance(world, "program", program)
        machine.start()
        if disturb is not None:
            await trio.sleep(1)
            disturb(server)
        await machine.has_ended.wait()
        if machine.failure is not None:
            raise machine.failure

    in_network(scenario)


def test_bytes_are_sent_and_received_in_order() -> None:
    async def program() -> None:
        reader, writer = await asyncio.open_connection("server", 1)
        for number in range(100):
            writer.write(b"%03d" % number)
        await writer.drain()
        assert await reader.readexactly(300) == b"".join(b"%03d" % n for n in range(100))
        assert writer.get_extra_info("peername") == ("server", 1)
        assert writer.get_extra_info("sockname")[0] == "program"
        assert writer.get_extra_info("socket") is None
        writer.close()
        await writer.wait_closed()
        with pytest.raises(asyncio.IncompleteReadError):
            await reader.readexactly(1)

    _with_server(program)


def test_a_writer_waits_while_the_peer_does_not_read() -> None:
    size = 3 << 20

    async def program() -> None:
        loop = asyncio.get_running_loop()
        reader, writer = await asyncio.open_connection("server", 1)
        began_s = loop.time()
        for _ in range(3):
            writer.write(bytes(size // 3))
            await writer.drain()
        writer.write(b"x")
        await writer.drain()
        assert loop.time() - began_s > 9
        assert len(await reader.readexactly(size + 1)) == size + 1
        writer.close()

    _with_server(program, delay_s=10)


def test_a_reader_sees_the_end_of_the_stream() -> None:
    async def program() -> None:
        reader, writer = await asyncio.open_connection("server", 1)
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()

    _with_server(program, lambda server: server.streams[0].close_now())


def test_a_reset_connection_fails_at_the_reader() -> None:
    async def program() -> None:
        reader, writer = await asyncio.open_connection("server", 1)
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        assert writer.is_closing()

    _with_server(program, lambda server: server.streams[0].abort())


def test_a_connection_is_refused_where_nothing_listens() -> None:
    async def program() -> None:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("server", 2)
        with pytest.raises(RuntimeError, match="not encrypted"):
            await asyncio.open_connection("server", 1, ssl=True)
        with pytest.raises(RuntimeError, match="no sockets"):
            await asyncio.get_running_loop().create_connection(asyncio.Protocol)

    _with_server(program)


def test_an_attempt_over_a_cut_link_can_be_cancelled() -> None:
    async def program() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.open_connection("server", 1), 5)
        assert asyncio.get_running_loop().time() == pytest.approx(5)

    async def scenario(world: SharedWorld) -> None:
        EchoServer(world)
        world.network.cut("program", "server")
        machine = instance(world, "program", program)
        machine.start()
        await machine.has_ended.wait()
        assert machine.failure is None

    in_network(scenario)


def test_names_are_addresses() -> None:
    async def program() -> None:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo("server", 1)
        assert found[0][4] == ("server", 1)
        assert await loop.getnameinfo(("server", 1)) == ("server", "1")

    _with_server(program)


def test_a_killed_program_resets_its_connections() -> None:
    async def program() -> None:
        _, writer = await asyncio.open_connection("server", 1)
        await writer.drain()
        await asyncio.Event().wait()

    async def scenario(world: SharedWorld) -> None:
        server = EchoServer(world)
        machine = instance(world, "program", program)
        machine.start()
        await trio.sleep(1)
        assert not server.streams[0].is_broken
        machine.kill()
        await trio.sleep(1)
        assert server.streams[0].is_broken

    in_network(scenario)


def test_a_protocol_may_pause_reading_and_give_its_own_buffer() -> None:
    async def program() -> None:
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        class BufferProtocol(asyncio.BufferedProtocol):
            def __init__(self) -> None:
                self.found = bytearray()
                self.buffer = bytearray(3)

            def get_buffer(self, sizehint: int) -> bytearray:
                return self.buffer

            def buffer_updated(self, nbytes: int) -> None:
                self.found += self.buffer[:nbytes]
                if len(self.found) == 8:
                    done.set_result(loop.time())

        transport, protocol = await loop.create_connection(BufferProtocol, "server", 1)
        transport.pause_reading()
        assert not transport.is_reading()
        transport.write(b"12345678")
        loop.call_later(5, transport.resume_reading)
        assert await done == pytest.approx(5, abs=0.1)
        assert protocol.found == b"12345678"
        transport.abort()
        assert transport.is_closing()

    _with_server(program)
