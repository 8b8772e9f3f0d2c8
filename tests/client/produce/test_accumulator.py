"""Batches of many partitions without a socket: when they are sent, retried and failed."""

from collections.abc import Iterable

import pytest

from ottla.client.produce.accumulator import (
    FILLED_SHARE,
    Accumulator,
    ProducerIdentity,
    record_bytes,
)
from ottla.client.produce.partition_queue import NUMBERING_ERRORS, BatchOutcome, ProducerBatch
from ottla.model.errors import ErrorCode, RefusedError, row_of
from ottla.model.ids import ProducerId, TopicPartition
from ottla.model.settings.client import ProducerConfig
from ottla.wire.batch import BatchHeader, parse_header
from ottla.wire.records import scan

AT = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
BOTH = (AT, OTHER)
IDENTITY = ProducerIdentity(ProducerId(7), 0)
LONG_AGO_MS = 0
WALL_MS = [0]
"""Wall-clock time of the accumulators, in ms."""


def accumulator(*, is_known: bool = True, **settings: object) -> Accumulator:
    """Return an accumulator whose leaders know the producer: one record of each partition was
    accepted."""
    made = Accumulator(ProducerConfig(**{"linger_ms": 10, "batch_bytes": 1_000, **settings}))  # type: ignore[arg-type]
    made.use_clock(lambda: WALL_MS[0] / 1_000)
    made.burst_left = 1_000
    if made._config.enable_idempotence:
        made.become(IDENTITY)
        for at in BOTH if is_known else ():
            put(made, at=at, now_ms=LONG_AGO_MS)
            (batch,) = made.drain([at], 1_000)
            made.on_acknowledged(batch, base_offset=0)
    return made


def put(
    gathered: Accumulator, *, at: TopicPartition = AT, count: int = 1, now_ms: int = 0
) -> ProducerBatch:
    for _ in range(count):
        batch, _ = gathered.append(at, now_ms, None, b"x" * 100, (), now_ms)
    return batch


def header_of(batch: ProducerBatch) -> BatchHeader:
    assert batch.encoded is not None
    return parse_header(batch.encoded)


def in_flight(gathered: Accumulator, count: int) -> list[ProducerBatch]:
    """Send `count` batches of one partition, one after the other."""
    found = []
    for _ in range(count):
        put(gathered, now_ms=LONG_AGO_MS)
        found += gathered.drain(BOTH, 1_000)
    return found


def sequences(batches: Iterable[ProducerBatch]) -> list[int]:
    return [batch.base_sequence for batch in batches]


def test_a_batch_leaves_when_it_has_lingered() -> None:
    gathered = accumulator()
    batch = put(gathered, now_ms=100)

    assert gathered.drain(BOTH, 109) == []
    assert gathered.next_look_ms(100) == 110
    assert gathered.drain(BOTH, 110) == [batch]


def test_a_full_batch_leaves_at_once_and_the_next_one_gathers() -> None:
    gathered = accumulator()
    put(gathered, count=10)

    (batch,) = gathered.drain(BOTH, 0)

    assert 600 < len(batch.encoded or b"") <= 1_000
    assert gathered.drain(BOTH, 0) == []


def test_a_batch_with_room_for_few_more_records_is_full() -> None:
    """The last records would be encoded one by one, each after another look at the batch."""
    gathered = accumulator(batch_bytes=10_000)
    first = put(gathered)
    while put(gathered) is first:
        pass

    (batch,) = gathered.drain([AT], 0)

    assert batch is first
    left_bytes = 10_000 - len(batch.encoded or b"")
    assert record_bytes(None, b"x" * 100, ()) <= left_bytes < 10_000 / FILLED_SHARE


def test_flushing_and_want_of_memory_end_the_lingering() -> None:
    flushed, short = accumulator(), accumulator(buffer_bytes_max=200)
    put(flushed)
    put(short)

    assert len(flushed.begin_flush()) == 1
    assert not short.has_room(150)

    assert len(flushed.drain(BOTH, 0)) == len(short.drain(BOTH, 0)) == 1
    flushed.end_flush()
    put(flushed)
    assert flushed.drain(BOTH, 0) == []


def test_memory_is_given_back_when_a_batch_has_settled() -> None:
    gathered = accumulator(buffer_bytes_max=200)
    (batch,) = in_flight(gathered, 1)
    assert not gathered.has_room(150)

    gathered.on_acknowledged(batch, base_offset=5)

    assert gathered.buffered_bytes == 0
    assert gathered.has_room(150)
    assert gathered.has_room(1_000), "a record larger than the whole buffer goes alone"


