"""All threads together begin at most the allowed operations in a second, and not many fewer."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.jepsen.workloads.load import MS, SECOND
from ottla.jepsen.workloads.pace import ThreadPace


@given(st.integers(1, 32), st.integers(100, 2_000), st.sampled_from([1, 10]))
def test_threads_that_ask_in_turns_keep_the_pace(
    thread_count: int, ops_per_s: int, look_ms: int
) -> None:
    pace = ThreadPace(thread_count, ops_per_s)
    begun = 0
    for now_ns in range(0, 2 * SECOND, look_ms * MS):
        for thread in range(thread_count):
            begun += pace.may_begin(thread, now_ns)
    asked = 2 * 1_000 // look_ms * thread_count
    assert begun <= 2 * ops_per_s + 3 * thread_count
    assert begun >= min(2 * ops_per_s, asked) * 0.9 - thread_count


def test_who_was_away_for_long_does_not_make_up_for_it() -> None:
    pace = ThreadPace(1, 100)
    assert pace.may_begin(0, 0)
    begun = sum(pace.may_begin(0, 10 * SECOND + look) for look in range(10))
    assert begun <= 3
