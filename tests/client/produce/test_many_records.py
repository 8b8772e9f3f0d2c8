"""Records of one call are encoded, partitioned and reported as single ones are."""

import random
from typing import Any

import pytest

from ottla.client.produce.accumulator import Accumulator, ProducerIdentity
from ottla.client.produce.many_records import ManyRecordsRun, SentPart, SentRecords, chunks
from ottla.client.produce.partition_queue import BatchOutcome, NotDeliveredError
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import ProducerId, TopicPartition
from ottla.model.settings.client import ProducerConfig
from ottla.wire.batch import parse_header
from ottla.wire.batch_builder import BatchBuilder
from ottla.wire.records import scan

AT = TopicPartition("t", 0)
SIZES = (0, 1, 55, 56, 57, 63, 64, 100, 8_180, 8_200)


def records(count: int, *, with_keys: bool, seed: int) -> tuple[Any, list[bytes | None]]:
    chance = random.Random(seed)
    values: list[bytes | None] = [chance.randbytes(chance.choice(SIZES)) for _ in range(count)]
    if not with_keys:
        return None, values
    values[0] = None
    return [chance.choice((None, b"", b"key", bytes(70))) for _ in range(count)], values


@pytest.mark.parametrize("with_keys", [False, True])
@pytest.mark.parametrize("first", [0, 60, 2_040, 8_190])
@pytest.mark.parametrize("stamps", [(5, 5), (5, 90_000), (90_000, 5)])
def test_records_of_a_run_are_the_bytes_of_single_ones(
    with_keys: bool, first: int, stamps: tuple[int, int]
) -> None:
    keys, values = records(100, with_keys=with_keys, seed=first)
    single, together = BatchBuilder(), BatchBuilder()
    for builder in (single, together):
        for _ in range(first):
            builder.append(stamps[0], None, b"")
    for index, value in enumerate(values):
        single.append(stamps[1], keys and keys[index], value)
    run = ManyRecordsRun(keys, values)
    while room_bytes := run.next_bytes:
        delta = together.timestamp_delta(stamps[1])
        taken = run.take(max(room_bytes, 9_000), together.next_delta, delta)
        assert len(taken.body) <= max(room_bytes, 9_000)
        together.extend(stamps[1], taken.body, taken.record_count)
    assert together.build() == single.build()


def test_records_are_checked_and_refused_by_their_number() -> None:
    mixed: Any = [b"a", (b"k", None), bytearray(b"c")]
    (chunk,) = chunks(mixed, 100, 1_000)
    assert chunk == (0, [None, b"k", None], [b"a", None, b"c"])
    refused: list[tuple[Any, type[Exception], str]] = [
        ([b"a", "b"], TypeError, r"records\[1\] is"),
        ([b"a", (b"k",)], TypeError, r"records\[1\] has 1 parts"),
        ([b"a", (1, b"v")], TypeError, r"the key of records\[1\]"),
        ([b"a", bytes(1_000)], RefusedError, r"records\[1\] takes"),
        (b"one", TypeError, "one value"),
    ]
    for wrong, error, words in refused:
        with pytest.raises(error, match=words):
            list(chunks(wrong, 100, 1_000))


def test_an_iterator_is_read_a_batchs_worth_at_a_time() -> None:
    read = []

    def source() -> Any:
        for number in range(10):
            read.append(number)
            yield bytes(40)

    found = chunks(source(), 100, 1_000)
    assert next(found).first == 0
    assert len(read) == 3
    assert [chunk.first for chunk in found] == [3, 6, 9]


def gathered_and_sent(count: int) -> tuple[Accumulator, SentRecords]:
    gathered = Accumulator(ProducerConfig(linger_ms=0, batch_bytes=1_000))
    gathered.become(ProducerIdentity(ProducerId(7), 0))
    run, sent = ManyRecordsRun(None, [bytes(100)] * count), SentRecords(9)
    while run.next_bytes:
        before = run.taken_count
        gathered.extend(AT, 9, run, 9)
        batch, taken = gathered.newest(AT), run.taken_count - before
        sent._add(SentPart(batch, batch.record_count - taken, range(before, run.taken_count)))
    return gathered, sent


def test_reports_are_of_batches_also_of_those_that_were_split() -> None:
    gathered, sent = gathered_and_sent(12)
    (first,) = gathered.drain([AT], 9)
    assert gathered.on_answer(first, ErrorCode.MESSAGE_TOO_LARGE, None, 9) is BatchOutcome.SPLIT
    base = 0
    while found := gathered.drain([AT], 9_000):
        assert not sent.is_settled
        for batch in found:
            records = list(scan(batch.encoded or b"", 0, parse_header(batch.encoded or b"")))
            gathered.on_acknowledged(batch, base_offset=base)
            base += len(records) + 5
    reported = sent.result()
    assert [position for batch in reported for position in batch.positions] == list(range(12))
    assert len({batch.offset for batch in reported}) == len(reported) == 3
    assert sent.failures == {}
    assert gathered.buffered_bytes == 0


def test_failures_are_reported_by_the_records_numbers() -> None:
    gathered, sent = gathered_and_sent(12)
    (first,) = gathered.drain([AT], 9)
    gathered.on_answer(first, ErrorCode.INVALID_RECORD, None, 9, record_errors={2: "bad"})
    assert gathered.is_identity_due
    gathered.become(ProducerIdentity(ProducerId(7), 1))
    while found := gathered.drain([AT], 9_000):
        for batch in found:
            gathered.on_acknowledged(batch, base_offset=0)
    assert sent.is_settled
    assert set(sent.failures) == set(range(len(sent.failures))) < set(range(12))
    assert [at for at, why in sent.failures.items() if not why.is_due_to_another] == [2]
    with pytest.raises(NotDeliveredError):
        sent.result()