def test_one_request_holds_one_batch_a_partition_and_no_more_than_its_size() -> None:
    gathered = accumulator(request_bytes_max=1_000)
    put(gathered, at=AT, count=20)
    put(gathered, at=OTHER, count=20)

    first, second = gathered.drain(BOTH, 0), gathered.drain(BOTH, 0)

    assert [batch.partition for batch in first] == [AT]
    assert [batch.partition for batch in second] in ([AT], [OTHER])
    assert gathered.waiting_partitions()[0] == OTHER, "who was served stands behind"


def test_five_batches_are_in_flight_and_are_numbered_in_order() -> None:
    gathered = accumulator()

    batches = in_flight(gathered, 7)

    assert sequences(batches) == [1, 2, 3, 4, 5]
    assert [header_of(batch).base_sequence for batch in batches] == [1, 2, 3, 4, 5]
    assert {header_of(batch).producer_id for batch in batches} == {7}


def test_a_producer_that_is_not_idempotent_keeps_its_order_one_by_one() -> None:
    gathered = accumulator(enable_idempotence=False)

    batches = in_flight(gathered, 3)

    assert len(batches) == 1
    assert header_of(batches[0]).producer_id == -1


def test_nothing_leaves_before_there_is_a_producer_id() -> None:
    gathered = Accumulator(ProducerConfig(linger_ms=0))
    assert not gathered.is_identity_due
    put(gathered)

    assert gathered.is_identity_due
    assert gathered.drain(BOTH, 1_000) == []
    gathered.become(IDENTITY)
    assert len(gathered.drain(BOTH, 1_000)) == 1


def test_a_lost_batch_goes_again_alone_with_its_sequence_before_all_that_followed() -> None:
    gathered = accumulator()
    first, second, third = in_flight(gathered, 3)
    bytes_then = first.encoded
    for batch in (first, second, third):
        assert gathered.on_lost(batch, "cut", 1_000) is BatchOutcome.RETRIED

    assert gathered.drain(BOTH, 1_050) == [], "it backs off"
    assert gathered.drain(BOTH, 1_100) == [first]
    assert first.encoded == bytes_then
    assert gathered.drain(BOTH, 2_000) == []
    gathered.on_acknowledged(first, base_offset=0)
    assert gathered.drain(BOTH, 2_000) == [second]


def test_the_wait_doubles_up_to_its_bound() -> None:
    gathered = accumulator()
    (batch,) = in_flight(gathered, 1)
    now_ms, waits = 1_000, []
    for _ in range(6):
        gathered.on_lost(batch, "cut", now_ms)
        look_ms = gathered.next_look_ms(now_ms)
        assert look_ms is not None
        waits.append(look_ms - now_ms)
        now_ms = look_ms
        assert gathered.drain(BOTH, now_ms) == [batch]
    assert waits == [100, 200, 400, 800, 1_000, 1_000]


def test_a_duplicate_is_delivered_at_an_unknown_offset() -> None:
    gathered = accumulator()
    (batch,) = in_flight(gathered, 1)

    fate = gathered.on_answer(batch, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, None, 1_000)

    assert fate is BatchOutcome.DELIVERED
    assert batch.failure is None
    assert batch.base_offset == -1


def test_what_is_out_of_order_behind_a_lost_batch_waits_for_it() -> None:
    gathered = accumulator()
    first, second = in_flight(gathered, 2)
    gathered.on_answer(first, ErrorCode.NOT_ENOUGH_REPLICAS, None, 1_000)

    fate = gathered.on_answer(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, None, 1_000)

    assert fate is BatchOutcome.RETRIED
    assert not gathered.is_identity_due
    assert gathered.drain(BOTH, 3_000) == [first]
    gathered.on_acknowledged(first)
    assert not gathered.is_identity_due
    assert gathered.drain(BOTH, 3_000) == [second]
    assert sequences([first, second]) == [1, 2]


