"""The socket server against real sockets on loopback."""

import logging
import os
import select
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.node.clock_driver import RealClock
from ottla.node.network.dispatch import Dispatcher, Peer, RequestContext
from ottla.node.network.listener import Listener
from ottla.node.network.server import server_driver
from ottla.node.network.server.channel_driver import COPIED_BYTES_MAX, READ_AHEAD_BYTES
from ottla.node.network.server.server_driver import SocketServer
from ottla.storage.disk.disk_seam import Disk, DiskFile
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.disk.slice import FileSlice
from ottla.telemetry.metrics.loop_pause_driver import LoopPauseMeter
from ottla.wire.apis import FETCH, HEARTBEAT, OFFSET_COMMIT, PRODUCE
from ottla.wire.codec import encode
from ottla.wire.headers import encode_request_header
from ottla.wire.messages.fetch_request import FetchRequest
from ottla.wire.messages.fetch_response import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.wire.messages.offset_commit_request import OffsetCommitRequest
from ottla.wire.messages.offset_commit_response import OffsetCommitResponse
from ottla.wire.messages.produce_request import (
    ProduceRequest,
)
from ottla.wire.messages.produce_response import ProduceResponse
from tests.node.network.server.socket_clients import (
    connect,
    fetch,
    framed,
    heartbeat,
    is_closed,
    on_heartbeat,
    produce,
    read_answer,
    serving,
)


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with serving() as server, await connect(server) as stream:
        await stream.send_all(b"".join(heartbeat(i) for i in range(500)))
        assert [(await read_answer(stream))[0] for _ in range(500)] == list(range(500))


async def test_a_request_sent_byte_by_byte_is_answered() -> None:
    async with serving() as server, await connect(server) as stream:
        for byte in heartbeat(9):
            await stream.send_all(bytes([byte]))
            await trio.lowlevel.checkpoint()
        assert (await read_answer(stream))[0] == 9


async def test_a_request_of_many_megabytes_arrives_whole() -> None:
    sizes: list[int] = []
    sums: list[int] = []

    def on_produce(context: RequestContext, request: ProduceRequest) -> ProduceResponse:
        records = request.topic_data[0].partition_data[0].records
        assert isinstance(records, memoryview)
        sizes.append(len(records))
        sums.append(sum(records[::4096]))
        return ProduceResponse()

    records = os.urandom(9_000_000)
    async with serving(Dispatcher({PRODUCE: on_produce})) as server:
        async with await connect(server) as stream:
            await stream.send_all(produce(1, records) + produce(2, records[:10]))
            assert (await read_answer(stream))[0] == 1
            assert (await read_answer(stream))[0] == 2
        assert server.memory.reserved_bytes == 0
    assert sizes == [9_000_000, 10]
    assert sums[0] == sum(records[::4096])


async def test_a_coroutine_of_a_handler_is_run_and_answers_keep_their_order() -> None:
    release = trio.Event()

    async def later() -> HeartbeatResponse:
        await release.wait()
        return HeartbeatResponse(error_code=27)

    def on_first(context: RequestContext, request: HeartbeatRequest) -> Any:
        return later() if context.correlation_id == 1 else HeartbeatResponse()

    async with (
        serving(Dispatcher({HEARTBEAT: on_first})) as server,
        await connect(server) as stream,
        await connect(server) as other,
    ):
        await stream.send_all(heartbeat(1) + heartbeat(2))
        # The other connection is not held up.
        await other.send_all(heartbeat(3))
        assert (await read_answer(other))[0] == 3
        release.set()
        assert (await read_answer(stream))[0] == 1
        assert (await read_answer(stream))[0] == 2


async def test_an_answer_completed_from_another_task_leaves_at_once() -> None:
    contexts: list[RequestContext] = []
    async with (
        serving(Dispatcher({HEARTBEAT: lambda c, r: contexts.append(c)})) as server,
        await connect(server) as stream,
    ):
        await stream.send_all(heartbeat(1))
        while not contexts:
            await trio.lowlevel.checkpoint()
        contexts[0].complete(HeartbeatResponse())
        with trio.fail_after(60):
            assert (await read_answer(stream))[0] == 1


