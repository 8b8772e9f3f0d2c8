"""Times of requests by phase, as in Kafka's MBean `kafka.network:type=RequestMetrics`.

Pure: the caller passes times of the event loop's clock (`loop_clock`), which is 0 in simulated
time. A request that is answered without waiting costs two clock reads, and two values that are
counted later in a batch. (A quantile sketch, which computes a logarithm for each value, would cost
more without better results.)

Kafka's phases of a request, and their meaning in Ottla:

* RequestQueueTimeMs: from the start of the iteration that read it until the request is started;
* LocalTimeMs: from decoding until its handler responds or leaves the request waiting;
* RemoteTimeMs: waiting for replicas, for records, for another node, or for a group;
* TotalTimeMs: the sum of local and remote time;
* ResponseQueueTimeMs: time for which a response waited for the responses to earlier requests.
  Responses are sent in the order of requests, and several requests of a connection may be in
  flight;
* ResponseSendTimeMs: the time until the socket has accepted the response, if that exceeds the
  iteration.  The client then reads slowly, or the response is large.  If several responses are sent
  together, it is the time of the last one.

Time in the socket's buffers, before a read and after a write, cannot be measured.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.model.errors import code_of
from ottla.telemetry.metrics.instruments import (
    UNCOUNTED_MAX,
    Counters,
    Family,
    Histogram,
    MetricKind,
    Sample,
    summary_of,
)
from ottla.telemetry.metrics.kafka_names import prometheus_name
from ottla.wire.apis import API, FETCH

NS_PER_MS = 1_000_000

BOUNDS_NS = tuple(round(10_000 * 1.25**step) for step in range(76))
"""Upper bounds in nanoseconds of the buckets in histograms of request times, from 10 µs to more
than three minutes. The error of a quantile is at most 12 %. With closer bounds, the histograms need
more memory and scrapes take longer."""

WINDOW_MS = 60_000
"""Window in milliseconds for quantiles of request times. The quantiles cover the last one to two
minutes, which suits dashboards with a scrape each minute."""

BEAN = "kafka.network:type=RequestMetrics,name="
FETCH_FOLLOWER = "FetchFollower"
FETCH_CONSUMER = "FetchConsumer"


class Times:
    """Durations of the requests for one API in one version."""

    __slots__ = (
        "_histograms", "_local", "_prompt", "_queued", "_remote", "_total", "answer_queued",
        "answer_sent",
    )  # fmt: skip

    def __init__(self) -> None:
        # Values that are not counted yet. One call adds the values of a request to several lists.
        self._queued: list[int] = []
        self._prompt: list[int] = []
        self._local: list[int] = []
        self._remote: list[int] = []
        self._total: list[int] = []
        self._histograms = [Histogram(BOUNDS_NS) for _ in range(5)]
        self.answer_queued = Histogram(BOUNDS_NS)
        self.answer_sent = Histogram(BOUNDS_NS)
        """Queue times and send times of the few responses that could not be sent at once."""

    def note_prompt(self, queued_ns: int, total_ns: int) -> None:
        """Record the queue time and the duration of a request that was answered without waiting, in
        nanoseconds."""
        queued = self._queued
        queued.append(queued_ns)
        self._prompt.append(total_ns)
        if len(queued) >= UNCOUNTED_MAX:
            self._count()

    def note_waited(self, queued_ns: int, started_ns: int, handled_ns: int, now_ns: int) -> None:
        """Record the times of a request that had to wait: its handler started at `started_ns` and
        returned at `handled_ns`, and its response is ready at `now_ns` (all in nanoseconds)."""
        queued = self._queued
        queued.append(queued_ns)
        self._local.append(handled_ns - started_ns)
        self._remote.append(now_ns - handled_ns)
        self._total.append(now_ns - started_ns)
        if len(queued) >= UNCOUNTED_MAX:
            self._count()

    def _count(self) -> None:
        """Count the recorded values in the histograms."""
        lists = self._queued, self._prompt, self._local, self._remote, self._total
        for histogram, values in zip(self._histograms, lists, strict=True):
            histogram.observe_all(values)
            values.clear()

    @property
    def queued(self) -> Histogram:
        """Times from the start of an event-loop iteration until a request is started."""
        self._count()
        return self._histograms[0]

    @property
    def prompt(self) -> Histogram:
        """Durations of requests that were answered without waiting. All of their time is local."""
        self._count()
        return self._histograms[1]

    @property
    def local(self) -> Histogram:
        """Local times of requests that waited for replicas, records, another node or a group."""
        self._count()
        return self._histograms[2]

    @property
    def remote(self) -> Histogram:
        """Remote times of requests that waited for replicas, records, another node or a group."""
        self._count()
        return self._histograms[3]

    @property
    def total(self) -> Histogram:
        """Durations of requests that waited for replicas, records, another node or a group."""
        self._count()
        return self._histograms[4]


class TimedRequests(NamedTuple):
    """Kind of requests that metrics report separately (such as fetches from followers), with their
    times."""

    name: str
    times: tuple[Times, ...]


class RequestTimes:
    """Times of the requests of every API, and counts of errors."""

    def __init__(self) -> None:
        self.errors = Counters()
        """Numbers of error responses by request and error code, including errors of single
        partitions."""
        self._times: dict[tuple[int, int], Times] = {}
        self._of_followers: dict[int, Times] = {}

    def of(self, api_key: int, version: int) -> Times:
        """Return the times of requests for one API in one version. The `Times` object is created at
        the first request."""
        found = self._times.get((api_key, version))
        if found is None:
            found = self._times[api_key, version] = Times()
        return found

    def of_followers(self, version: int) -> Times:
        """Return the times of fetches from follower replicas, in one version of Fetch."""
        found = self._of_followers.get(version)
        if found is None:
            found = self._of_followers[version] = Times()
        return found

    def count(self) -> int:
        """Return the number of requests answered so far, for all APIs together."""
        return sum(map(_count, (*self._times.values(), *self._of_followers.values())))

    def counts_of(self, api_key: int) -> list[int]:
        """Return the number of one API's requests in each bucket of the total time, for all
        versions together."""
        found = [times for (key, _), times in self._times.items() if key == api_key]
        histograms = [part for times in found for part in (times.prompt, times.total)]
        counts = [0] * (len(BOUNDS_NS) + 1)
        for histogram in histograms:
            counts = [one + more for one, more in zip(counts, histogram.counts, strict=True)]
        return counts

    def note_refusal(self, api_key: int, code: int) -> None:
        """Count an error code in the response to a request, or in one of its partitions."""
        self.errors.of(API[api_key].name, code_of(code).name).value += 1

    # ---- metrics

    def families(self, now_ms: int) -> Iterator[Family | None]:
        """Yield the metric families for requests: their number, and their times by phase."""
        yield Family(
            prometheus_name(f"{BEAN}RequestsPerSec"),
            MetricKind.COUNTER,
            "Requests answered.",
            ("request", "version"),
            self._counts(),
        )
        yield Family(
            prometheus_name(f"{BEAN}ErrorsPerSec"),
            MetricKind.COUNTER,
            "Errors of requests, or of partitions of Produce and Fetch.",
            ("request", "error"),
            self.errors.samples(),
        )
        for name, text, parts in (
            (
                "RequestQueueTimeMs",
                "from reading a request until its processing starts",
                ("queued",),
            ),
            ("LocalTimeMs", "spent on a request itself", ("prompt", "local")),
            (
                "RemoteTimeMs",
                "that requests wait for replicas or records, of those that wait",
                ("remote",),
            ),
            (
                "TotalTimeMs",
                "from the start of processing a request until its response",
                ("prompt", "total"),
            ),
            (
                "ResponseQueueTimeMs",
                "that responses wait for earlier ones, of those that wait",
                ("answer_queued",),
            ),
            (
                "ResponseSendTimeMs",
                "that a full socket takes to accept a response",
                ("answer_sent",),
            ),
        ):
            yield Family(
                prometheus_name(f"{BEAN}{name}"),
                MetricKind.SUMMARY,
                f"Time {text}; quantiles of the last minutes.",
                ("request",),
                self._summaries(parts, now_ms),
            )

    def _counts(self) -> Iterator[Sample]:
        for (api_key, version), times in list(self._times.items()):
            count = times.prompt.count + times.total.count
            name = FETCH_CONSUMER if api_key == FETCH else API[api_key].name
            yield (name, str(version)), count
            if api_key == FETCH:
                of_followers = self._of_followers.get(version)
                count += 0 if of_followers is None else _count(of_followers)
                yield (API[api_key].name, str(version)), count
        for version, times in list(self._of_followers.items()):
            yield (FETCH_FOLLOWER, str(version)), _count(times)

    def _summaries(self, parts: Iterable[str], now_ms: int) -> Iterator[Sample | None]:
        for name, all_times in self._kinds():
            histograms = [getattr(times, part) for times in all_times for part in parts]
            yield (name,), summary_of(histograms, now_ms, window_ms=WINDOW_MS, unit=NS_PER_MS)
            yield None

    def _kinds(self) -> list[TimedRequests]:
        """Return the kinds of requests that metrics report. Fetch has three: all fetches, fetches
        from consumers, and fetches from followers."""
        by_key: dict[int, list[Times]] = {}
        for (api_key, _), times in self._times.items():
            by_key.setdefault(api_key, []).append(times)
        of_followers = tuple(self._of_followers.values())
        kinds = []
        for api_key, found in sorted(by_key.items()):
            if api_key == FETCH:
                kinds.append(TimedRequests(FETCH_CONSUMER, tuple(found)))
                found += of_followers
            kinds.append(TimedRequests(API[api_key].name, tuple(found)))
        if of_followers:
            kinds.append(TimedRequests(FETCH_FOLLOWER, of_followers))
        return kinds


def _count(times: Times) -> int:
    return times.prompt.count + times.total.count
