"""Several requests in flight on one connection, against a peer with scripted responses."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from ottla.client.network.connection import ConnectionLostError
from ottla.client.network.pipeline import Pipeline
from ottla.client.network.transport import TcpStream
from ottla.model.errors import ProtocolError
from ottla.wire import codec, headers
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.metadata_response import MetadataResponse

VERSION = 12


class Peer:
    """The other end of a connection: receives requests, and answers on demand."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._received = bytearray()

    async def take(self) -> int:
        """Return the next request's correlation id."""
        while True:
            length = int.from_bytes(self._received[:4], "big")
            if len(self._received) >= 4 + length > 4:
                frame = bytes(self._received[4 : 4 + length])
                del self._received[: 4 + length]
                return headers.correlation_id_of(frame)
            self._received += await self._stream.receive_some(65_536)

    async def answer(self, correlation_id: int, mark: str) -> None:
        """Answer a Metadata request with a mark to know the answer by."""
        body = codec.encode(MetadataResponse(cluster_id=mark), VERSION)
        frame = correlation_id.to_bytes(4, "big") + b"\0" + body
        await self._stream.send_all(len(frame).to_bytes(4, "big") + frame)

    async def send(self, data: bytes) -> None:
        await self._stream.send_all(data)

    async def hang_up(self) -> None:
        await self._stream.aclose()


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Pipeline, Peer]]:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listeners[0] as listener:
        port = listener.socket.getsockname()[1]
        ours = await trio.open_tcp_stream("127.0.0.1", port)
        theirs = await listener.accept()
        async with ours, theirs:
            yield Pipeline(TcpStream(ours), "peer", "test"), Peer(theirs)


async def ask(pipeline: Pipeline) -> str | None:
    submitted = await pipeline.submit(MetadataRequest(), MetadataResponse, VERSION)
    return (await submitted.answer()).cluster_id


async def test_requests_leave_before_the_first_is_answered_and_answers_keep_their_order() -> None:
    async with connected() as (pipeline, peer):
        submitted = [
            await pipeline.submit(MetadataRequest(), MetadataResponse, VERSION) for _ in range(5)
        ]
        ids = [await peer.take() for _ in range(5)]
        assert pipeline.in_flight_count == 5
        for one in ids:
            await peer.answer(one, f"answer {one}")

        # The last is waited for first: it reads for all.
        last = await submitted[-1].answer()

        assert last.cluster_id == f"answer {ids[-1]}"
        assert pipeline.in_flight_count == 0
        for one, request in zip(ids, submitted, strict=True):
            assert (await request.answer()).cluster_id == f"answer {one}"


async def test_tasks_share_a_connection_and_each_gets_its_own_answer() -> None:
    found: dict[int, str | None] = {}
    async with connected() as (pipeline, peer), trio.open_nursery() as nursery:

        async def one_task(number: int) -> None:
            found[number] = await ask(pipeline)

        ids = []
        for number in range(4):
            nursery.start_soon(one_task, number)
            ids.append(await peer.take())
        for one in ids:
            await peer.answer(one, f"answer {one}")
    assert found == {number: f"answer {one}" for number, one in enumerate(ids)}


async def test_a_waiter_that_is_cancelled_leaves_the_connection_whole() -> None:
    async with connected() as (pipeline, peer), trio.open_nursery() as nursery:
        given_up = trio.CancelScope()

        async def give_up() -> None:
            with given_up:
                await ask(pipeline)

        nursery.start_soon(give_up)
        first = await peer.take()
        await peer.send(b"\0\0")  # the first half of a length
        await trio.testing.wait_all_tasks_blocked()
        given_up.cancel()
        await trio.testing.wait_all_tasks_blocked()
        body = codec.encode(MetadataResponse(cluster_id="late"), VERSION)
        frame = first.to_bytes(4, "big") + b"\0" + body
        assert len(frame) < 1 << 16
        await peer.send(len(frame).to_bytes(4, "big")[2:] + frame)
        second = await pipeline.submit(MetadataRequest(), MetadataResponse, VERSION)
        await peer.answer(await peer.take(), "mine")
        assert (await second.answer()).cluster_id == "mine"


async def test_when_the_peer_hangs_up_every_waiter_hears_it() -> None:
    async with connected() as (pipeline, peer):
        submitted = [
            await pipeline.submit(MetadataRequest(), MetadataResponse, VERSION) for _ in range(3)
        ]
        await peer.hang_up()
        for request in submitted:
            with pytest.raises(ConnectionLostError):
                await request.answer()


async def test_an_answer_to_something_else_breaks_the_connection() -> None:
    async with connected() as (pipeline, peer):
        submitted = await pipeline.submit(MetadataRequest(), MetadataResponse, VERSION)
        await peer.answer(await peer.take() + 7, "whose?")
        with pytest.raises(ProtocolError):
            await submitted.answer()
        with pytest.raises(ConnectionLostError):
            await pipeline.submit(MetadataRequest(), MetadataResponse, VERSION)


async def test_a_request_cut_short_is_the_last_on_its_connection() -> None:
    async with connected() as (pipeline, _):
        # More than sockets hold unread.
        huge = MetadataRequest(topics=[MetadataRequestTopic(name="x" * 30_000)] * 1_000)
        with trio.move_on_after(0.2) as scope:
            await pipeline.submit(huge, MetadataResponse, VERSION)
        assert scope.cancelled_caught
        with pytest.raises(ConnectionLostError, match="cut short"):
            await pipeline.submit(MetadataRequest(), MetadataResponse, VERSION)