async def test_what_is_done_once_at_the_end_of_a_turn_answers_all_of_its_requests() -> None:
    waiting: list[RequestContext] = []
    counts: list[int] = []
    dispatcher = Dispatcher()

    def write() -> None:
        counts.append(len(waiting))
        for context in waiting:
            context.complete(OffsetCommitResponse())
        waiting.clear()

    def on_commit(context: RequestContext, request: OffsetCommitRequest) -> None:
        waiting.append(context)
        assert dispatcher.turn_end.call(write)

    dispatcher.register(OFFSET_COMMIT, on_commit)
    async with serving(dispatcher) as server:
        body = encode(OffsetCommitRequest(group_id="g"), 8)
        frames = [
            framed(encode_request_header(OFFSET_COMMIT, 8, number, "t") + body)
            for number in range(5)
        ]
        async with await connect(server) as stream:
            await stream.send_all(b"".join(frames))
            assert [(await read_answer(stream))[0] for _ in frames] == list(range(5))
        assert sum(counts) == 5
        assert not dispatcher.turn_end.call(write), "no turn is under way"


async def _counts_of_ends(others_count: int) -> list[int]:
    """Return how many requests each end of a turn was for: each is sent while one is served."""
    waiting: list[RequestContext] = []
    counts: list[int] = []
    dispatcher = Dispatcher()
    frame = framed(
        encode_request_header(OFFSET_COMMIT, 8, 7, "t") + encode(OffsetCommitRequest(), 8)
    )

    def write() -> None:
        counts.append(len(waiting))
        for context in waiting:
            context.complete(OffsetCommitResponse())
        waiting.clear()

    def on_commit(context: RequestContext, request: OffsetCommitRequest) -> None:
        waiting.append(context)
        assert dispatcher.turn_end.call(write)
        if unsent:
            unsent.pop().sendall(frame)
            # An epoll can be read where it has something to tell.
            assert select.select([server._epoll], [], [], 60)[0]

    dispatcher.register(OFFSET_COMMIT, on_commit)
    async with serving(dispatcher) as server, await connect(server) as stream:
        address = server.addresses["PLAINTEXT"]
        unsent = [socket.create_connection(address) for _ in range(others_count)]
        others = list(unsent)
        while server.connection_count <= len(others):
            await trio.lowlevel.checkpoint()
        await stream.send_all(frame)
        assert (await read_answer(stream))[0] == 7
        while sum(counts) <= len(others):
            await trio.lowlevel.checkpoint()
        for other in others:
            other.close()
    return counts


@pytest.mark.interpreted_only("sets a constant")
async def test_what_comes_while_a_turn_serves_joins_what_is_done_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_driver, "GATHERING_NS_MAX", 1 << 60)
    assert await _counts_of_ends(3) == [4]


@pytest.mark.interpreted_only("sets a constant")
async def test_an_overlong_turn_accepts_no_further_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_driver, "GATHERING_NS_MAX", 0)
    assert await _counts_of_ends(3) == [1, 1, 1, 1]


async def test_a_client_that_closes_right_after_its_last_request_loses_none() -> None:
    seen: list[int] = []

    def on_produce(context: RequestContext, request: ProduceRequest) -> None:
        seen.append(context.correlation_id)
        context.complete_silently()

    async with serving(Dispatcher({PRODUCE: on_produce})) as server:
        async with await connect(server) as stream:
            await stream.send_all(b"".join(produce(i, b"records") for i in range(900)))
        while server.connection_count or not seen:
            await trio.lowlevel.checkpoint()
    assert seen == list(range(900))


@asynccontextmanager
async def fetching(
    disk: Disk, path: Path, size: int, **options: Any
) -> AsyncIterator[tuple[SocketServer, bytes]]:
    """Serve Fetch with a slice that begins at 100 in a file of `size` + 200 bytes."""
    data = os.urandom(size + 200)
    path.write_bytes(data)
    file: DiskFile = disk.open(str(path))

    def on_fetch(context: RequestContext, request: FetchRequest) -> FetchResponse:
        partition = PartitionData(partition_index=0, records=FileSlice(file, 100, size))
        return FetchResponse(
            responses=[FetchableTopicResponse(topic="t", partitions=[partition, partition])]
        )

    async with serving(Dispatcher({FETCH: on_fetch}), disk=disk, **options) as server:
        yield server, data[100 : 100 + size]
    file.close()


async def test_file_slices_leave_between_their_headers_to_a_slow_reader(tmp_path: Path) -> None:
    async with (
        RealDisk() as disk,
        fetching(disk, tmp_path / "log", 6_000_000) as (server, data),
        await connect(server) as stream,
    ):
        await stream.send_all(fetch(1) + fetch(2))
        for correlation_id in (1, 2):
            answer_id, answer = await read_answer(stream)
            assert answer_id == correlation_id
            assert answer.count(data) == 2


