"""The dirtiest log that is due is cleaned next, once, and never during a pause of it."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.ids import Offset, TopicPartition
from ottla.model.limits import INT64_MAX
from ottla.storage.cleaner.cleanable import cleanable_of, hindrance_of
from ottla.storage.cleaner.cleaner_manager import (
    RETRY_PAUSES_MS,
    CleanerManager,
    CleaningState,
)
from ottla.storage.segments.log_config import LogConfig

NOW_MS = 1_000_000
COMPACTED = LogConfig(is_compacted=True)
A, B, C = (TopicPartition(name, 0) for name in "abc")


@dataclass
class FakeSegment:
    base_offset: Offset
    size_bytes: int = 100
    first_timestamp_ms: int = NOW_MS - 500
    max_timestamp_ms: int = NOW_MS - 400
    is_sealed: bool = True


@dataclass
class FakeLog:
    """Closed segments of ten offsets, then an active one."""

    closed_count: int = 4
    first_dirty_offset: Offset = Offset(0)  # noqa: RUF009 - a NewType's call is the value itself
    config: LogConfig = COMPACTED
    log_start_offset: Offset = Offset(0)  # noqa: RUF009
    stable_offset: int | None = None
    segments: list[FakeSegment] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.segments = [FakeSegment(Offset(10 * n)) for n in range(self.closed_count + 1)]
        self.segments[-1].is_sealed = False

    @property
    def end_offset(self) -> Offset:
        return Offset(10 * self.closed_count + 5)

    @end_offset.setter
    def end_offset(self, offset: Offset) -> None:
        raise NotImplementedError

    @property
    def last_stable_offset(self) -> Offset:
        return self.end_offset if self.stable_offset is None else Offset(self.stable_offset)


def log_of(dirty_from: int, **changes: object) -> FakeLog:
    log = FakeLog(first_dirty_offset=Offset(dirty_from))
    log.config = replace(COMPACTED, **changes)  # type: ignore[arg-type]
    return log


# --- what can be cleaned --------------------------------------------------------------------------


def test_all_closed_segments_from_the_first_dirty_offset_on_can_be_cleaned() -> None:
    found = cleanable_of(log_of(10), NOW_MS)

    assert (found.first_dirty_offset, found.end_offset) == (10, 40)
    assert (found.clean_bytes, found.cleanable_bytes) == (100, 300)
    assert found.ratio == 0.75


def test_nothing_from_an_undecided_transaction_on_is_cleaned() -> None:
    log = log_of(0)
    log.stable_offset = 23

    assert cleanable_of(log, NOW_MS).end_offset == 23


def test_nothing_from_a_segment_that_is_not_flushed_on_is_cleaned() -> None:
    log = log_of(0)
    log.segments[2].is_sealed = False

    assert cleanable_of(log, NOW_MS).end_offset == 20


def test_nothing_from_a_segment_with_a_younger_record_than_the_lag_on_is_cleaned() -> None:
    log = log_of(0, min_compaction_lag_ms=300)
    log.segments[1].max_timestamp_ms = NOW_MS - 299

    assert cleanable_of(log, NOW_MS).end_offset == 10
    log.segments[1].max_timestamp_ms = NOW_MS - 300
    assert cleanable_of(log, NOW_MS).end_offset == 40


def test_where_nothing_can_be_cleaned_the_first_hindrance_is_named() -> None:
    assert hindrance_of(log_of(10), NOW_MS) == ""
    assert hindrance_of(log_of(45), NOW_MS) == "it is compacted up to its end, offset 45"
    active = "all its dirty records, from offset 40 on, are in the active segment"
    assert hindrance_of(log_of(40), NOW_MS) == active
    undecided = log_of(10)
    undecided.stable_offset = 10
    assert hindrance_of(undecided, NOW_MS).startswith("records from offset 10 on are not committed")
    unflushed = log_of(20)
    unflushed.segments[2].is_sealed = False
    assert hindrance_of(unflushed, NOW_MS) == "records from offset 20 on are not flushed yet"
    young = log_of(20, min_compaction_lag_ms=1_000)
    expected = "records from offset 20 on are younger than min.compaction.lag.ms"
    assert hindrance_of(young, NOW_MS) == expected


def test_a_record_that_is_dirty_for_longer_than_the_longest_lag_makes_a_log_due() -> None:
    log = log_of(30, max_compaction_lag_ms=500)
    assert not cleanable_of(log, NOW_MS).is_due(log.config)

    found = cleanable_of(log, NOW_MS + 7)

    assert found.delay_ms == 7
    assert found.is_due(log.config)


@pytest.mark.parametrize("dirty_from", [-1, 46, 4])
def test_a_first_dirty_offset_outside_the_log_is_its_start(dirty_from: int) -> None:
    log = log_of(dirty_from)
    log.log_start_offset = Offset(5)

    assert cleanable_of(log, NOW_MS).first_dirty_offset == 5


def test_a_log_that_is_clean_to_its_active_segment_is_not_due() -> None:
    log = log_of(40, min_cleanable_dirty_ratio=0.0)

    found = cleanable_of(log, NOW_MS)

    assert found.cleanable_bytes == 0
    assert found.end_offset == found.first_dirty_offset == 40
    assert not found.is_due(log.config)


def test_a_log_that_is_exactly_as_dirty_as_it_may_be_is_not_due() -> None:
    log = log_of(20)

    found = cleanable_of(log, NOW_MS)

    assert found.ratio == 0.5
    assert not found.is_due(log.config)


# --- which one is next ----------------------------------------------------------------------------


def test_the_dirtiest_log_is_cleaned_first_and_none_twice() -> None:
    manager = CleanerManager()
    logs = [(A, log_of(10)), (B, log_of(0)), (C, log_of(30))]

    chosen = [manager.choose(logs, NOW_MS) for _ in range(3)]

    assert [choice and choice.partition for choice in chosen] == [B, A, None]
    assert manager.state_of(B) is CleaningState.CLEANING
    manager.on_ended(B)
    assert manager.state_of(B) is CleaningState.NONE


def test_a_requested_cleaning_comes_before_all_others_at_any_dirty_ratio() -> None:
    manager = CleanerManager()
    manager.request(C)

    chosen = manager.choose([(A, log_of(0)), (C, log_of(30))], NOW_MS)

    assert chosen is not None
    assert chosen.partition == C


@given(st.data())
def test_the_shortlist_of_many_logs_has_the_one_that_all_of_them_would_give(
    data: st.DataObject,
) -> None:
    rng = data.draw(st.randoms(use_true_random=False))
    ratios = [rng.choice([0.0, 0.1, 0.5, 0.9, 1.0]) for _ in range(3)]
    lags_ms = [rng.choice([400, INT64_MAX]) for _ in range(20)]
    managers = CleanerManager(), CleanerManager()
    logs = [
        (
            TopicPartition("t", number),
            log_of(
                10 * rng.randrange(5),
                min_cleanable_dirty_ratio=rng.choice(ratios),
                max_compaction_lag_ms=rng.choice(lags_ms),
            ),
        )
        for number in range(500)
    ]
    for partition, _ in logs:
        fate = rng.randrange(20)
        for manager in managers:
            if fate == 0:
                manager.pause(partition)
            elif fate == 1:
                manager.on_failed(partition, "it broke", now_ms=NOW_MS, is_final=True)
            elif fate == 2 and partition.partition % 50 == 0:
                manager.request(partition)

    plain, short = managers
    found = [(partition, log, cleanable_of(log, NOW_MS)) for partition, log in logs]
    for _ in range(5):
        chosen = short.choose(short.shortlist(found, NOW_MS), NOW_MS)
        assert chosen == plain.choose(logs, NOW_MS)


def test_a_paused_log_is_not_chosen_until_each_pause_is_taken_back() -> None:
    manager = CleanerManager()
    assert not manager.pause(A)
    assert not manager.pause(A)

    manager.resume(A)
    assert manager.choose([(A, log_of(0))], NOW_MS) is None
    manager.resume(A)
    assert manager.choose([(A, log_of(0))], NOW_MS) is not None


def test_a_pause_aborts_the_cleaning_under_way_which_is_paused_at_its_end() -> None:
    manager = CleanerManager()
    manager.choose([(A, log_of(0))], NOW_MS)

    assert manager.pause(A)
    assert manager.state_of(A) is CleaningState.ABORTED
    manager.on_ended(A)
    assert manager.state_of(A) is CleaningState.PAUSED
    manager.resume(A)
    assert manager.state_of(A) is CleaningState.NONE


def test_a_pause_that_is_given_up_leaves_the_cleaning_under_way() -> None:
    manager = CleanerManager()
    manager.choose([(A, log_of(0))], NOW_MS)
    manager.pause(A)

    manager.resume(A)

    assert manager.state_of(A) is CleaningState.CLEANING


# --- failures -------------------------------------------------------------------------------------


def test_a_log_whose_cleaning_fails_waits_each_time_longer_and_is_then_set_aside() -> None:
    manager, now_ms, waited = CleanerManager(), NOW_MS, list[int]()
    while manager.choose([(A, log_of(0))], now_ms) is not None:
        failure = manager.on_failed(A, "it broke", now_ms=now_ms, is_final=False)
        manager.on_ended(A)
        if failure.retry_at_ms is not None:
            waited.append(failure.retry_at_ms - now_ms)
            assert manager.choose([(A, log_of(0))], failure.retry_at_ms - 1) is None
            now_ms = failure.retry_at_ms

    assert tuple(waited) == RETRY_PAUSES_MS
    assert manager.uncleanable == {A: "it broke"}
    assert manager.retry(A)
    assert manager.choose([(A, log_of(0))], now_ms) is not None


def test_a_log_whose_bytes_lie_is_set_aside_at_once() -> None:
    manager = CleanerManager()
    manager.choose([(A, log_of(0))], NOW_MS)

    manager.on_failed(A, "0.log: batch at 7", now_ms=NOW_MS, is_final=True)
    manager.on_ended(A)

    assert manager.uncleanable == {A: "0.log: batch at 7"}
    assert manager.choose([(A, log_of(0))], NOW_MS * 1000) is None
    manager.request(A)
    assert manager.choose([(A, log_of(0))], NOW_MS) is not None


def test_a_cleaning_that_succeeds_forgets_the_failures_before() -> None:
    manager = CleanerManager()
    for _ in range(10):
        assert manager.on_failed(A, "no", now_ms=0, is_final=False).retry_at_ms is not None
        manager.on_done(A)

    assert manager.uncleanable == {}


@given(
    st.lists(st.sampled_from(["choose", "end", "pause", "resume"]), max_size=40),
)
def test_a_log_is_cleaned_once_at_a_time_and_never_while_it_is_paused(steps: list[str]) -> None:
    manager = CleanerManager()
    cleaning, pauses = False, 0
    for step in steps:
        if step == "choose":
            is_chosen = manager.choose([(A, log_of(0))], NOW_MS) is not None
            assert is_chosen == (not cleaning and not pauses)
            cleaning = cleaning or is_chosen
        elif step == "end" and cleaning:
            manager.on_ended(A)
            cleaning = False
        elif step == "pause":
            pauses += 1
            assert manager.pause(A) == cleaning
        elif step == "resume" and pauses:
            pauses -= 1
            manager.resume(A)
