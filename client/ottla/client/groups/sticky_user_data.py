"""What sticky assignors tell each other of the past, in the bytes of the Java client's.

Pure.  `sticky` says what a member had and in which generation; `cooperative-sticky` says only the
generation, since what it has stands in the subscription itself (KIP-429).  Those who read newer
subscriptions find both there too (KIP-792); these bytes are for those who do not.
"""

import struct
from collections.abc import Iterable

from ottla.model.ids import TopicPartition

NO_GENERATION = -1
INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")


def sticky_user_data(owned: Iterable[TopicPartition], generation_id: int) -> bytes:
    """Return what a member had, and when."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in owned:
        by_topic.setdefault(topic, []).append(index)
    out = bytearray(INT32.pack(len(by_topic)))
    for topic, indexes in by_topic.items():
        name = topic.encode()
        out += INT16.pack(len(name)) + name
        out += struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)
    return bytes(out + INT32.pack(generation_id))


def cooperative_user_data(generation_id: int) -> bytes:
    """Return when a member had what its subscription says."""
    return INT32.pack(generation_id)


def read_sticky_user_data(
    data: bytes | memoryview | None,
) -> tuple[tuple[TopicPartition, ...], int] | None:
    """Return what a member had and when; None where the bytes say neither.

    They come from other people's assignors: what cannot be read is as if nothing had been said.
    """
    if not data:
        return None
    found: list[TopicPartition] = []
    try:
        (topic_count,), at = INT32.unpack_from(data), INT32.size
        for _ in range(topic_count):
            (length,) = INT16.unpack_from(data, at)
            at += INT16.size
            if length < 0:
                return None  # it would lead back, as often as the count of topics says
            name = bytes(data[at : at + length]).decode()
            at += length
            (count,) = INT32.unpack_from(data, at)
            at += INT32.size
            if count < 0 or count * INT32.size > len(data) - at:
                return None
            found += [
                TopicPartition(name, index) for index in struct.unpack_from(f">{count}i", data, at)
            ]
            at += count * INT32.size
        # The first version of these bytes ended here.
        generation_id = INT32.unpack_from(data, at)[0] if at < len(data) else NO_GENERATION
    except (struct.error, UnicodeDecodeError):
        return None
    return tuple(found), generation_id


def read_cooperative_user_data(data: bytes | memoryview | None) -> int:
    """Return the generation in which a member had what its subscription says."""
    if data is None or len(data) < INT32.size:
        return NO_GENERATION
    found: int = INT32.unpack_from(data)[0]
    return found