@asynccontextmanager
async def framing(path: Path, size: int) -> AsyncIterator[tuple[SocketServer, bytes]]:
    """Serve Fetch with responses of a start, a slice of a file, and an end."""
    data = os.urandom(size)
    path.write_bytes(data)
    async with RealDisk() as disk:
        file = disk.open(str(path))

        def on_fetch(context: RequestContext, request: FetchRequest) -> None:
            start = struct.pack(">ii", 4 + size + 3, context.correlation_id)
            context.complete_frame([start, FileSlice(file, 0, size), b"end"])

        async with serving(Dispatcher({FETCH: on_fetch}), disk=disk) as server:
            yield server, data + b"end"
        file.close()


@pytest.mark.parametrize("size", [1, COPIED_BYTES_MAX, COPIED_BYTES_MAX + 1, 6_000_000])
async def test_a_response_around_one_slice_arrives_whole(tmp_path: Path, size: int) -> None:
    async with framing(tmp_path / "log", size) as (server, expected):
        async with await connect(server) as stream:
            for correlation_id in range(3):
                await stream.send_all(fetch(correlation_id))
                assert await read_answer(stream) == (correlation_id, expected)
        async with await connect(server) as stream:
            await stream.send_all(b"".join(map(fetch, range(20))))
            for correlation_id in range(20):
                assert await read_answer(stream) == (correlation_id, expected)


@pytest.mark.parametrize("size", [COPIED_BYTES_MAX, COPIED_BYTES_MAX + 1])
async def test_a_response_around_a_slice_that_the_file_lacks_is_not_sent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, size: int
) -> None:
    async with framing(tmp_path / "log", size) as (server, _):
        os.truncate(tmp_path / "log", 500)
        async with await connect(server) as stream:
            await stream.send_all(fetch(1))
            with trio.fail_after(60), pytest.raises(AssertionError, match="closed after"):
                await read_answer(stream)
    assert "ended by an unexpected error" in caplog.text


async def test_a_cold_slice_is_read_ahead_before_it_is_sent(tmp_path: Path) -> None:
    class ColdDisk(RealDisk):
        """Nothing is cached before it was read ahead."""

        def __init__(self) -> None:
            super().__init__()
            self.read_ahead_at: list[int] = []

        def is_cached(self, file: DiskFile, position: int, size: int) -> bool:
            return position in self.read_ahead_at

        async def read_ahead(self, file: DiskFile, position: int, size: int) -> None:
            await trio.lowlevel.checkpoint()
            self.read_ahead_at.append(position)

    disk = ColdDisk()
    async with fetching(disk, tmp_path / "log", 3_000_000) as (server, data):
        async with await connect(server) as stream:
            await stream.send_all(fetch(1))
            _, answer = await read_answer(stream)
            assert answer.count(data) == 2
        assert disk.read_ahead_at
        assert disk.read_ahead_at[0] == 100


