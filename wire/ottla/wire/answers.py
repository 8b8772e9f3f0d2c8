"""An answer as the frame that leaves: its length, its header and its message in few pieces."""

from ottla.model.limits import INT32_MAX
from ottla.wire.codec import encode_chunks, native_codec
from ottla.wire.codec_types import Chunk, Message
from ottla.wire.headers import answer_head_bytes, answer_start
from ottla.wire.native_codec import ABSENT, UNUSUAL


def encode_answer(message: Message, api_key: int, version: int, correlation_id: int) -> list[Chunk]:
    """Write the frame of an answer; it is one piece if there are no records in it.

    Raises as `encode` does.
    """
    native = native_codec(message.__class__)
    if native is not ABSENT:
        try:
            return native.encode(
                message, version, answer_head_bytes(api_key, version), correlation_id
            )
        except UNUSUAL:  # the codec decides, and names what is wrong
            pass
    return framed_answer(encode_chunks(message, version), api_key, version, correlation_id)


def framed_answer(
    body: list[Chunk], api_key: int, version: int, correlation_id: int
) -> list[Chunk]:
    """Put the length of the frame and the header in front of a message that is written."""
    first = body[0]
    assert isinstance(first, bytes), "a message begins with bytes of ours"
    if len(body) == 1:
        return [answer_start(api_key, version, correlation_id, len(first)) + first]
    length = sum(map(len, body))
    assert length < INT32_MAX, "a frame's length has 31 bits"
    body[0] = answer_start(api_key, version, correlation_id, length) + first
    return body