def test_a_refused_batch_leaves_a_gap_that_a_new_epoch_bridges() -> None:
    gathered = accumulator()
    first, second, third = in_flight(gathered, 3)
    gathered.on_answer(first, ErrorCode.MESSAGE_TOO_LARGE, None, 1_000)
    assert first.failure is not None
    assert not first.failure.may_be_in_log
    gathered.on_answer(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, None, 1_000)
    assert not gathered.is_identity_due, "the third is still numbered under the old epoch"
    assert gathered.drain(BOTH, 3_000) == []
    gathered.on_answer(third, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, None, 1_000)

    assert gathered.is_identity_due
    assert gathered.drain(BOTH, 3_000) == []
    gathered.become(ProducerIdentity(ProducerId(7), 1))

    for expected, batch in enumerate((second, third)):
        assert gathered.drain(BOTH, 5_000) == [batch]
        assert header_of(batch).producer_epoch == 1
        assert header_of(batch).base_sequence == expected
        gathered.on_acknowledged(batch)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    ],
)
def test_a_broker_that_forgot_us_gets_a_new_epoch_but_never_a_second_copy(code: ErrorCode) -> None:
    certain, uncertain = accumulator(), accumulator()
    (batch,) = in_flight(certain, 1)
    assert certain.on_answer(batch, code, None, 1_000) is BatchOutcome.RETRIED
    assert certain.is_identity_due

    (batch,) = in_flight(uncertain, 1)
    uncertain.on_lost(batch, "cut", 1_000)
    uncertain.drain(BOTH, 2_000)
    assert uncertain.on_answer(batch, code, None, 2_000) is BatchOutcome.FAILED
    assert batch.failure is not None
    assert batch.failure.may_be_in_log
    assert uncertain.is_identity_due


def test_other_partitions_finish_under_the_old_epoch_before_the_new_one_begins() -> None:
    gathered = accumulator()
    put(gathered, at=AT)
    put(gathered, at=OTHER)
    first, other = gathered.drain(BOTH, 1_000)
    gathered.on_answer(first, ErrorCode.UNKNOWN_PRODUCER_ID, None, 1_000)
    gathered.on_lost(other, "cut", 1_000)

    assert not gathered.is_identity_due
    assert gathered.drain(BOTH, 2_000) == [other]
    gathered.on_acknowledged(other)
    assert gathered.is_identity_due


def test_a_record_that_was_not_delivered_in_time_has_failed() -> None:
    gathered = accumulator(delivery_timeout_ms=1_000, request_timeout_ms=500)
    never_sent = put(gathered, now_ms=0)
    assert gathered.next_look_ms(500) == 1_000

    assert gathered.expire(999) == []
    assert gathered.expire(1_000) == [never_sent]
    assert never_sent.failure is not None
    assert never_sent.failure.code == ErrorCode.REQUEST_TIMED_OUT
    assert not never_sent.failure.may_be_in_log
    assert gathered.buffered_bytes == 0
    assert not gathered.is_identity_due


