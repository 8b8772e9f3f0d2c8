"""Records that a batch gathers and encodes together are as if each had been encoded at once."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.client.produce import partition_queue
from ottla.client.produce.accumulator import record_bytes
from ottla.client.produce.many_records import ManyRecordsRun
from ottla.client.produce.partition_queue import ProducerBatch
from ottla.client.produce.record_encoding import encode_each, encode_plain
from ottla.model.ids import TopicPartition
from ottla.wire.batch_builder import BatchBuilder, EncodedHeaders, Headers, encode_headers, varint

AT = TopicPartition("t", 0)
SMALL = st.one_of(st.none(), st.binary(max_size=80))
HEADERS = st.sampled_from(((), [("a", b"1")], encode_headers([("ä", None)])))
RECORDS = st.lists(st.tuples(st.integers(5, 7), SMALL, SMALL, HEADERS), min_size=1, max_size=90)


@given(records=RECORDS, encoded_at=st.sets(st.integers(0, 90)), run_at=st.integers(-1, 90))
def test_a_batch_is_what_its_records_make_one_by_one(
    records: list[tuple[int, bytes | None, bytes | None, Headers | EncodedHeaders]],
    encoded_at: set[int],
    run_at: int,
) -> None:
    gathered, single = ProducerBatch(AT, 0, 0), BatchBuilder()
    for number, (timestamp_ms, key, value, headers) in enumerate(records):
        charge = record_bytes(key, value, headers)
        gathered.append(timestamp_ms, key, value, headers, charge)
        single.append(timestamp_ms, key, value, headers)
        if number == run_at:
            gathered.extend(9, ManyRecordsRun([key], [value]), 1_000)
            single.append(9, key, value)
        if number in encoded_at:
            gathered.encode_gathered()
            assert gathered.size_bytes == single.size_bytes
        assert gathered.size_bytes >= single.size_bytes
        assert gathered.record_count == single.record_count

    gathered.encode_gathered()
    assert gathered.size_bytes == single.size_bytes
    assert gathered.builder.build() == single.build()


@given(size=st.integers(0, 200), count=st.integers(2, 200), before=st.integers(0, 70))
def test_values_of_one_size_are_encoded_as_each_would_be(
    size: int, count: int, before: int
) -> None:
    gathered, single = ProducerBatch(AT, 0, 0), BatchBuilder()
    for number in range(before + count):
        value = bytes([number % 256]) * size
        gathered.append(5, None, value, (), record_bytes(None, value, ()))
        single.append(5, None, value)
        if number == before:
            gathered.encode_gathered()

    gathered.encode_gathered()
    assert gathered.builder.build() == single.build()


@given(
    groups=st.lists(
        st.tuples(
            st.sampled_from((0, 5, 60, 2_000, 2_040, 8_190)),  # around the bounds of a width
            st.integers(1, 70),
            st.sampled_from((0, 3, 300)),
            st.sampled_from((0, 1, 90)),
        ),
        min_size=1,
        max_size=4,
    ),
    is_alike=st.booleans(),
)
def test_values_are_encoded_alike_wherever_they_are_in_a_batch(
    groups: list[tuple[int, int, int, int]], is_alike: bool
) -> None:
    for delta, count, since_ms, size in groups:
        values: list[bytes | None] = [b"v" * size for _ in range(count)]
        if not is_alike:
            values[-1] = b"longer"
        stamp = varint(since_ms)
        none: list[bytes | None] = [None] * count
        assert encode_plain(values, delta, stamp) == encode_each(none, values, delta, stamp)


def test_a_plain_record_just_joins_none_but_its_like() -> None:
    batch = ProducerBatch(AT, 0, 0)
    assert batch.plain_ms == -1
    batch.append(5, None, b"x", (), 27)
    assert batch.plain_ms == 5
    batch.append(5, b"k", b"x", (), 28)
    assert batch.plain_ms == -1, "its key would be missing among the keys"
    batch.encode_gathered()
    batch.append(6, None, b"x", (), 27)
    assert batch.plain_ms == 6
    batch.close()
    assert batch.plain_ms == -1


def test_what_gathers_is_bounded_and_let_go() -> None:
    batch = ProducerBatch(AT, 0, 0)
    for _ in range(3):
        batch.append(5, None, b"x", (), 27)
    assert batch.values == [b"x"] * 3
    batch.forget_records()
    assert not batch.values
    assert batch.builder is partition_queue.NO_RECORDS
