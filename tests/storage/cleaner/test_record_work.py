"""The numpy implementation of the work per record has the same results as the plain one."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.model.errors import CorruptDataError
from ottla.model.ids import Offset
from ottla.storage.cleaner.array_offset_map import ArrayOffsetMap, KeyHasher
from ottla.storage.cleaner.array_record_work import ArrayRecordWork
from ottla.storage.cleaner.batch_bodies import runs_of
from ottla.storage.cleaner.batch_rewrite import kept_bytes
from ottla.storage.cleaner.offset_map import SLOT_BYTES, SlotTable, keyed_digest
from ottla.storage.cleaner.record_work import (
    KeepRule,
    PlainRecordWork,
    RecordWork,
    placed_records,
)
from ottla.wire.batch import batches
from ottla.wire.batch_builder import BatchBuilder
from ottla.wire.compression import Codec
from ottla.wire.records import Body, scan_body
from tests.search_length import length

KEYS = st.one_of(st.none(), st.sampled_from([b"a", b"b", b"cc", b""]), st.binary(max_size=300))
RECORDS = st.lists(
    st.tuples(
        st.integers(-1, 1 << 45),
        KEYS,
        st.one_of(st.none(), st.binary(max_size=40)),
        st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=3)), max_size=2),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=40,
)
BATCHES = st.lists(
    st.tuples(RECORDS, st.sampled_from(list(Codec)), st.booleans()), min_size=1, max_size=6
)
Batch = tuple[
    list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes]], int]], Codec, bool
]


def data_of(some: list[Batch]) -> bytes:
    data = bytearray()
    offset = 0
    for records, codec, is_append_time in some:
        builder = BatchBuilder()
        delta = -1
        for timestamp_ms, key, value, headers, step in records:
            delta += step
            builder.append(timestamp_ms, key, value, headers, offset_delta=delta)
        data += builder.build(
            codec=codec,
            base_offset=Offset(offset),
            log_append_time_ms=5 if is_append_time else None,
        )
        offset += delta + 1
    return bytes(data)


def works(slot_count: int) -> list[RecordWork]:
    memory_bytes = slot_count * SLOT_BYTES
    hasher = KeyHasher(1)
    return [
        PlainRecordWork(SlotTable(memory_bytes, 0.9, keyed_digest(1))),
        ArrayRecordWork(ArrayOffsetMap(memory_bytes, 0.9, hasher, 1 << 20), hasher),
    ]


@settings(max_examples=length(50, 150))
@given(
    some=BATCHES,
    slot_count=st.sampled_from([3, 5, 12, 1_000]),
    first=st.integers(0, 60),
    end=st.integers(20, 250),
    log_start=st.integers(0, 40),
)
def test_arrays_and_plain_work_agree(
    some: list[Batch], slot_count: int, first: int, end: int, log_start: int
) -> None:
    data = data_of(some)
    runs = list(runs_of(data, batches(data)))
    plain, arrays = works(slot_count)
    clean_to = end
    for run in runs:
        indexed = [work.index(run, first, end) for work in (plain, arrays)]
        assert indexed[0] == indexed[1]
        assert plain.map.count == arrays.map.count
        if indexed[0].full_at is not None:
            clean_to = indexed[0].full_at
            break
    rule = KeepRule(log_start, clean_to, 1_000)
    for run in runs:
        assert plain.select_kept(run, rule) == arrays.select_kept(run, rule)


@given(some=BATCHES, at=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_damaged_records_are_refused_by_both_or_read_alike_by_both(
    some: list[Batch], at: int, byte: int
) -> None:
    data = data_of([(records, Codec.NONE, False) for records, _, _ in some])
    (run,) = runs_of(data, batches(data))
    damaged = bytearray(data)
    body = run[at % len(run)]
    damaged[body.start + at % body.size_bytes] = byte
    bodies = [Body(one.header, bytes(damaged), one.start, one.end) for one in run]
    same = [bodies[0], *(one._replace(data=bodies[0].data) for one in bodies[1:])]
    answers: list[object] = []
    for work in works(1_000):
        try:
            work.index(same, 0, 1 << 40)
            answers.append(work.select_kept(same, KeepRule(0, 1 << 40, 0)))
        except CorruptDataError as error:
            if "UTF-8" in error.where:
                return  # the arrays do not look at names of headers
            answers.append("corrupt")
    assert answers[0] == answers[1]


@given(some=BATCHES)
def test_kept_ranges_are_the_records_own_bytes(some: list[Batch]) -> None:
    data = data_of(some)
    for run in runs_of(data, batches(data)):
        for work in works(1_000):
            work.index(run, 0, 1 << 40)
            for body, kept in zip(run, work.select_kept(run, KeepRule(0, 1 << 40, 0)), strict=True):
                records = kept_bytes(body, kept.ranges)
                header = body.header._replace(record_count=kept.kept_count)
                found = list(scan_body(records, header))
                places = {(start, end): record for record, start, end in placed_records(body)}
                assert set(found) <= set(places.values())
                assert all(record.key is not None for record in found)
