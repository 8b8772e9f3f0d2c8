"""Receiving of answers in arbitrary pieces, from honest and hostile peers."""

import tracemalloc
from collections.abc import Iterable

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.network import connection
from ottla.client.network.connection import BrokerConnection, ConnectionLostError
from ottla.model.errors import ProtocolError


class Pieces:
    """A stream that gives its bytes in pieces, of these sizes over and over."""

    def __init__(self, data: bytes, sizes: Iterable[int]) -> None:
        self._data = data
        self._sizes = list(sizes)
        self._at = 0
        self.asked: list[int] = []

    async def receive_some(self, max_bytes: int, /) -> bytes:
        await trio.lowlevel.checkpoint()
        size = self._sizes[len(self.asked) % len(self._sizes)]
        self.asked.append(max_bytes)
        found = self._data[self._at : self._at + min(size, max_bytes)]
        self._at += len(found)
        return found

    async def receive_into(self, room: memoryview, /) -> int:
        raise NotImplementedError

    async def send_all(self, data: bytes, /) -> None:
        raise NotImplementedError

    def abort(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


def framed(bodies: Iterable[bytes]) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


async def received(stream: Pieces, count: int) -> list[bytes]:
    peer = BrokerConnection(stream, "peer", "test")
    frames = []
    for _ in range(count):
        frame = await peer._receive_frame()
        assert type(frame.obj) is bytes
        frames.append(bytes(frame))
    assert not peer._received
    return frames


LENGTHS = st.one_of(st.integers(0, 300), st.sampled_from((16_384, 65_532, 65_536, 70_000, 300_000)))


@given(
    lengths=st.lists(LENGTHS, min_size=1, max_size=5),
    sizes=st.lists(
        st.one_of(st.integers(900, 40_000), st.just(1 << 22), st.integers(1, 5)),
        min_size=1,
        max_size=6,
    ).filter(lambda sizes: max(sizes) >= 900),
)
def test_answers_are_received_whole_in_whatever_pieces_they_arrive(
    lengths: list[int], sizes: list[int]
) -> None:
    bodies = [bytes([number + 1]) * length for number, length in enumerate(lengths)]

    assert trio.run(received, Pieces(framed(bodies), sizes), len(bodies)) == bodies


async def test_a_large_answer_behind_a_large_one_is_received_in_one_piece() -> None:
    body = bytes(range(256)) * 3_000
    stream = Pieces(framed([body, body, b"small", body]), [1 << 22])

    assert await received(stream, 4) == [body, body, b"small", body]
    first, rest, second = stream.asked[:3]
    assert first == connection.RECEIVE_BYTES
    assert first + rest == second == connection.LENGTH_BYTES + len(body)


async def test_an_answer_that_arrives_in_one_piece_is_not_copied() -> None:
    body = bytes(range(256)) * 3_000
    peer = BrokerConnection(Pieces(framed([body] * 3), [1 << 22]), "peer", "test")
    await peer._receive_frame()
    await peer._receive_frame()
    tracemalloc.start()
    try:
        frame = await peer._receive_frame()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert bytes(frame) == body
    assert peak < 1.5 * len(body)


async def test_answers_smaller_than_the_largest_of_late_are_received_in_one_piece() -> None:
    large, less = b"x" * 700_000, b"y" * 200_000
    stream = Pieces(framed([large, less, large]), [1 << 22, 1 << 22, 200_004, 1 << 22])

    assert await received(stream, 3) == [large, less, large]
    assert stream.asked[2:] == [700_004, 700_004]


async def test_a_peer_that_announces_much_and_sends_little_takes_little_memory() -> None:
    announced = connection.RESPONSE_BYTES_MAX
    stream = Pieces(announced.to_bytes(4, "big") + b"x" * 10_000, [1])
    peer = BrokerConnection(stream, "peer", "test")
    tracemalloc.start()
    try:
        with pytest.raises(ConnectionLostError, match="hung up"):
            await peer._receive_frame()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert max(stream.asked) <= connection.RECEIVE_BYTES_MAX
    assert peak < 4 * connection.RECEIVE_BYTES_MAX


@pytest.mark.parametrize("length", [-1, connection.RESPONSE_BYTES_MAX + 1])
async def test_a_length_that_no_answer_has_is_refused(length: int) -> None:
    stream = Pieces(length.to_bytes(4, "big", signed=True) + b"x" * 100, [1 << 20])
    with pytest.raises(ProtocolError, match=f"answer length {length}"):
        await BrokerConnection(stream, "peer", "test")._receive_frame()


async def test_a_peer_that_hangs_up_within_an_answer_is_lost() -> None:
    stream = Pieces(framed([b"x" * 200_000])[:-1], [50_000])
    with pytest.raises(ConnectionLostError, match="hung up"):
        await BrokerConnection(stream, "peer", "test")._receive_frame()
