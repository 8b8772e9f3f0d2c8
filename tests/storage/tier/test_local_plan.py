"""Which local segments of a tiered log are deleted."""

import pytest

from ottla.model.ids import Offset
from ottla.storage.segments.log_config import effective_local_retention
from ottla.storage.tier.local_plan import LocalDeletion, plan_local_deletion
from tests.storage.tier.tier_examples import local

SEGMENTS = [local(0, 100), local(100, 200), local(200, 300), local(300, 350)]


def plan(
    *,
    copied: int = 299,
    start: int = 0,
    watermark: int = 350,
    ms: int = -1,
    size: int = -1,
    is_copied: bool = True,
    now_ms: int = 5_000,
) -> LocalDeletion:
    return plan_local_deletion(
        SEGMENTS,
        copied_offset=Offset(copied),
        log_start_offset=Offset(start),
        high_watermark=Offset(watermark),
        retention_ms=ms,
        retention_bytes=size,
        is_copied=is_copied,
        now_ms=now_ms,
    )


def test_only_copied_segments_leave_the_disk() -> None:
    assert plan(ms=0).segment_count == 3
    assert plan(ms=0, copied=199).segment_count == 2
    assert plan(ms=0, copied=198).segment_count == 1
    assert plan(ms=0, copied=-1).segment_count == 0


def test_a_store_that_is_down_keeps_all_local_segments() -> None:
    assert plan(size=0, copied=-1) == LocalDeletion(0, is_roll_due=False, moves_log_start=False)


def test_segments_below_the_log_start_need_no_copy() -> None:
    assert plan(copied=-1, start=200).segment_count == 2
    assert plan(copied=-1, start=199).segment_count == 1


def test_segments_above_the_high_watermark_stay() -> None:
    assert plan(ms=0, watermark=200).segment_count == 2
    assert plan(ms=0, watermark=199).segment_count == 1


def test_local_retention_counts_bytes_of_the_local_log() -> None:
    assert [plan(size=size).segment_count for size in (40, 39, 30, 20, 10)] == [0, 0, 1, 2, 3]


def test_local_retention_counts_the_age_of_the_newest_record() -> None:
    assert plan(ms=4_000).segment_count == 0
    assert plan(ms=3_999).segment_count == 3


def test_a_timestamp_in_the_future_does_not_expire() -> None:
    assert plan(ms=0, now_ms=500).segment_count == 0


@pytest.mark.parametrize(("watermark", "is_roll_due"), [(350, True), (349, False)])
def test_an_active_segment_that_exceeds_local_retention_is_rolled(
    watermark: int, is_roll_due: bool
) -> None:
    found = plan(ms=0, watermark=watermark)
    assert (found.segment_count, found.is_roll_due) == (3, is_roll_due)


def test_without_copies_retention_moves_the_log_start() -> None:
    found = plan(ms=0, copied=-1, is_copied=False)
    assert (found.segment_count, found.moves_log_start) == (3, True)
    assert not plan(ms=0).moves_log_start
    assert not plan(start=300, is_copied=False).moves_log_start


def test_minus_two_stands_for_the_retention_of_the_topic() -> None:
    assert effective_local_retention(-2, 70, is_copied=True) == 70
    assert effective_local_retention(5, 70, is_copied=True) == 5
    assert effective_local_retention(-1, 70, is_copied=True) == -1
    assert effective_local_retention(5, 70, is_copied=False) == 70