def test_one_that_timed_out_says_why_its_last_attempt_was_refused() -> None:
    gathered = accumulator(delivery_timeout_ms=1_000, request_timeout_ms=500)
    put(gathered, now_ms=0)
    (batch,) = gathered.drain(BOTH, 10)
    gathered.on_answer(batch, ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full", 20)

    gathered.expire(1_000)

    assert batch.failure is not None
    assert batch.failure.message == (
        "t-0: not delivered in 1000 ms (1 attempt); the last: KAFKA_STORAGE_ERROR: the disk is full"
    )


def test_one_that_timed_out_after_an_attempt_may_be_there_and_ends_the_epoch() -> None:
    gathered = accumulator(delivery_timeout_ms=1_000, request_timeout_ms=500)
    put(gathered, now_ms=0)
    (batch,) = gathered.drain(BOTH, 10)
    gathered.on_lost(batch, "cut", 900)

    gathered.expire(1_000)

    assert batch.failure is not None
    assert batch.failure.may_be_in_log
    assert gathered.is_identity_due


def test_without_retries_the_first_error_is_the_last() -> None:
    gathered = accumulator(enable_idempotence=False, acks="1", retries=0)
    (batch,) = in_flight(gathered, 1)

    assert gathered.on_lost(batch, "cut", 1_000) is BatchOutcome.FAILED


def test_a_failure_without_a_waiting_task_is_reported_once() -> None:
    gathered = accumulator()
    watched, unseen = in_flight(gathered, 2)
    watched.is_watched = True
    for batch in (watched, unseen):
        gathered.on_answer(batch, ErrorCode.MESSAGE_TOO_LARGE, None, 1_000)

    assert gathered.take_unseen_failure() is unseen.failure
    assert gathered.take_unseen_failure() is None


def test_where_a_failure_ends_all_nothing_that_waits_or_comes_back_leaves_any_more() -> None:
    gathered = Accumulator(
        ProducerConfig(linger_ms=0, delivery_timeout_ms=1_000, request_timeout_ms=500),
        ends_at_failure=True,
    )
    gathered.become(IDENTITY)
    first = put(gathered, now_ms=0)
    (in_flight_elsewhere,) = gathered.drain([AT], 0)
    expiring, younger = put(gathered, at=OTHER, now_ms=1), put(gathered, now_ms=900)

    assert gathered.expire(1_001) == [expiring]

    assert gathered.ended_by is expiring.failure
    assert younger.is_settled
    assert gathered.drain(BOTH, 1_100) == []
    assert in_flight_elsewhere is first
    gathered.on_lost(first, "cut", 1_100)
    assert first.is_settled
    assert gathered.buffered_bytes == 0


def test_what_surely_did_not_leave_counts_as_never_tried() -> None:
    gathered = accumulator()
    first, second = in_flight(gathered, 2)
    gathered.on_unsent(second)
    gathered.on_unsent(first)

    again = [*gathered.drain(BOTH, 1_000), *gathered.drain(BOTH, 1_000)]

    assert again == [first, second]
    assert sequences(again) == [1, 2]
    assert not first.is_uncertain


def test_until_a_leader_knows_the_producer_one_batch_is_in_flight() -> None:
    gathered = accumulator(is_known=False)
    (first,) = in_flight(gathered, 2)
    gathered.on_answer(first, ErrorCode.NOT_ENOUGH_REPLICAS, None, 1_000)

    assert gathered.drain(BOTH, 2_000) == [first], "the next would be taken whatever its sequence"
    gathered.on_acknowledged(first, base_offset=0)
    (second,) = gathered.drain(BOTH, 2_000)
    put(gathered, now_ms=LONG_AGO_MS)
    (third,) = gathered.drain(BOTH, 2_000)
    assert sequences([first, second, third]) == [0, 1, 2]


@pytest.mark.parametrize("code", ErrorCode)
def test_every_code_that_passes_is_tried_again_and_no_other(code: ErrorCode) -> None:
    gathered = accumulator()
    (batch,) = in_flight(gathered, 1)

    fate = gathered.on_answer(batch, code, None, 1_000)

    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        assert fate is BatchOutcome.DELIVERED
    elif code in NUMBERING_ERRORS or row_of(code).is_retriable:
        assert fate is BatchOutcome.RETRIED
    else:
        assert fate is BatchOutcome.FAILED
        assert batch.failure is not None
        assert batch.failure.code is code


def values(batch: ProducerBatch) -> list[bytes | None]:
    assert batch.encoded is not None
    return [record.value for record in scan(batch.encoded, 0, header_of(batch))]


@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE])
def test_a_batch_that_is_too_large_goes_on_as_two_with_its_sequences(code: ErrorCode) -> None:
    gathered = accumulator()
    large = put(gathered, count=7, now_ms=LONG_AGO_MS)
    gathered.drain(BOTH, 1_000)
    put(gathered, now_ms=LONG_AGO_MS)
    (behind,) = gathered.drain(BOTH, 1_000)
    charged = gathered.buffered_bytes

    assert gathered.on_answer(large, code, None, 1_000) is BatchOutcome.SPLIT
    gathered.on_answer(behind, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, None, 1_000)

    assert gathered.buffered_bytes == charged
    assert large.parts is not None
    for part in large.parts:
        assert gathered.drain(BOTH, 5_000) == [part]
        gathered.on_acknowledged(part)
    assert gathered.drain(BOTH, 5_000) == [behind]
    gathered.on_acknowledged(behind)
    assert [part.record_count for part in large.parts] == [3, 4]
    assert [part.base_sequence for part in large.parts] == [1, 4]
    assert behind.base_sequence == 8
    assert gathered.buffered_bytes == 0
    assert not gathered.is_identity_due


def test_parts_are_split_again_until_one_record_alone_is_too_large() -> None:
    gathered = accumulator(enable_idempotence=False)
    batch = gathered.append(AT, 0, None, b"small", (), 0)[0]
    gathered.append(AT, 0, None, b"x" * 300, (), 0)
    gathered.append(AT, 0, b"key", b"small too", [("h", b"1")], 0)
    delivered: list[bytes | None] = []
    now_ms = 1_000
    while taken := gathered.drain(BOTH, now_ms):
        (one,) = taken
        if len(one.encoded or b"") > 250:
            gathered.on_answer(one, ErrorCode.MESSAGE_TOO_LARGE, None, now_ms)
        else:
            delivered += values(one)
            gathered.on_acknowledged(one)

    assert delivered == [b"small", b"small too"]
    failures = [batch.leaf_of(index)[0].failure for index in range(3)]
    assert [failure is None for failure in failures] == [True, False, True]


