"""Records survive both ways between our builder and scanner and two independent clients."""

from collections.abc import Sequence
from contextlib import suppress

import pytest
from aiokafka.record.default_records import (
    DefaultRecordBatch as AiokafkaBatch,
)
from aiokafka.record.default_records import (
    DefaultRecordBatchBuilder as AiokafkaBuilder,
)
from aiokafka.record.default_records import (
    _DefaultRecordBatchPy as AiokafkaPureBatch,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from ottla.model.errors import CorruptDataError
from ottla.model.ids import Offset
from ottla.model.limits import BATCH_HEADER_BYTES
from ottla.wire.batch import parse_header
from ottla.wire.batch_builder import BatchBuilder, build_batch
from ottla.wire.compression import Codec
from ottla.wire.records import Record, scan
from tests.search_length import length

Row = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

TIMESTAMPS = st.integers(0, 1 << 45)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)
ROWS = st.lists(
    st.tuples(
        TIMESTAMPS,
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=200),
        HEADERS.map(tuple),
    ),
    min_size=1,
    max_size=12,
)
CODECS = st.sampled_from(list(Codec))


def built(rows: Sequence[Row], codec: Codec) -> bytes:
    builder = BatchBuilder()
    for timestamp_ms, key, value, headers in rows:
        builder.append(timestamp_ms, key, value, headers)
    return builder.build(codec=codec, base_offset=Offset(10))


def scanned(batch: bytes) -> list[Record]:
    return list(scan(batch, 0, parse_header(batch)))


def rows_of(batch: bytes) -> list[Row]:
    return [(r.timestamp_ms, r.key, r.value, r.headers) for r in scanned(batch)]


@given(ROWS, CODECS)
def test_what_was_built_is_what_is_scanned(rows: list[Row], codec: Codec) -> None:
    batch = built(rows, codec)
    assert rows_of(batch) == rows
    assert [record.offset for record in scanned(batch)] == list(range(10, 10 + len(rows)))


@given(ROWS, CODECS)
@settings(deadline=None)
def test_both_clients_read_what_we_build(rows: list[Row], codec: Codec) -> None:
    batch = built(rows, codec)
    for reader in (KafkaPythonBatch, AiokafkaBatch, AiokafkaPureBatch):
        parsed = reader(batch)
        assert parsed.validate_crc()
        assert [
            (r.offset, r.timestamp, r.key, r.value, tuple((n, c) for n, c in r.headers))
            for r in parsed
        ] == [(10 + index, *row) for index, row in enumerate(rows)]


@given(ROWS, CODECS, st.sampled_from([KafkaPythonBuilder, AiokafkaBuilder]))
@settings(deadline=None)
def test_we_read_what_both_clients_build(
    rows: list[Row], codec: Codec, builder_class: type[KafkaPythonBuilder]
) -> None:
    builder = builder_class(
        magic=2,
        compression_type=int(codec),
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for offset, (timestamp_ms, key, value, headers) in enumerate(rows):
        builder.append(offset, timestamp_ms, key, value, list(headers))
    assert rows_of(bytes(builder.build())) == rows


@pytest.mark.parametrize("codec", list(Codec))
def test_large_batches_survive_every_codec(codec: Codec) -> None:
    rows: list[Row] = [(i, b"key-%d" % i, b"value " * (i % 300), ()) for i in range(2_000)]
    batch = built(rows, codec)
    assert rows_of(batch) == rows
    assert [record.value for record in AiokafkaBatch(batch)] == [row[2] for row in rows]


@given(ROWS, CODECS, st.data())
@settings(max_examples=length(100, 300))
def test_a_flipped_bit_gives_records_or_our_error(
    rows: list[Row], codec: Codec, data: st.DataObject
) -> None:
    batch = bytearray(built(rows, codec))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(BATCH_HEADER_BYTES - 4, len(batch) - 1))
        batch[at] ^= 1 << data.draw(st.integers(0, 7))
    with suppress(CorruptDataError):
        list(scan(batch, 0, parse_header(batch), limit_bytes=1 << 20))


def body_with(body: bytes, record_count: int = 1) -> bytes:
    """A batch with that body, whatever it says."""
    whole = bytearray(build_batch([(0, b"k", b"v")])[:BATCH_HEADER_BYTES] + body)
    whole[8:12] = (len(whole) - 12).to_bytes(4, "big")
    whole[57:61] = record_count.to_bytes(4, "big", signed=True)
    return bytes(whole)


@pytest.mark.parametrize(
    ("body", "record_count"),
    [
        (bytes([14, 0, 0, 0, 1, 1, 0, 99]), 1),  # a byte after the last record's last field
        (bytes([12, 0, 0, 0, 1, 1, 0, 99]), 1),  # a byte after the last record
        (bytes([12, 0, 0, 0, 1, 1, 0]), 2),  # one record too few
        (bytes([12, 0, 0, 0, 1, 1, 0]), -1),
        (bytes([12, 0, 0, 0, 1, 8, 0]), 1),  # a value that leaves its record
        (bytes([12, 0, 0, 0, 8, 1, 0]), 1),  # a key that leaves its record
        (bytes([12, 0, 0, 2, 1, 1, 0]), 1),  # an offset beyond the header's last one
        (bytes([12, 0, 0, 1, 1, 1, 0]), 1),  # an offset before the header's first one
        (bytes([12, 0, 0, 0, 3, 1, 0]), 1),  # a length of -2
        (bytes([12, 0, 0, 0, 1, 1, 1]), 1),  # a negative count of headers
        (bytes([16, 0, 0, 0, 1, 1, 2, 1, 1]), 1),  # a header without a name
        (bytes([18, 0, 0, 0, 1, 1, 2, 2, 0xFF, 1]), 1),  # a name that is not UTF-8
        (b"\xff" * 12, 1),  # a varint without an end
    ],
)
def test_a_field_that_lies_is_corrupt(body: bytes, record_count: int) -> None:
    with pytest.raises(CorruptDataError):
        scanned(body_with(body, record_count))


def test_the_smallest_record_is_read() -> None:
    (record,) = scanned(body_with(bytes([12, 0, 0, 0, 1, 1, 0])))
    assert (record.key, record.value, record.headers) == (None, None, ())


def test_a_batch_that_is_not_all_there_is_corrupt() -> None:
    batch = build_batch([(0, b"k", b"v")])
    with pytest.raises(CorruptDataError):
        list(scan(batch[:-1], 0, parse_header(batch)))