class CountingDisk(RealDisk):
    """Notes which ranges are looked for in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.looked_for: list[tuple[int, int]] = []

    def is_cached(self, file: DiskFile, position: int, size: int) -> bool:
        self.looked_for.append((position, position + size))
        return super().is_cached(file, position, size)


class StoppedClock(RealClock):
    """No time passes between two parts of an answer."""

    def monotonic_ms(self) -> int:
        return 1_000_000


async def test_what_was_found_in_memory_is_not_looked_for_with_each_part(tmp_path: Path) -> None:
    disk, size = CountingDisk(), 9_000_000
    async with (
        fetching(disk, tmp_path / "log", size, clock=StoppedClock()) as (server, data),
        await connect(server) as stream,
    ):
        await stream.send_all(fetch(1))
        _, answer = await read_answer(stream)
        assert answer.count(data) == 2
    starts = range(100, 100 + size, READ_AHEAD_BYTES)
    assert disk.looked_for == [(at, min(at + READ_AHEAD_BYTES, 100 + size)) for at in starts]


async def test_a_file_that_ends_within_its_slice_closes_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with RealDisk() as disk, fetching(disk, tmp_path / "log", 1000) as (server, _):
        os.truncate(tmp_path / "log", 500)
        async with await connect(server) as stream:
            await stream.send_all(fetch(1))
            with trio.fail_after(60), pytest.raises(AssertionError, match="closed after"):
                await read_answer(stream)
    assert "ended by an unexpected error" in caplog.text


class UnheardOfError(Exception):
    """A fault of a kind that no list of exceptions names."""


FAULTS: dict[str, Callable[[], Exception]] = {
    "arithmetic": ZeroDivisionError,
    "lookup": lambda: KeyError("later"),
    "runtime": lambda: RuntimeError("recursion or worse"),
    "iteration": StopIteration,
    "asynchronous iteration": StopAsyncIteration,
    "memory": MemoryError,
    "group": lambda: ExceptionGroup("tasks", [RuntimeError("one"), ValueError("two")]),
    "unheard of": UnheardOfError,
}


@pytest.mark.parametrize("is_coroutine", [False, True])
@pytest.mark.parametrize("name", FAULTS)
async def test_a_bug_in_a_handler_closes_its_connection_and_nothing_else(
    name: str, is_coroutine: bool, caplog: pytest.LogCaptureFixture
) -> None:
    fault = FAULTS[name]()

    async def fails_later() -> None:
        raise fault

    def on_request(context: RequestContext, request: HeartbeatRequest) -> Any:
        if context.correlation_id == 3:
            return HeartbeatResponse()
        if is_coroutine:
            return fails_later()
        raise fault

    dispatcher = Dispatcher({HEARTBEAT: on_request})
    async with serving(dispatcher) as server, await connect(server) as good:
        for correlation_id in (1, 2):
            async with await connect(server) as bad:
                await bad.send_all(heartbeat(correlation_id))
                assert await is_closed(bad)
        await good.send_all(heartbeat(3))
        assert (await read_answer(good))[0] == 3
        assert server.connection_count == 1
    assert type(fault).__name__ in caplog.text
    assert sum(record.exc_info is not None for record in caplog.records) == 1
    assert dispatcher.errors.counts == {"connection": 2}


async def test_a_handlers_tasks_may_fail_while_others_of_them_are_cancelled() -> None:
    async def fails() -> None:
        raise LookupError

    async def fails_in_a_nursery() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(fails)

    def on_request(context: RequestContext, request: HeartbeatRequest) -> Any:
        is_bad = context.correlation_id == 1
        return fails_in_a_nursery() if is_bad else HeartbeatResponse()

    async with (
        serving(Dispatcher({HEARTBEAT: on_request})) as server,
        await connect(server) as good,
    ):
        async with await connect(server) as bad:
            await bad.send_all(heartbeat(1))
            assert await is_closed(bad)
        await good.send_all(heartbeat(2))
        assert (await read_answer(good))[0] == 2


async def test_a_bug_of_what_hears_of_closed_connections_is_counted_and_the_rest_still_hears() -> (
    None
):
    dispatcher = Dispatcher({HEARTBEAT: on_heartbeat})
    heard: list[int] = []

    def fails(peer: Peer) -> None:
        raise RuntimeError

    dispatcher.on_closed = [fails, lambda peer: heard.append(peer.connection_id)]
    async with serving(dispatcher) as server, await connect(server) as good:
        async with await connect(server) as gone:
            await gone.send_all(heartbeat(1))
            await read_answer(gone)
        await good.send_all(heartbeat(2))
        assert (await read_answer(good))[0] == 2
        while server.connection_count > 1:
            await trio.lowlevel.checkpoint()
        assert heard == [2]
        assert server.memory.reserved_bytes == 0
    assert dispatcher.errors.counts == {"connection": 2}


async def test_a_peer_is_known_by_its_own_addresses() -> None:
    contexts: list[RequestContext] = []

    def on_request(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        contexts.append(context)
        return HeartbeatResponse()

    everywhere = Listener(name="ANY", host="", port=0)
    async with serving(Dispatcher({HEARTBEAT: on_request}), listeners=[everywhere]) as server:
        port = server.addresses["ANY"][1]
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(heartbeat(1))
            await read_answer(stream)
    peer = contexts[0].peer
    assert (peer.local_host, peer.local_port) == ("127.0.0.1", port)
    assert peer.peer_host == "127.0.0.1"
    assert peer.listener_name == "ANY"
    assert contexts[0].client_id == "t"


async def test_the_longest_pause_of_the_loop_is_measured() -> None:
    meter = LoopPauseMeter()
    trio.lowlevel.add_instrument(meter)
    await trio.sleep(0)
    meter.take_longest_ms()
    started_ns = RealClock().monotonic_ms()
    while RealClock().monotonic_ms() - started_ns < 30:
        pass
    await trio.sleep(0.001)
    trio.lowlevel.remove_instrument(meter)
    assert meter.take_longest_ms() >= 29
    assert meter.take_longest_ms() == 0
    assert meter.longest_ever_ms >= 29


async def test_a_client_that_comes_too_early_is_sent_away_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dispatcher = Dispatcher()
    dispatcher.coming = frozenset({HEARTBEAT})
    with caplog.at_level(logging.INFO):
        async with serving(dispatcher) as server:
            for request in (heartbeat(1), fetch(1)):
                async with await connect(server) as client:
                    await client.send_all(request)
                    assert await is_closed(client)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "Fetch is not served" in line
