"""The v2 header: read, patched and checked, against the batches of independent clients."""

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

from ottla.model.errors import CorruptDataError
from ottla.model.ids import Epoch, Offset, ProducerId
from ottla.model.limits import BATCH_HEADER_BYTES
from ottla.wire.batch import (
    TimestampType,
    batches,
    check_crc,
    parse_header,
    patch_in_place,
    patch_log_append_time,
    patched_header,
    patched_prefix,
)
from ottla.wire.batch_builder import (
    BatchBuilder,
    ControlType,
    build_batch,
    build_control_batch,
    build_end_transaction_marker,
    encode_headers,
)
from ottla.wire.compression import Codec
from ottla.wire.records import scan

BATCH = build_batch([(1_000, b"k", b"v"), (1_007, None, b"w"), (990, b"k", None)])


def test_a_header_has_the_values_of_the_builder() -> None:
    batch = build_batch(
        [(5, b"a", b"b"), (9, b"c", b"d")],
        codec=Codec.ZSTD,
        base_offset=Offset(40),
        leader_epoch=Epoch(3),
        producer_id=ProducerId(77),
        producer_epoch=2,
        base_sequence=(1 << 31) - 1,
        is_transactional=True,
    )
    header = parse_header(batch)
    assert header.size_bytes == len(batch)
    assert (header.base_offset, header.last_offset, header.end_offset) == (40, 41, 42)
    assert header.partition_leader_epoch == 3
    assert (header.base_timestamp, header.max_timestamp) == (5, 9)
    assert (header.producer_id, header.producer_epoch) == (77, 2)
    assert header.last_sequence == 0  # sequences wrap after 2^31 - 1
    assert header.codec == Codec.ZSTD
    assert header.is_transactional
    assert not header.is_control
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert header.delete_horizon_ms is None


def test_without_a_sequence_there_is_no_last_sequence() -> None:
    assert parse_header(BATCH).last_sequence == -1


def test_patching_base_offset_and_epoch_keeps_the_crc_valid() -> None:
    buffer = bytearray(b"\xff" * 5 + BATCH)
    patch_in_place(buffer, 5, base_offset=Offset(1 << 40), leader_epoch=Epoch(9))
    header = parse_header(buffer, 5)
    assert (header.base_offset, header.partition_leader_epoch) == (1 << 40, 9)
    assert check_crc(buffer, 5, header)
    assert buffer[:5] == b"\xff" * 5


def test_a_gathered_prefix_is_the_same_patch() -> None:
    buffer = bytearray(BATCH)
    patch_in_place(buffer, 0, base_offset=Offset(8), leader_epoch=Epoch(2))
    prefix = patched_prefix(parse_header(BATCH), base_offset=Offset(8), leader_epoch=Epoch(2))
    assert prefix + BATCH[len(prefix) :] == bytes(buffer)


def test_log_append_time_stamps_every_record_under_a_new_crc() -> None:
    buffer = bytearray(BATCH)
    patch_log_append_time(buffer, 0, now_ms=123_456)
    header = parse_header(buffer)
    assert check_crc(buffer, 0, header)
    assert header.crc != parse_header(BATCH).crc
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp_ms for record in scan(buffer, 0, header)] == [123_456] * 3
    assert [record.timestamp for record in KafkaPythonBatch(buffer)] == [123_456] * 3


def test_a_gathered_log_append_time_header_is_the_same_patch() -> None:
    buffer = bytearray(BATCH)
    patch_in_place(buffer, 0, base_offset=Offset(8), leader_epoch=Epoch(2))
    patch_log_append_time(buffer, 0, now_ms=55)
    patched = patched_header(
        BATCH, 0, base_offset=Offset(8), leader_epoch=Epoch(2), log_append_time_ms=55
    )
    assert patched + BATCH[BATCH_HEADER_BYTES:] == bytes(buffer)


def test_every_flipped_bit_under_the_crc_is_noticed() -> None:
    for at in range(21, len(BATCH)):
        for bit in range(8):
            damaged = bytearray(BATCH)
            damaged[at] ^= 1 << bit
            assert not check_crc(damaged, 0, parse_header(damaged))


def test_batches_follow_each_other_by_their_lengths() -> None:
    second = build_batch([(1, None, b"x" * 300)], base_offset=Offset(3))
    assert [(at, header.base_offset) for at, header in batches(BATCH + second)] == [
        (0, 0),
        (len(BATCH), 3),
    ]


