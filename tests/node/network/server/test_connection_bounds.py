"""Bounds of a server: idle clients, backlogs, numbers of connections and of descriptors."""

import gc
import logging
import os
import socket
import struct
from collections.abc import Callable

import pytest
import trio

from ottla.node.clock_driver import RealClock
from ottla.node.network.connection_limits import ConnectionLimits
from ottla.node.network.dispatch import Dispatcher, RequestContext
from ottla.node.network.listener import Listener
from ottla.node.network.server import server_driver
from ottla.wire.apis import HEARTBEAT
from ottla.wire.codec import encode
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from tests.node.network.server.socket_clients import (
    connect,
    framed,
    heartbeat,
    is_closed,
    read_answer,
    read_exactly,
    serving,
)


async def test_idle_connections_are_closed_and_busy_ones_are_not() -> None:
    async with (
        serving(idle_ms_max=300) as server,
        await connect(server) as idle,
        await connect(server) as busy,
    ):
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:

                async def keep_busy() -> None:
                    while True:
                        await busy.send_all(heartbeat(1))
                        await read_answer(busy)

                nursery.start_soon(keep_busy)
                assert await is_closed(idle)
                nursery.cancel_scope.cancel()
        assert server.closed_for_idleness_count == 1
        assert server.connection_count == 1


