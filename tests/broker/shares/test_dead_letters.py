"""Dead letters of a share partition: a record is archived only after its letter is written."""

from ottla.broker.coordinators.share_persister import ShareState, StateBatch
from ottla.broker.shares.dead_letters import (
    BACKOFF_MS_FIRST,
    BACKOFF_MS_MAX,
    DeadLetter,
    LetterStep,
)
from ottla.broker.shares.delivery_window import DeliveryState
from ottla.broker.shares.share_partition import (
    AckBatch,
    AckType,
    LogBatch,
    SharePartition,
    ShareRules,
)
from ottla.model.errors import ErrorCode

RULES = ShareRules(lock_duration_ms=100, delivery_count_limit=2, has_dead_letters=True)


def acquire(share: SharePartition, last: int = 3, now_ms: int = 0) -> None:
    """Acquire the records 0 to `last`, which are one batch of the log."""
    at = share.fetch_offset()
    assert at is not None
    share.acquire(
        "a",
        [LogBatch(0, last)],
        fetch_offset=at,
        records_max=10,
        is_strict=False,
        batch_size=0,
        now_ms=now_ms,
    )


def store(share: SharePartition, code: ErrorCode = ErrorCode.NONE) -> tuple[StateBatch, ...]:
    """Answer the next write, and return its batches."""
    write = share.next_write()
    assert write is not None
    share.on_written(code, 0)
    return write.batches


def reject(share: SharePartition, first: int, last: int) -> None:
    """Reject records that the member has acquired."""
    share.acknowledge("a", [AckBatch(first, last, (AckType.REJECT,))], 0)


def rejected_letter() -> tuple[SharePartition, DeadLetter]:
    """Return a share partition, and the due letter of its only record, which was rejected."""
    share = SharePartition(0, RULES)
    acquire(share, last=0)
    reject(share, 0, 0)
    store(share)
    (letter,) = share.begin_letter_steps(0)
    return share, letter


def test_a_letter_is_sent_after_archiving_is_stored() -> None:
    share = SharePartition(0, RULES)
    acquire(share)
    reject(share, 1, 2)
    assert share.begin_letter_steps(0) == []
    assert store(share) == (StateBatch(1, 2, DeliveryState.ARCHIVING, 1),)
    letters = share.begin_letter_steps(0)
    assert [(one.offset, one.count, one.is_rejected) for one in letters] == [
        (1, 1, True),
        (2, 1, True),
    ]
    assert share.begin_letter_steps(0) == [], "a letter is sent once at a time"


def test_a_record_is_archived_after_its_letter_is_written() -> None:
    share, letter = rejected_letter()
    assert share.window.start_offset == 0
    assert not share.is_idle
    share.on_letter(letter, is_written=True, now_ms=0)
    assert share.begin_letter_steps(0) == []
    assert store(share) == (StateBatch(0, 0, DeliveryState.ARCHIVED, 1),)
    assert share.window.start_offset == 1
    assert share.is_idle


def test_a_letter_that_fails_is_sent_again_with_back_off() -> None:
    share, letter = rejected_letter()
    now_ms, waits = 0, []
    for _ in range(12):
        share.on_letter(letter, is_written=False, now_ms=now_ms)
        due_ms = share.letters.next_due_ms
        assert due_ms is not None
        assert share.begin_letter_steps(due_ms - 1) == []
        assert share.begin_letter_steps(due_ms) == [letter]
        waits.append(due_ms - now_ms)
        now_ms = due_ms
    assert waits[:3] == [BACKOFF_MS_FIRST, 2 * BACKOFF_MS_FIRST, 4 * BACKOFF_MS_FIRST]
    assert waits[-1] == BACKOFF_MS_MAX
    assert share.window.start_offset == 0


def test_waiting_letters_count_against_the_limit_of_records_in_flight() -> None:
    share = SharePartition(0, RULES._replace(record_locks_max=4))
    acquire(share)
    reject(share, 0, 3)
    store(share)
    assert share.fetch_offset() is None
    for letter in share.begin_letter_steps(0):
        share.on_letter(letter, is_written=True, now_ms=0)
    share.begin_letter_steps(0)
    assert share.fetch_offset() is None
    store(share)
    assert share.fetch_offset() == 4


def test_a_failed_write_of_archived_does_not_send_the_letter_again() -> None:
    share, letter = rejected_letter()
    share.on_letter(letter, is_written=True, now_ms=0)
    share.begin_letter_steps(0)
    store(share, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert letter.step is LetterStep.STORE_ARCHIVED
    assert share.begin_letter_steps(BACKOFF_MS_FIRST) == []
    assert store(share) == (StateBatch(0, 0, DeliveryState.ARCHIVED, 1),)


def test_used_up_deliveries_become_letters_once_that_is_stored() -> None:
    share = SharePartition(0, RULES)
    for now_ms in (0, 100):
        acquire(share, last=0, now_ms=now_ms)
        share.end_locks(now_ms + 100)
    store(share)  # the first release
    assert share.begin_letter_steps(200) == []
    assert store(share, ErrorCode.COORDINATOR_NOT_AVAILABLE)[0].delivery_state == 3
    assert share.begin_letter_steps(300) == []
    assert store(share) == (StateBatch(0, 0, DeliveryState.ARCHIVING, 2),)
    (letter,) = share.begin_letter_steps(300)
    assert (letter.count, letter.is_rejected) == (2, False)


def test_the_next_leader_sends_letters_again() -> None:
    state = ShareState(
        ErrorCode.NONE, start_offset=0, batches=(StateBatch(0, 1, DeliveryState.ARCHIVING, 1),)
    )
    share = SharePartition.load(state, RULES)
    assert [letter.offset for letter in share.begin_letter_steps(0)] == [0, 1]
    assert share.window.start_offset == 0


def test_a_record_that_the_log_lost_needs_no_letter() -> None:
    share, letter = rejected_letter()
    share.on_log_start(1)
    assert share.window.start_offset == 1
    assert share.is_idle
    share.on_letter(letter, is_written=False, now_ms=0)
    assert len(share.letters) == 0


def test_records_are_archived_without_letters_once_the_group_has_no_topic() -> None:
    share = SharePartition(0, RULES)
    acquire(share, last=0)
    reject(share, 0, 0)
    store(share)
    share.rules = RULES._replace(has_dead_letters=False)
    assert share.begin_letter_steps(0) == []
    assert store(share) == (StateBatch(0, 0, DeliveryState.ARCHIVED, 1),)


def test_a_record_that_a_consumer_could_not_find_has_no_letter() -> None:
    share = SharePartition(0, RULES)
    acquire(share, last=0)
    share.acknowledge("a", [AckBatch(0, 0, (AckType.GAP,))], 0)
    assert store(share) == (StateBatch(0, 0, DeliveryState.ARCHIVED, 1),)