def test_a_part_may_be_in_the_log_where_an_earlier_attempt_of_the_whole_may() -> None:
    gathered = accumulator()
    batch = put(gathered, count=2, now_ms=LONG_AGO_MS)
    gathered.drain(BOTH, 1_000)
    gathered.on_lost(batch, "cut", 1_000)
    gathered.drain(BOTH, 2_000)
    gathered.on_answer(batch, ErrorCode.MESSAGE_TOO_LARGE, None, 2_000)
    (part,) = gathered.drain(BOTH, 2_000)

    fate = gathered.on_answer(part, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, None, 2_000)

    assert fate is BatchOutcome.FAILED
    assert part.failure is not None
    assert part.failure.may_be_in_log


def plain(gathered: Accumulator, value: bytes, *, at: TopicPartition = AT, now_ms: int = 0) -> str:
    """Append a record as a producer does without key and headers; return the path that it took."""
    WALL_MS[0] = now_ms
    if gathered.join_plain(at.topic, value) is not None:
        return "short"
    gathered.end_plain_route(at.topic)
    batch, _ = gathered.append(at, now_ms, None, value, (), now_ms)
    gathered.route_plain(at.topic, batch, 10_000)
    return "decided"


def test_records_like_the_one_before_go_the_short_way_and_are_charged_alike() -> None:
    short, decided = accumulator(), accumulator()
    ways = [plain(short, b"%03d" % number) for number in range(30)]
    for number in range(30):
        decided.append(AT, 0, None, b"%03d" % number, (), 0)

    assert ways == ["decided"] + ["short"] * 29
    assert short.buffered_bytes == decided.buffered_bytes
    (one,), (other,) = short.drain(BOTH, 10), decided.drain(BOTH, 10)
    assert one.encoded == other.encoded
    assert one.record_count == other.record_count == 30


def test_what_changes_for_a_record_ends_the_short_way() -> None:
    gathered = accumulator(buffer_bytes_max=900)
    plain(gathered, b"a")
    assert plain(gathered, b"b", now_ms=1) == "decided", "another time"
    assert plain(gathered, b"c", now_ms=1) == "short"
    gathered.append(AT, 1, b"key", b"d", (), 1)
    assert plain(gathered, b"e", now_ms=1) == "decided", "keys are gathered now"
    (batch,) = gathered.drain(BOTH, 20)
    assert plain(gathered, b"f", now_ms=1) == "decided", "the batch has left"
    assert plain(gathered, b"f", now_ms=1) == "short"
    for clock_ms in (0, 2):
        WALL_MS[0] = clock_ms
        assert gathered.join_plain("t", b"g") is None, "another time, earlier or later"
    WALL_MS[0] = 1
    for topic, value in (("t", "text"), ("t", None), ("t", bytearray(1)), (b"t", b"g")):
        assert gathered.join_plain(topic, value) is None, "the arguments need a check"
    assert [one.value for one in scan(batch.encoded or b"", 0, header_of(batch))] == [
        b"a", b"b", b"c", b"d", b"e",
    ]  # fmt: skip
    assert gathered.join_plain("t", b"x" * 900) is None, "there is no memory for it"
    gathered.refusal = RefusedError(ErrorCode.INVALID_TXN_STATE, "no transaction")
    assert gathered.join_plain("t", b"g") is None
    assert gathered.join_plain("other", b"g") is None, "a topic without a record before"


def test_after_a_burst_of_records_the_sender_looks_at_other_tasks() -> None:
    gathered = accumulator()
    plain(gathered, b"a")
    gathered.burst_left = 2
    assert [gathered.join_plain("t", b"b") is None for _ in range(3)] == [False, False, True]
    gathered.burst_left = 1
    assert gathered.join_plain("t", b"c") is not None


def test_the_short_way_stamps_a_record_with_the_time_and_counts_its_index() -> None:
    gathered = accumulator()
    plain(gathered, b"a", now_ms=1_700_000_000_123)
    WALL_MS[0] = 1_700_000_000_123
    delivery = gathered.join_plain("t", b"b")
    (batch,) = gathered.drain([AT], 1_700_000_000_200)
    gathered.on_acknowledged(batch, base_offset=40)

    assert delivery is not None
    assert delivery.result() == ("t", 0, 41, 1_700_000_000_123)


def test_a_record_that_fits_into_an_older_batch_does_not_overtake_a_newer_one() -> None:
    gathered = accumulator()
    plain(gathered, b"x" * 700)
    gathered.append(AT, 0, None, b"y" * 500, (), 0)

    assert plain(gathered, b"z") == "decided"
    first = gathered.drain([AT], 20)
    second = gathered.drain([AT], 20)
    values = [
        bytes((one.value or b"")[:1])
        for batch in (*first, *second)
        for one in scan(batch.encoded or b"", 0, header_of(batch))
    ]
    assert values == [b"x", b"y", b"z"]
