"""Rules of one share partition: acquisition, acknowledgements, locks, writes and reloads."""

from collections.abc import Sequence

import pytest

from ottla.broker.coordinators.share_persister import ShareState, StateBatch
from ottla.broker.shares.acquired_ranges import AcquiredRange, throttled_size
from ottla.broker.shares.delivery_window import DeliveryState
from ottla.broker.shares.share_partition import (
    AckBatch,
    AckType,
    LogBatch,
    SharePartition,
    ShareRules,
    ShareStateWrite,
)
from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError

LOCK_MS = 30_000


def acquire(
    share: SharePartition,
    member: str,
    *batches: tuple[int, int],
    records_max: int = 500,
    is_strict: bool = False,
    batch_size: int = 500,
    now_ms: int = 0,
    hidden: Sequence[tuple[int, int]] = (),
) -> list[AcquiredRange]:
    at = share.fetch_offset()
    if at is None:
        return []
    return share.acquire(
        member,
        [LogBatch(first, last, (first, last) not in hidden) for first, last in batches],
        fetch_offset=at,
        records_max=records_max,
        is_strict=is_strict,
        batch_size=batch_size,
        now_ms=now_ms,
    )


def settle(
    share: SharePartition, code: ErrorCode = ErrorCode.NONE, now_ms: int = 0
) -> ShareStateWrite:
    write = share.next_write()
    assert write is not None
    share.on_written(code, now_ms)
    return write


def ack(share: SharePartition, member: str, first: int, last: int, *types: int) -> object:
    return share.acknowledge(member, [AckBatch(first, last, types)], 0)


def states(share: SharePartition) -> list[tuple[int, int, int, int]]:
    return [(span.first, span.last, int(span.state), span.count) for span in share.window.spans]


def test_a_batch_is_acquired_whole_and_its_acknowledgement_moves_the_start_offset() -> None:
    share = SharePartition(5, ShareRules())
    assert acquire(share, "a", (5, 14)) == [AcquiredRange(5, 14, 1)]
    assert share.fetch_offset() == 15
    ack(share, "a", 5, 14, AckType.ACCEPT)
    assert share.window.start_offset == 5
    assert settle(share) == ShareStateWrite(15, 0, (StateBatch(5, 14, 2, 1),))
    assert share.window.start_offset == share.window.end_offset == 15
    assert share.is_idle


def test_a_write_counts_the_settled_records_above_the_start_offset() -> None:
    share = SharePartition(0, ShareRules())
    acquire(share, "a", (0, 9))
    ack(share, "a", 4, 7, AckType.ACCEPT)
    assert settle(share) == ShareStateWrite(0, 4, (StateBatch(4, 7, 2, 1),))
    ack(share, "a", 0, 3, AckType.REJECT)
    assert settle(share) == ShareStateWrite(8, 0, (StateBatch(0, 3, 4, 1),))
    assert states(share) == [(8, 9, 1, 1)]


def test_acknowledgements_of_the_meantime_share_the_next_write() -> None:
    share = SharePartition(0, ShareRules())
    acquire(share, "a", (0, 9))
    ack(share, "a", 0, 0, AckType.ACCEPT)
    assert share.next_write() == ShareStateWrite(1, 0, (StateBatch(0, 0, 2, 1),))
    ack(share, "a", 1, 1, AckType.ACCEPT)
    ack(share, "a", 2, 2, AckType.ACCEPT)
    assert share.next_write() is None
    share.on_written(ErrorCode.NONE, 0)
    assert settle(share) == ShareStateWrite(3, 0, (StateBatch(1, 1, 2, 1), StateBatch(2, 2, 2, 1)))


