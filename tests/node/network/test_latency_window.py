"""The percentile of the requests since the last look."""

from ottla.node.network.latency_window import LatencyWindow
from ottla.node.network.request_times import RequestTimes
from ottla.wire.apis import FETCH, PRODUCE

MS = 1_000_000


def test_the_percentile_is_that_of_the_requests_since_the_last_look() -> None:
    times = RequestTimes()
    times.of(PRODUCE, 9).note_waited(1, 2, 900 * MS)
    window = LatencyWindow(times, PRODUCE)
    assert window.p99_us() is None

    for _ in range(99):
        times.of(PRODUCE, 9).prompt.observe(2 * MS)
    times.of(PRODUCE, 11).note_waited(1, 2, 500 * MS)
    times.of(FETCH, 12).note_waited(1, 2, 900 * MS)
    first = window.p99_us()
    assert first is not None
    assert 2_000 <= first <= 2_500

    times.of(PRODUCE, 11).note_waited(1, 2, 500 * MS)
    second = window.p99_us()
    assert second is not None
    assert 500_000 <= second <= 625_000
    assert window.p99_us() is None
