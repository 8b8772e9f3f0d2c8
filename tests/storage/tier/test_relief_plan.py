"""The deletion of copied local segments when a directory is short of free space."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.model.ids import Offset
from ottla.storage.tier.relief_plan import (
    ROLL_BYTES_MIN,
    CopiedSegment,
    TieredLogSpace,
    plan_relief,
)


def copied(*sizes_and_times: tuple[int, int]) -> list[CopiedSegment]:
    """Return segments of ten offsets each, from their sizes and the times of their last use."""
    return [
        CopiedSegment(Offset(10 * index), size, used_ms)
        for index, (size, used_ms) in enumerate(sizes_and_times, 1)
    ]


def log(*sizes_and_times: tuple[int, int], active: int = 0, waits: bool = False) -> TieredLogSpace:
    return TieredLogSpace(copied(*sizes_and_times), active, waits)


def test_the_segments_used_the_longest_time_ago_go_first() -> None:
    logs = {"old": log((5, 1), (5, 4)), "new": log((5, 3), (5, 9)), "read": log((5, 8))}
    plan = plan_relief(logs, 11)
    assert plan.ends == {"old": 20, "new": 10}
    assert (plan.segment_count, plan.size_bytes) == (3, 15)


def test_a_segment_that_was_read_keeps_the_later_ones_of_its_log() -> None:
    plan = plan_relief({"read": log((5, 8), (5, 1)), "other": log((5, 7))}, 5)
    assert plan.ends == {"other": 10}


def test_without_a_lack_nothing_is_deleted() -> None:
    plan = plan_relief({"orders": log((5, 1), active=9 * ROLL_BYTES_MIN)}, 0)
    assert (plan.ends, plan.rolls) == ({}, [])


def test_large_active_segments_are_closed_if_the_copies_do_not_suffice() -> None:
    logs = {
        "small": log(active=ROLL_BYTES_MIN),
        "large": log((5, 1), active=3 * ROLL_BYTES_MIN),
        "waits": log(active=9 * ROLL_BYTES_MIN, waits=True),
        "tiny": log(active=ROLL_BYTES_MIN - 1),
    }
    plan = plan_relief(logs, 3 * ROLL_BYTES_MIN)
    assert (plan.ends, plan.rolls) == ({"large": 10}, ["large"])
    assert plan_relief(logs, 1 << 40).rolls == ["large", "small"]


SEGMENTS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), max_size=5)
LOGS = st.dictionaries(
    st.integers(0, 9),
    st.builds(
        lambda rows, active, waits: log(*rows, active=active * ROLL_BYTES_MIN // 2, waits=waits),
        SEGMENTS,
        st.integers(0, 6),
        st.booleans(),
    ),
    max_size=5,
)


@given(LOGS, st.integers(0, 300))
def test_a_relief_is_enough_minimal_and_in_order(
    logs: dict[int, TieredLogSpace], missing_bytes: int
) -> None:
    plan = plan_relief(logs, missing_bytes)
    deleted = {
        key: [each for each in space.copied if each.end_offset <= plan.ends.get(key, 0)]
        for key, space in logs.items()
    }
    rows = [each for own in deleted.values() for each in own]
    everything = sum(each.size_bytes for space in logs.values() for each in space.copied)
    assert plan.segment_count == len(rows)
    assert plan.size_bytes == sum(each.size_bytes for each in rows)
    # It frees enough, or all that can be freed.
    assert plan.size_bytes >= min(missing_bytes, everything)
    # Without the segment that goes last, it would not be enough.
    last_sizes = [own[-1].size_bytes for own in deleted.values() if own]
    assert not rows or plan.size_bytes - max(last_sizes) < missing_bytes
    # Active segments are closed only if the copied ones are not enough.
    if plan.rolls:
        assert everything < missing_bytes
    for key in plan.rolls:
        assert not logs[key].has_uncopied
        assert logs[key].active_bytes >= ROLL_BYTES_MIN


@given(LOGS, st.integers(0, 300))
def test_each_deleted_segment_was_the_oldest_candidate(
    logs: dict[int, TieredLogSpace], missing_bytes: int
) -> None:
    plan = plan_relief(logs, missing_bytes)
    # The obvious algorithm: look at all logs for each segment.
    ends: dict[int, Offset] = {}
    taken = dict.fromkeys(logs, 0)
    freed = 0
    while freed < missing_bytes:
        candidates = [
            (space.copied[taken[key]].used_ms, at, key)
            for at, (key, space) in enumerate(logs.items())
            if taken[key] < len(space.copied)
        ]
        if not candidates:
            break
        key = min(candidates)[2]
        segment = logs[key].copied[taken[key]]
        ends[key] = segment.end_offset
        freed += segment.size_bytes
        taken[key] += 1
    assert plan.ends == ends
