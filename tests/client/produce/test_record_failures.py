"""An error that names records: each record of the batch has its own failure (KIP-467)."""

from ottla.client.produce.accumulator import Accumulator, ProducerIdentity
from ottla.client.produce.delivery import Delivery
from ottla.client.produce.partition_queue import NotDeliveredError, ProducerBatch
from ottla.model.errors import ErrorCode
from ottla.model.ids import ProducerId, TopicPartition
from ottla.model.settings.client import ProducerConfig

AT = TopicPartition("t", 0)
RECORD_COUNT = 4
TEXT = "Compacted topic cannot accept message without key"


def refused(
    record_errors: dict[int, str | None], code: ErrorCode = ErrorCode.INVALID_RECORD
) -> tuple[Accumulator, ProducerBatch]:
    """Send one batch of four records, and refuse it."""
    gathered = Accumulator(ProducerConfig(linger_ms=0))
    gathered.become(ProducerIdentity(ProducerId(1), 0))
    for _ in range(RECORD_COUNT):
        gathered.append(AT, 0, None, b"v", (), 0)
    (batch,) = gathered.drain([AT], 1_000)
    gathered.on_answer(batch, code, "the batch's message", 1_000, record_errors=record_errors)
    return gathered, batch


def failures_of(batch: ProducerBatch) -> list[NotDeliveredError]:
    found = []
    for index in range(RECORD_COUNT):
        try:
            Delivery(batch, index, 0).result()
        except NotDeliveredError as error:
            found.append(error)
    return found


def test_the_record_at_fault_is_distinguished_from_its_batch() -> None:
    _, batch = refused({2: TEXT}, ErrorCode.INVALID_TIMESTAMP)
    failures = failures_of(batch)
    assert [one.is_due_to_another for one in failures] == [True, True, False, True]
    assert failures[2].message == f"t-0: {TEXT}"
    assert failures[2].code is ErrorCode.INVALID_TIMESTAMP
    assert "the first is record 2" in failures[0].message


def test_of_several_records_at_fault_each_has_its_own_message() -> None:
    _, batch = refused({0: "one", 3: "other"}, ErrorCode.INVALID_TIMESTAMP)
    failures = failures_of(batch)
    assert [failures[index].message for index in (0, 3)] == ["t-0: one", "t-0: other"]
    # The one code of the batch says nothing of each of them.
    assert {failures[index].code for index in (0, 3)} == {ErrorCode.INVALID_RECORD}


def test_a_record_error_without_message_has_that_of_the_batch() -> None:
    _, batch = refused({1: None})
    assert failures_of(batch)[1].message == "t-0: the batch's message"


def test_indexes_outside_of_the_batch_blame_no_record() -> None:
    _, batch = refused({-1: TEXT, RECORD_COUNT: TEXT, 1 << 30: TEXT})
    assert [one.is_due_to_another for one in failures_of(batch)] == [False] * RECORD_COUNT


def test_a_flush_raises_the_failure_of_the_record_at_fault() -> None:
    gathered, _ = refused({2: TEXT})
    failure = gathered.take_unseen_failure()
    assert failure is not None
    assert not failure.is_due_to_another
    assert failure.message == f"t-0: {TEXT}"