@pytest.mark.parametrize("kept", [1, BATCH_HEADER_BYTES - 1, BATCH_HEADER_BYTES, len(BATCH) - 1])
def test_a_cut_last_batch_is_corrupt_unless_a_fetch_may_cut_it(kept: int) -> None:
    data = BATCH + BATCH[:kept]
    with pytest.raises(CorruptDataError):
        list(batches(data))
    assert [at for at, _ in batches(data, is_partial_end_allowed=True)] == [0]


@pytest.mark.parametrize(
    ("at", "value"), [(16, 1), (16, 3), (11, 48), (8, 0x80)], ids=["v1", "v3", "short", "negative"]
)
def test_a_header_that_cannot_be_is_corrupt(at: int, value: int) -> None:
    damaged = bytearray(BATCH)
    damaged[8:12] = (100).to_bytes(4, "big")
    damaged[at] = value
    with pytest.raises(CorruptDataError):
        parse_header(damaged)


@given(st.binary(max_size=200))
def test_random_bytes_give_only_our_error(data: bytes) -> None:
    try:
        for at, header in batches(data):
            check_crc(data, at, header)
            list(scan(data, at, header))
    except CorruptDataError:
        pass


def test_a_control_batch_holds_kafkas_key_and_value() -> None:
    batch = build_control_batch(
        [(ControlType.SNAPSHOT_HEADER, b"head"), (ControlType.KRAFT_VERSION, b"version")],
        timestamp_ms=8,
        leader_epoch=Epoch(4),
    )
    header = parse_header(batch)
    assert header.is_control
    assert not header.is_transactional
    assert check_crc(batch, 0, header)
    assert [(record.key, record.value) for record in scan(batch, 0, header)] == [
        (b"\x00\x00\x00\x03", b"head"),
        (b"\x00\x00\x00\x05", b"version"),
    ]


def test_clients_recognise_our_transaction_markers() -> None:
    marker = build_end_transaction_marker(
        ControlType.ABORT,
        timestamp_ms=8,
        producer_id=ProducerId(5),
        producer_epoch=1,
        coordinator_epoch=Epoch(6),
    )
    batch = KafkaPythonBatch(marker)
    assert batch.is_control_batch
    assert batch.is_transactional
    (record,) = list(batch)
    assert record.abort
    aiokafka_batch = AiokafkaBatch(marker)
    assert aiokafka_batch.is_control_batch
    assert [record.key for record in aiokafka_batch] == [b"\x00\x00\x00\x00"]


def test_a_compacted_batch_keeps_its_gaps() -> None:
    builder = BatchBuilder()
    builder.append(1, b"a", b"1", offset_delta=2)
    builder.append(1, b"b", b"2", offset_delta=7)
    batch = builder.build(base_offset=Offset(100))
    header = parse_header(batch)
    assert header.last_offset == 107
    assert [record.offset for record in scan(batch, 0, header)] == [102, 107]
    assert builder.size_bytes == len(batch)


@given(
    st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=200)), max_size=3),
)
def test_headers_that_are_encoded_beforehand_make_the_same_record(
    headers: list[tuple[str, bytes | None]],
) -> None:
    plain, encoded = BatchBuilder(), BatchBuilder()
    plain.append(7, b"k", None, headers)
    encoded.append(7, b"k", None, encode_headers(headers))

    (record,) = scan(plain.build(), 0, parse_header(plain.build()))
    assert list(record.headers) == headers
    assert encoded.build() == plain.build()


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_runs_of_encoded_records_make_the_same_batch_as_single_records(codec: Codec) -> None:
    """Large runs are joined only when the batch is built, small ones at once."""
    values = [b"a" * 3_000, b"b" * 3_000, b"c", b"d" * 9_000, b"e"]
    single, together = BatchBuilder(), BatchBuilder()
    for value in values:
        single.append(7, None, value)
    for part in (values[:2], values[2:3], values[3:4]):
        before = BatchBuilder()
        for _ in range(together.next_delta):
            before.append(7, None, b"")
        skipped = before.size_bytes
        for value in part:
            before.append(7, None, value)
        together.extend(7, before.build()[skipped:], len(part))
    together.append(7, None, values[4])

    assert together.size_bytes == single.size_bytes
    assert together.build(codec=codec) == single.build(codec=codec)
    assert together.build() == single.build()
