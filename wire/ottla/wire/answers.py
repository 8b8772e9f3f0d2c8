"""Encoder of a response as a frame: its length, its header and its message, in few chunks. Pure."""

from ottla.model.limits import INT32_MAX
from ottla.wire.codec import encode_chunks, native_codec
from ottla.wire.codec_types import Chunk, Message
from ottla.wire.headers import answer_head_bytes, answer_start
from ottla.wire.native_codec import ABSENT, UNUSUAL


def encode_answer(message: Message, api_key: int, version: int, correlation_id: int) -> list[Chunk]:
    """Encode a response as a frame, and return its chunks. It is a single chunk if the response has
    no records.

    Raises the errors of `encode`.
    """
    native = native_codec(message.__class__)
    if native is not ABSENT:
        try:
            return native.encode(
                message, version, answer_head_bytes(api_key, version), correlation_id
            )
        except UNUSUAL:  # the generic codec decides, and names the error
            pass
    return framed_answer(encode_chunks(message, version), api_key, version, correlation_id)


def framed_answer(
    body: list[Chunk], api_key: int, version: int, correlation_id: int
) -> list[Chunk]:
    """Return the chunks of a response's frame: frame length, response header and the encoded
    message in `body`."""
    first = body[0]
    assert isinstance(first, bytes), "a message begins with bytes of ours"
    if len(body) == 1:
        return [answer_start(api_key, version, correlation_id, len(first)) + first]
    length = sum(map(len, body))
    assert length < INT32_MAX, "a frame's length has 31 bits"
    body[0] = answer_start(api_key, version, correlation_id, length) + first
    return body
