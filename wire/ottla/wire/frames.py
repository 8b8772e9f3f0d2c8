"""A frame is four bytes of length and that many bytes of a request or a response."""

from struct import Struct

from ottla.model.errors import ProtocolError
from ottla.model.limits import INT32_MAX
from ottla.wire.codec_types import Chunk

_LENGTH = Struct(">i")


def frame(chunks: list[Chunk]) -> list[Chunk]:
    """Put the length of these chunks in front of them."""
    length = sum(map(len, chunks))
    assert length <= INT32_MAX
    return [_LENGTH.pack(length), *chunks]


def frame_length(data: bytes | bytearray | memoryview, at: int = 0, *, bytes_max: int) -> int:
    """Read the length in front of a frame; one that is negative or too large is no frame."""
    (length,) = _LENGTH.unpack_from(data, at)
    if not 0 <= length <= bytes_max:
        raise ProtocolError(f"a frame of {length} bytes is not within 0 and {bytes_max}")
    return int(length)
