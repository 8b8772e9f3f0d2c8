"""Message sets of v0 and v1 as independent clients write them."""

from contextlib import suppress

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonBuilder

from ottla.model.errors import CorruptDataError
from ottla.wire.compression import Codec
from ottla.wire.legacy import magic_at, messages, shallow_messages

ROWS = [(1_000 + i, b"k%d" % i if i % 2 else None, b"v" * i if i else None) for i in range(4)]


def built(magic: int, codec: Codec, builder_class: type = KafkaPythonBuilder) -> bytes:
    builder = builder_class(magic=magic, compression_type=int(codec), batch_size=1 << 16)
    for offset, (timestamp_ms, key, value) in enumerate(ROWS):
        builder.append(offset, timestamp_ms, key, value)
    return bytes(builder.build())


@pytest.mark.parametrize("builder_class", [KafkaPythonBuilder, AiokafkaBuilder])
@pytest.mark.parametrize(
    ("magic", "codec"),
    [
        (0, Codec.NONE),
        (0, Codec.GZIP),
        (0, Codec.SNAPPY),
        (1, Codec.NONE),
        (1, Codec.GZIP),
        (1, Codec.SNAPPY),
        (1, Codec.LZ4),
    ],
)
def test_what_clients_wrote_is_read(magic: int, codec: Codec, builder_class: type) -> None:
    data = bytearray(built(magic, codec, builder_class))
    if magic == 1 and codec is not Codec.NONE:
        data[0:8] = (3).to_bytes(8, "big")  # as the leader does when it appends
    read = list(messages(data))
    assert [m.offset for m in read] == [0, 1, 2, 3]
    assert [(m.key, m.value) for m in read] == [row[1:] for row in ROWS]
    assert [m.timestamp_ms for m in read] == ([row[0] for row in ROWS] if magic else [-1] * 4)
    assert magic_at(data) == magic


def test_the_wrapper_says_the_last_offset_of_what_it_wraps() -> None:
    data = bytearray(built(1, Codec.GZIP))
    data[0:8] = (103).to_bytes(8, "big")
    assert [message.offset for message in messages(data)] == [100, 101, 102, 103]
    assert len(list(shallow_messages(data))) == 1


def test_a_flipped_bit_is_noticed() -> None:
    data = built(1, Codec.GZIP)
    for at in range(12, len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        with pytest.raises(CorruptDataError):
            list(messages(damaged))


@given(st.binary(max_size=200))
def test_random_bytes_give_only_our_error(data: bytes) -> None:
    with suppress(CorruptDataError):
        list(messages(data))
