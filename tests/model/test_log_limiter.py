"""Lines of strangers in the log: a few a window, the others counted."""

from ottla.model.log_limiter import LINES_PER_WINDOW_MAX, WINDOW_MS, LogLimiter


def test_a_flood_of_log_lines_is_cut_and_counted() -> None:
    limiter = LogLimiter()
    admitted = [limiter.admit(0) for _ in range(1000)]
    assert admitted[:LINES_PER_WINDOW_MAX] == [0] * LINES_PER_WINDOW_MAX
    assert set(admitted[LINES_PER_WINDOW_MAX:]) == {None}
    assert limiter.admit(WINDOW_MS) == 1000 - LINES_PER_WINDOW_MAX
    assert limiter.admit(WINDOW_MS) == 0
