"""The percentile of the requests since the last look."""

from math import log

import pytest

from ottla.node.network.latency_window import LatencyWindow
from ottla.node.network.request_times import RequestTimes
from ottla.wire.apis import FETCH, PRODUCE

MS = 1_000_000


def test_the_percentile_is_that_of_the_requests_since_the_last_look() -> None:
    times = RequestTimes()
    times.of(PRODUCE, 9).note_waited(0, 1, 2, 900 * MS)
    window = LatencyWindow(times, PRODUCE)
    assert window.p99_us() is None

    for _ in range(99):
        times.of(PRODUCE, 9).prompt.observe(2 * MS)
    times.of(PRODUCE, 11).note_waited(0, 1, 2, 500 * MS)
    times.of(FETCH, 12).note_waited(0, 1, 2, 900 * MS)
    first = window.p99_us()
    assert first is not None
    assert 2_000 <= first <= 2_500

    times.of(PRODUCE, 11).note_waited(0, 1, 2, 500 * MS)
    second = window.p99_us()
    assert second is not None
    assert 500_000 <= second <= 625_000
    assert window.p99_us() is None


def test_a_rise_by_a_tenth_is_seen() -> None:
    """The controllers slow moves down when producers wait a tenth longer than before."""
    times = RequestTimes()
    window = LatencyWindow(times, PRODUCE)
    for mean_us in range(900, 1_600, 17):
        found: list[int] = []
        for duration_us in (mean_us, mean_us * 1.1):
            for step in range(1_000):
                waited_us = -log(1 - (step + 0.5) / 1_000) * duration_us
                times.of(PRODUCE, 9).prompt.observe(round(waited_us * 1_000))
            p99_us = window.p99_us()
            assert p99_us is not None
            found.append(p99_us)
        assert found[0] == pytest.approx(mean_us * log(100), rel=0.05)
        assert 1.05 <= found[1] / found[0] <= 1.15