def test_a_failed_write_gives_the_records_back_to_their_owner() -> None:
    share = SharePartition(0, ShareRules())
    acquire(share, "a", (0, 9))
    transition = share.acknowledge("a", [AckBatch(0, 4, (AckType.ACCEPT,))], 0)
    assert transition is not None
    settle(share, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert transition.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert states(share) == [(0, 9, 1, 1)]


@pytest.mark.parametrize("ends", ["lock", "session"])
def test_a_failed_write_after_the_acquisition_ended_releases_the_records(ends: str) -> None:
    share = SharePartition(0, ShareRules(delivery_count_limit=5))
    acquire(share, "a", (0, 9))
    ack(share, "a", 0, 4, AckType.ACCEPT)
    assert share.next_write() is not None
    now_ms = 0
    if ends == "lock":
        now_ms = LOCK_MS
        share.end_locks(now_ms)
    else:
        share.release_member("a", 0)
    assert share.fetch_offset() == 5
    share.on_written(ErrorCode.COORDINATOR_NOT_AVAILABLE, now_ms)
    assert share.fetch_offset() == 0


def test_an_ended_lock_releases_records_and_their_late_acknowledgement_is_refused() -> None:
    share = SharePartition(0, ShareRules())
    acquire(share, "a", (0, 9))
    assert share.next_lock_end_ms == LOCK_MS
    assert not share.end_locks(LOCK_MS - 1)
    assert share.end_locks(LOCK_MS)
    with pytest.raises(RefusedError) as refusal:
        ack(share, "a", 0, 9, AckType.ACCEPT)
    assert refusal.value.code is ErrorCode.INVALID_RECORD_STATE
    assert settle(share).batches == (StateBatch(0, 9, 0, 1),)
    assert acquire(share, "b", (0, 9), now_ms=LOCK_MS) == [AcquiredRange(0, 9, 2)]


def test_a_renewed_lock_ends_later_and_writes_nothing() -> None:
    share = SharePartition(0, ShareRules())
    acquire(share, "a", (0, 9))
    assert share.acknowledge("a", [AckBatch(0, 3, (AckType.RENEW,))], 20_000) is None
    assert share.end_locks(LOCK_MS)
    assert states(share) == [(0, 3, 1, 1), (4, 9, 0, 1)]
    assert share.next_lock_end_ms == 50_000
    assert share.end_locks(50_000)


def test_a_group_without_renewal_refuses_it() -> None:
    share = SharePartition(0, ShareRules(is_renewable=False))
    acquire(share, "a", (0, 9))
    with pytest.raises(RefusedError) as refusal:
        ack(share, "a", 0, 9, AckType.RENEW)
    assert refusal.value.code is ErrorCode.INVALID_RECORD_STATE


def test_one_wrong_acknowledgement_changes_nothing() -> None:
    share = SharePartition(0, ShareRules())
    acquire(share, "a", (0, 4))
    acquire(share, "b", (5, 9))
    before = states(share)
    for acks, code in (
        ([AckBatch(0, 4, (1,)), AckBatch(5, 5, (1,))], ErrorCode.INVALID_RECORD_STATE),
        ([AckBatch(0, 3, (1,)), AckBatch(3, 4, (1,))], ErrorCode.INVALID_RECORD_STATE),
        ([AckBatch(0, 4, (1,)), AckBatch(9, 10, (1,))], ErrorCode.INVALID_RECORD_STATE),
        ([AckBatch(0, 2**62, (1,))], ErrorCode.INVALID_REQUEST),
    ):
        with pytest.raises(RefusedError) as refusal:
            share.acknowledge("a", acks, 0)
        assert refusal.value.code in (code, ErrorCode.INVALID_REQUEST)
        assert states(share) == before
        assert share.is_idle


def test_acknowledgements_below_the_start_offset_are_ignored() -> None:
    share = SharePartition(100, ShareRules())
    assert ack(share, "a", 0, 99, AckType.ACCEPT) is None


def test_types_for_each_offset() -> None:
    share = SharePartition(0, ShareRules())
    acquire(share, "a", (0, 5))
    ack(share, "a", 0, 5, 1, 1, 2, 3, 0, 1)
    settle(share)
    assert states(share) == [(2, 2, 0, 1), (3, 4, 4, 1), (5, 5, 2, 1)]


def test_the_last_delivery_ends_in_the_archive() -> None:
    share = SharePartition(0, ShareRules(delivery_count_limit=2))
    acquire(share, "a", (0, 0))
    ack(share, "a", 0, 0, AckType.RELEASE)
    settle(share)
    assert acquire(share, "a", (0, 0)) == [AcquiredRange(0, 0, 2)]
    ack(share, "a", 0, 0, AckType.RELEASE)
    assert settle(share) == ShareStateWrite(1, 0, (StateBatch(0, 0, 4, 2),))


def test_the_record_limit_is_strict_and_a_batch_is_not() -> None:
    strict, whole = SharePartition(0, ShareRules()), SharePartition(0, ShareRules())
    assert acquire(strict, "a", (0, 9), (10, 19), records_max=12, is_strict=True) == [
        AcquiredRange(0, 11, 1)
    ]
    assert strict.fetch_offset() == 12
    assert acquire(whole, "a", (0, 9), (10, 19), (20, 29), records_max=12) == [
        AcquiredRange(0, 19, 1)
    ]


def test_ranges_end_at_a_batch_of_the_log_when_they_are_large_enough() -> None:
    share = SharePartition(0, ShareRules())
    assert acquire(share, "a", (0, 3), (4, 7), (8, 11), batch_size=5) == [
        AcquiredRange(0, 7, 1),
        AcquiredRange(8, 11, 1),
    ]


def test_a_full_window_gives_released_records_only() -> None:
    share = SharePartition(0, ShareRules(record_locks_max=10))
    assert acquire(share, "a", (0, 7)) == [AcquiredRange(0, 7, 1)]
    assert acquire(share, "a", (8, 15), (16, 23)) == [AcquiredRange(8, 15, 1)]
    assert share.fetch_offset() is None
    ack(share, "a", 4, 5, AckType.RELEASE)
    settle(share)
    assert acquire(share, "b", (0, 7), (8, 15), (16, 23)) == [AcquiredRange(4, 5, 2)]
    assert share.fetch_offset() is None


def test_offsets_that_the_log_does_not_return_are_archived() -> None:
    share = SharePartition(0, ShareRules())
    acquire(share, "a", (0, 9))
    ack(share, "a", 0, 9, AckType.RELEASE)
    settle(share)
    assert acquire(share, "a", (4, 5), (8, 9), (20, 21)) == [
        AcquiredRange(4, 5, 2),
        AcquiredRange(8, 9, 2),
        AcquiredRange(20, 21, 1),
    ]
    assert share.window.start_offset == 4
    assert share.count_in(DeliveryState.ARCHIVED) == 12


def test_control_and_aborted_batches_are_archived_undelivered() -> None:
    share = SharePartition(0, ShareRules())
    hidden = [(0, 0), (5, 5)]
    assert acquire(share, "a", (0, 0), (1, 4), (5, 5), hidden=hidden) == [AcquiredRange(1, 4, 1)]
    assert share.window.start_offset == 1
    assert share.fetch_offset() == 6


def test_records_with_many_deliveries_are_acquired_alone_and_in_pieces() -> None:
    state = ShareState(
        ErrorCode.NONE, start_offset=0, batches=(StateBatch(0, 9, 0, 1), StateBatch(10, 17, 0, 3))
    )
    share = SharePartition.load(state, ShareRules())
    assert acquire(share, "a", (0, 9), (10, 19)) == [AcquiredRange(0, 9, 2)]
    assert acquire(share, "a", (10, 19)) == [AcquiredRange(10, 14, 4)]
    ack(share, "a", 10, 14, AckType.RELEASE)
    settle(share)
    assert acquire(share, "a", (10, 19)) == [AcquiredRange(10, 10, 5)]


def test_pieces_halve_the_log_batch_and_not_what_earlier_pieces_left() -> None:
    share = SharePartition(0, ShareRules(delivery_count_limit=6))
    pieces = []
    for _ in range(25):
        first, _, _ = (found := acquire(share, "a", (0, 15)))[0]
        last = found[-1].last_offset
        pieces.append((first, last, found[-1].delivery_count))
        ack(share, "a", first, last, AckType.RELEASE)
        settle(share)
    assert pieces == [
        *((0, 15, 1), (0, 15, 2), (0, 15, 3), (0, 7, 4), (0, 3, 5)),
        *((0, 0, 6), (1, 1, 6), (2, 2, 6), (3, 3, 6)),
        *((4, 7, 5), (4, 4, 6), (5, 5, 6), (6, 6, 6), (7, 7, 6)),
        *((8, 15, 4), (8, 11, 5), (8, 8, 6), (9, 9, 6), (10, 10, 6), (11, 11, 6)),
        *((12, 15, 5), (12, 12, 6), (13, 13, 6), (14, 14, 6), (15, 15, 6)),
    ]


@pytest.mark.parametrize(
    ("size", "count", "limit", "piece"),
    [
        (100, 2, 5, None),
        (100, 3, 5, 50),
        (100, 4, 5, 1),
        (100, 1, 2, None),
        (100, 5, 10, 50),
        (100, 6, 10, 25),
        (1, 6, 10, 1),
        (100, 9, 10, 1),
    ],
)
def test_throttled_sizes(size: int, count: int, limit: int, piece: int | None) -> None:
    assert throttled_size(size, count, limit) == piece


def test_a_rising_log_start_archives_available_records_at_once_and_acquired_ones_later() -> None:
    share = SharePartition(0, ShareRules())
    acquire(share, "a", (0, 9))
    ack(share, "a", 0, 1, AckType.RELEASE)
    ack(share, "a", 6, 9, AckType.RELEASE)
    settle(share)
    assert share.on_log_start(8)
    assert states(share) == [(2, 5, 1, 1), (6, 7, 4, 1), (8, 9, 0, 1)]
    share.release_member("a", 0)
    assert share.window.start_offset == 8
    assert settle(share).start_offset == 8


def test_a_log_start_above_the_window_moves_an_empty_window() -> None:
    share = SharePartition(0, ShareRules())
    assert share.on_log_start(50)
    assert share.fetch_offset() == 50


def test_a_release_under_way_across_the_log_start_keeps_the_records_above_it() -> None:
    share = SharePartition(0, ShareRules())
    acquire(share, "a", (0, 9))
    ack(share, "a", 0, 9, AckType.RELEASE)
    assert share.next_write() is not None
    share.on_log_start(5)
    share.on_written(ErrorCode.NONE, 0)
    assert states(share) == [(5, 9, 0, 1)]
    assert share.fetch_offset() == 5


def test_acquired_records_on_both_sides_of_the_log_start_end_differently() -> None:
    share = SharePartition(0, ShareRules())
    acquire(share, "a", (0, 9))
    share.on_log_start(5)
    ack(share, "a", 0, 9, AckType.RENEW)
    share.release_member("a", 0)
    assert states(share) == [(5, 9, 0, 1)]


def test_a_reload_offers_gaps_again() -> None:
    state = ShareState(
        ErrorCode.NONE,
        start_offset=10,
        batches=(StateBatch(10, 11, 2, 1), StateBatch(15, 16, 4, 2), StateBatch(17, 17, 0, 2)),
    )
    share = SharePartition.load(state, ShareRules())
    assert states(share) == [(12, 14, 0, 0), (15, 16, 4, 2), (17, 17, 0, 2)]
    assert acquire(share, "a", (10, 19), batch_size=1) == [
        AcquiredRange(12, 14, 1),
        AcquiredRange(17, 17, 3),
        AcquiredRange(18, 19, 1),
    ]


@pytest.mark.parametrize(
    "batches",
    [
        (StateBatch(4, 9, 0, 1),),
        (StateBatch(5, 9, 0, 1), StateBatch(9, 10, 0, 1)),
        (StateBatch(7, 6, 0, 1),),
    ],
)
def test_a_state_with_impossible_batches_is_corrupt(batches: tuple[StateBatch, ...]) -> None:
    state = ShareState(ErrorCode.NONE, start_offset=5, batches=batches)
    with pytest.raises(CorruptDataError):
        SharePartition.load(state, ShareRules())


def test_a_lowered_limit_archives_records_that_have_reached_it() -> None:
    share = SharePartition(0, ShareRules(delivery_count_limit=5))
    acquire(share, "a", (0, 0))
    ack(share, "a", 0, 0, AckType.RELEASE)
    settle(share)
    share.rules = ShareRules(delivery_count_limit=1)
    assert acquire(share, "a", (0, 0), (1, 1)) == [AcquiredRange(1, 1, 1)]