async def test_a_muted_connection_is_answered_again_after_its_delay() -> None:
    def on_request(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        if context.correlation_id == 1:
            context.mute_until(context.arrived_ms + 50)
        return HeartbeatResponse()

    clock = RealClock()
    async with (
        serving(Dispatcher({HEARTBEAT: on_request})) as server,
        await connect(server) as stream,
    ):
        started_ms = clock.monotonic_ms()
        await stream.send_all(heartbeat(1) + heartbeat(2))
        with trio.fail_after(60):
            assert (await read_answer(stream))[0] == 1
            assert (await read_answer(stream))[0] == 2
        assert clock.monotonic_ms() - started_ms >= 50


async def test_a_client_that_reads_nothing_holds_a_bounded_backlog() -> None:
    limits = ConnectionLimits(write_backlog_bytes_max=100_000)
    served: list[int] = []

    def on_request(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        served.append(1)
        return HeartbeatResponse()

    async with (
        serving(Dispatcher({HEARTBEAT: on_request}), limits=limits) as server,
        await connect(server) as stream,
    ):
        with trio.move_on_after(0.3):
            while True:
                await stream.send_all(heartbeat(1) * 1000)
        (channel,) = server._channels.values()
        assert channel.connection.output.byte_count < 2 * limits.write_backlog_bytes_max
        async with await connect(server) as other:
            await other.send_all(heartbeat(2))
            assert (await read_answer(other))[0] == 2
        # Once it reads, it gets every answer, and is served on.
        before, size = len(served), len(ANSWER) * len(served)
        while size > 0:
            size -= len(await stream.receive_some(1 << 20))
        await read_exactly(stream, -size % len(ANSWER))
        assert len(served) > before


ANSWER = framed(struct.pack(">i", 1) + encode(HeartbeatResponse(), 3))


TWO_LISTENERS = [Listener(name=name, host="127.0.0.1", port=0) for name in ("PLAINTEXT", "SECOND")]


class ScriptedAdmission:
    """An admission that a test opens and closes; SECOND is the protected listener."""

    def __init__(self, *verdicts: int | None, room: int = 1_000) -> None:
        self.count_allowed = 0
        self.protected_listener: str | None = "SECOND"
        self.verdicts = list(verdicts)
        self.room = room
        self.pause_ms = 0
        self.served: list[str] = []

    def wait_ms(self, listener: str, now_ms: int) -> int | None:
        if self.pause_ms:
            pause_ms, self.pause_ms = self.pause_ms, 0
            return pause_ms
        is_free = len(self.served) < self.room or listener == self.protected_listener
        return 0 if is_free else None

    def admit(self, listener: str, host: str, now_ms: int) -> int | None:
        assert host == "127.0.0.1"
        verdict = self.verdicts.pop(0) if self.verdicts else None
        if verdict is None:
            self.served.append(listener)
        return verdict

    @property
    def has_excess(self) -> bool:
        return len(self.served) > self.room

    def on_closed(self, listener: str, host: str) -> None:
        self.served.remove(listener)


async def test_connections_above_the_bound_wait_until_another_closes() -> None:
    async with (
        serving(admission=ScriptedAdmission(room=2)) as server,
        await connect(server) as first,
        await connect(server) as second,
        await connect(server) as third,
    ):
        for stream in (first, second):
            await stream.send_all(heartbeat(1))
            await read_answer(stream)
        await third.send_all(heartbeat(3))
        assert server.connection_count == 2
        await first.aclose()
        with trio.fail_after(60):
            assert (await read_answer(third))[0] == 3
        assert server.connection_count == 2


async def test_a_larger_bound_lets_those_in_who_wait() -> None:
    admission = ScriptedAdmission(room=1)
    async with (
        serving(admission=admission) as server,
        await connect(server) as first,
        await connect(server) as second,
    ):
        await first.send_all(heartbeat(1))
        await read_answer(first)
        await second.send_all(heartbeat(2))
        admission.room = 2
        server.resume_accepting()
        with trio.fail_after(60):
            assert (await read_answer(second))[0] == 2
        admission.room = 1
        server.resume_accepting()
        assert server.connection_count == 2, "no connection is closed"


async def test_a_listener_that_accepts_none_for_a_while_does_so_afterwards() -> None:
    admission = ScriptedAdmission()
    admission.pause_ms = 20
    async with serving(admission=admission) as server, await connect(server) as stream:
        await stream.send_all(heartbeat(1))
        with trio.fail_after(60):
            assert (await read_answer(stream))[0] == 1


async def test_a_connection_that_is_refused_is_closed_at_once_or_later() -> None:
    admission = ScriptedAdmission(0, 20, None)
    async with (
        serving(admission=admission) as server,
        await connect(server) as first,
        await connect(server) as second,
        await connect(server) as third,
    ):
        with trio.fail_after(60):
            for refused in (first, second):
                assert await is_closed(refused)
            await third.send_all(heartbeat(3))
            assert (await read_answer(third))[0] == 3
        assert admission.served == ["PLAINTEXT"]
    assert admission.served == []


@pytest.mark.interpreted_only("sets a constant")
async def test_sockets_kept_until_they_are_closed_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_driver, "DELAYED_CLOSES_MAX", 2)
    async with serving(admission=ScriptedAdmission(3_600_000, 3_600_000, 3_600_000)) as server:
        streams = [await connect(server) for _ in range(3)]
        with trio.fail_after(60):
            assert await is_closed(streams[2]), "the third is closed at once"
        assert len(server._closing) == 2
        for stream in streams:
            await stream.aclose()


async def test_a_broker_takes_the_place_of_the_client_that_was_silent_for_longest() -> None:
    admission = ScriptedAdmission(room=2)
    async with (
        serving(admission=admission, listeners=TWO_LISTENERS) as server,
        await connect(server) as first,
        await connect(server) as second,
    ):
        for stream in (second, first):
            await stream.send_all(heartbeat(1))
            await read_answer(stream)
            await trio.sleep(0.01)
        async with await connect(server, "SECOND") as third:
            await third.send_all(heartbeat(3))
            with trio.fail_after(60):
                assert (await read_answer(third))[0] == 3
                assert await is_closed(second)
            assert sorted(admission.served) == ["PLAINTEXT", "SECOND"]
            await first.send_all(heartbeat(2))
            with trio.fail_after(60):
                assert (await read_answer(first))[0] == 2


def open_descriptor_count() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


BAD: list[Callable[[int], bytes]] = [
    lambda _: b"GET / HTTP/1.1\r\n\r\n",
    lambda _: struct.pack(">i", -1),
    lambda _: struct.pack(">i", 0),
    lambda _: struct.pack(">i", (1 << 31) - 1),
    lambda _: struct.pack(">i", 50_000_000) + bytes(5000),
    lambda _: bytes.fromhex("16030100f8010000f40303"),
    lambda _: framed(struct.pack(">hhih", 999, 0, 1, -1)),
    lambda _: framed(struct.pack(">hhih", HEARTBEAT, 99, 1, -1) + b"\0"),
    lambda _: framed(struct.pack(">hhih", HEARTBEAT, 3, 1, -1)),
    lambda i: heartbeat(i) + b"\xff" * 10,
    lambda i: heartbeat(i)[:-1],
    lambda _: b"",
]


async def test_2000_bad_connections_leave_no_descriptor_and_no_memory_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as server:

        async def misbehave(number: int) -> None:
            async with await connect(server) as stream:
                data = BAD[number % len(BAD)](number)
                # The server may have hung up on the first bytes already.
                try:
                    await stream.send_all(data)
                    await stream.send_eof()
                    while await stream.receive_some():
                        pass
                except (trio.BrokenResourceError, OSError):
                    pass

        async def rounds(first: int, count: int) -> None:
            for number in range(first, first + count):
                await misbehave(number)

        async with await connect(server) as good:
            await rounds(0, 200)
            gc.collect()
            descriptors, resident = open_descriptor_count(), resident_bytes()
            async with trio.open_nursery() as nursery:
                for first in range(0, 2000, 100):
                    nursery.start_soon(rounds, first, 100)
            gc.collect()
            while server.connection_count > 1:
                await trio.lowlevel.checkpoint()
            assert open_descriptor_count() == descriptors
            assert resident_bytes() - resident < 4_000_000
            assert server.memory.reserved_bytes == 0
            assert server.closed_for_bad_input_count > 1000
            await good.send_all(heartbeat(1))
            assert (await read_answer(good))[0] == 1
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert 0 < len(lines) < 100


async def test_a_server_out_of_descriptors_turns_clients_away_and_recovers() -> None:
    async with serving() as server:
        hoard = []
        try:
            async with await connect(server) as good:
                await good.send_all(heartbeat(1))
                await read_answer(good)
                client = socket.socket()
                client.setblocking(False)
                while True:
                    try:
                        hoard.append(os.dup(0))
                    except OSError:
                        break
                client.connect_ex(server.addresses["PLAINTEXT"])
                async with trio.SocketStream(trio.socket.from_stdlib_socket(client)) as turned:
                    with trio.fail_after(60):
                        assert await is_closed(turned)
                await good.send_all(heartbeat(2))
                assert (await read_answer(good))[0] == 2
        finally:
            for fd in hoard:
                os.close(fd)
        async with await connect(server) as later:
            await later.send_all(heartbeat(3))
            assert (await read_answer(later))[0] == 3


def buffers_of_peer(address: tuple[str, int]) -> tuple[int, int] | None:
    """Return the send and receive buffers of this process's socket that is connected to an
    address."""
    for name in os.listdir("/proc/self/fd"):
        try:
            found = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        with found:
            try:
                if found.getpeername() == address:
                    return (
                        found.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF),
                        found.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF),
                    )
            except OSError:
                continue
    return None


async def test_connections_have_the_buffers_of_the_settings() -> None:
    limits = ConnectionLimits(send_buffer_bytes=20_000, receive_buffer_bytes=30_000)
    async with serving(limits=limits) as server, await connect(server) as client:
        await client.send_all(heartbeat(1))
        await read_answer(client)

        # The kernel doubles the sizes, for its own administration.
        assert buffers_of_peer(client.socket.getsockname()) == (40_000, 60_000)
