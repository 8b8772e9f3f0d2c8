"""Rate and latency of recent writes."""

from ottla.broker.share_state.recent_writes import WINDOW_MS, RecentWrites


def test_recent_writes_are_those_of_the_last_two_windows() -> None:
    writes = RecentWrites(0)
    assert (writes.rate(0), writes.average_ms(0), writes.max_ms(0)) == (0, 0, 0)
    for at in range(10):
        writes.note(at * 1_000, at * 1_000 + 10 + at)
    assert writes.rate(10_000) == 1.0
    assert (writes.average_ms(10_000), writes.max_ms(10_000)) == (14.5, 19)
    writes.note(WINDOW_MS, WINDOW_MS + 4)
    assert writes.max_ms(2 * WINDOW_MS - 1) == 19
    assert writes.rate(2 * WINDOW_MS - 1) == 11 * 1_000 / (2 * WINDOW_MS - 1)
    assert (writes.average_ms(2 * WINDOW_MS), writes.max_ms(2 * WINDOW_MS)) == (4, 4)
    assert writes.max_ms(9 * WINDOW_MS) == 0
    assert writes.total == 11
