"""A frame's length is what its chunks are, and a length that lies is refused."""

import pytest

from ottla.model.errors import ProtocolError
from ottla.wire.frames import frame, frame_length


def test_the_length_counts_every_chunk_without_touching_one() -> None:
    records = memoryview(b"records")
    framed = frame([b"head", records, b""])
    assert framed[0] == b"\0\0\0\x0b"
    assert framed[1:] == [b"head", records, b""]
    assert framed[2] is records


def test_an_empty_frame_has_a_length() -> None:
    assert frame([]) == [b"\0\0\0\0"]


def test_a_length_is_read_where_it_stands() -> None:
    assert frame_length(b"xx\0\0\1\0", 2, bytes_max=256) == 256


@pytest.mark.parametrize("length", [-1, -(1 << 31), 257, (1 << 31) - 1])
def test_a_negative_or_too_large_length_is_refused(length: int) -> None:
    with pytest.raises(ProtocolError):
        frame_length(length.to_bytes(4, signed=True), bytes_max=256)
