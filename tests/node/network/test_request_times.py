"""Times of requests by stage, measured with a stopwatch set by hand."""

from ottla.node.network.request_times import NS_PER_MS, RequestTimes
from ottla.telemetry.metrics.instruments import Summary
from ottla.wire.apis import FETCH, METADATA

BEAN = "kafka_network_requestmetrics_"


class Stopwatch:
    def __init__(self) -> None:
        self.now_ns = 5_000 * NS_PER_MS

    def pass_ms(self, ms: float) -> None:
        self.now_ns += round(ms * NS_PER_MS)


def samples_of(times: RequestTimes, name: str) -> dict[tuple[str, ...], object]:
    (family,) = [each for each in times.families(0) if each and each.name == BEAN + name]
    return dict(sample for sample in family.samples if sample is not None)


def test_what_its_handler_answers_has_local_time_only() -> None:
    times, watch = RequestTimes(), Stopwatch()
    started_ns = watch.now_ns
    watch.pass_ms(4)
    times.of(METADATA, 9).prompt.observe(watch.now_ns - started_ns)

    for name in ("localtimems", "totaltimems"):
        summary = samples_of(times, name)["Metadata",]
        assert isinstance(summary, Summary)
        assert (summary.value_count, summary.value_sum) == (1, 4)
        assert 3.2 < summary.quantiles[0][1] < 5
    waited = samples_of(times, "remotetimems")["Metadata",]
    assert isinstance(waited, Summary)
    assert waited.value_count == 0


def test_what_waits_has_remote_time_too() -> None:
    times, watch = RequestTimes(), Stopwatch()
    started_ns = watch.now_ns
    watch.pass_ms(1)
    handled_ns = watch.now_ns
    watch.pass_ms(20)
    times.of(FETCH, 17).note_waited(0, started_ns, handled_ns, watch.now_ns)

    sums = {
        name: samples_of(times, name)["Fetch",].value_sum  # type: ignore[attr-defined]
        for name in ("localtimems", "remotetimems", "totaltimems")
    }
    assert sums == {"localtimems": 1, "remotetimems": 20, "totaltimems": 21}


def test_each_time_is_counted_once_however_often_it_is_read() -> None:
    times = RequestTimes().of(FETCH, 17)
    for number in range(300):
        times.note_prompt(number, 2 * number)
        if number % 7 == 0:
            times.note_waited(number, 0, number, 3 * number)
        if number % 50 == 0:
            assert times.prompt.count == number + 1
    assert (times.prompt.count, times.prompt.sum) == (300, 2 * sum(range(300)))
    waited = range(0, 300, 7)
    assert (times.queued.count, times.queued.sum) == (343, sum(range(300)) + sum(waited))
    assert (times.local.count, times.local.sum) == (43, sum(waited))
    assert (times.remote.count, times.remote.sum) == (43, 2 * sum(waited))
    assert (times.total.count, times.total.sum) == (43, 3 * sum(waited))


def test_fetches_are_counted_of_consumers_of_followers_and_in_total() -> None:
    times = RequestTimes()
    for _ in range(3):
        times.of(FETCH, 17).prompt.observe(0)
    times.of(FETCH, 12).prompt.observe(0)
    for _ in range(5):
        times.of_followers(17).prompt.observe(0)

    assert samples_of(times, "requests_total") == {
        ("FetchConsumer", "17"): 3,
        ("Fetch", "17"): 8,
        ("FetchConsumer", "12"): 1,
        ("Fetch", "12"): 1,
        ("FetchFollower", "17"): 5,
    }
    counts = {
        labels: summary.value_count  # type: ignore[attr-defined]
        for labels, summary in samples_of(times, "totaltimems").items()
    }
    assert counts == {("FetchConsumer",): 4, ("Fetch",): 9, ("FetchFollower",): 5}


def test_without_a_stopwatch_requests_are_counted_and_take_no_time() -> None:
    times = RequestTimes()
    times.of(METADATA, 9).prompt.observe(0)

    assert samples_of(times, "requests_total") == {("Metadata", "9"): 1}
    assert samples_of(times, "totaltimems")["Metadata",].value_sum == 0  # type: ignore[attr-defined]
