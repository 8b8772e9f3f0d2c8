"""Encoding of the user data that sticky assignors exchange, as in the Java client.

Pure. The user data of `sticky` contains a member's former partitions and their generation. The user
data of `cooperative-sticky` contains only the generation, since the subscription itself contains
the partitions (KIP-429). Newer versions of the subscription contain both (KIP-792). The user data
is still sent, for members that read only older versions.
"""

import struct
from collections.abc import Iterable

from ottla.model.ids import TopicPartition

NO_GENERATION = -1
INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")


def sticky_user_data(owned: Iterable[TopicPartition], generation_id: int) -> bytes:
    """Encode the former partitions of a member and the generation in which it owned them."""
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
    """Encode the generation in which a member owned its partitions."""
    return INT32.pack(generation_id)


def read_sticky_user_data(
    data: bytes | memoryview | None,
) -> tuple[tuple[TopicPartition, ...], int] | None:
    """Decode user data of the `sticky` assignor. Returns the former partitions of a member and the
    generation in which it owned them.

    Returns None if there is no user data, or if it is malformed, since assignors of other clients
    may use another format.
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
                return None  # a negative count would move `at` backwards, once per topic
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
        # The first version of the format ends here, without a generation.
        generation_id = INT32.unpack_from(data, at)[0] if at < len(data) else NO_GENERATION
    except (struct.error, UnicodeDecodeError):
        return None
    return tuple(found), generation_id


def read_cooperative_user_data(data: bytes | memoryview | None) -> int:
    """Decode user data of the `cooperative-sticky` assignor. Returns the generation in which the
    member owned its former partitions."""
    if data is None or len(data) < INT32.size:
        return NO_GENERATION
    found: int = INT32.unpack_from(data)[0]
    return found
