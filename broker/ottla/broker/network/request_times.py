"""How long requests take, and where the time goes: `kafka.network:type=RequestMetrics`.

Pure: it is given instants of the loop's stopwatch (`loop_clock`), which is 0 in simulated time.  A
request that its handler answers costs two looks at the stopwatch, and two values that are counted
later, with many others.  (A sketch that needs a logarithm for each value costs more and tells no
more.)

What Kafka splits a request's time into, and what it is here:

* RequestQueueTimeMs: from the beginning of the turn that read it until it is taken up;
* LocalTimeMs: decoding, and its handler, up to the answer or up to where it waits;
* RemoteTimeMs: waiting: for replicas, for records, for another node, for a group;
* TotalTimeMs: local and remote;
* ResponseQueueTimeMs: from an answer until those before it are there too, of those that wait so
  (answers keep the order of requests, and several requests of a connection may be under way);
* ResponseSendTimeMs: until the socket has taken an answer, of those that it does not take in the
  turn in which it first could (the client reads slowly, or it is large).  Where several answers
  leave together it is told of the last one.

Time in the socket's buffers, before we read it and after it took what we wrote, is nobody's to see
here.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.model.errors import code_of
from ottla.telemetry.instruments import Counters, Family, Histogram, MetricKind, Sample, summary_of
from ottla.telemetry.kafka_names import prometheus_name
from ottla.wire.apis import API, FETCH

NS_PER_MS = 1_000_000

BOUNDS_NS = tuple(round(10_000 * 1.25**step) for step in range(76))
"""From 10 µs to more than three minutes, so that a quantile is off by 12 % at most.  Closer ones
take more memory and make a scrape longer; they cost a request next to nothing."""

WINDOW_MS = 60_000
"""Quantiles speak of the last one to two minutes, as dashboards that are asked each minute want."""

BEAN = "kafka.network:type=RequestMetrics,name="
FETCH_FOLLOWER = "FetchFollower"
FETCH_CONSUMER = "FetchConsumer"


class Times:
    """The times of one API, in one version."""

    __slots__ = ("answer_queued", "answer_sent", "local", "prompt", "queued", "remote", "total")

    def __init__(self) -> None:
        self.queued = Histogram(BOUNDS_NS)
        self.prompt = Histogram(BOUNDS_NS)
        """What did not wait: all of its time is local."""
        self.local = Histogram(BOUNDS_NS)
        self.remote = Histogram(BOUNDS_NS)
        self.total = Histogram(BOUNDS_NS)
        """These three are of what did wait."""
        self.answer_queued = Histogram(BOUNDS_NS)
        self.answer_sent = Histogram(BOUNDS_NS)
        """These are of the few answers that could not leave at once."""

    def note(self, started_ns: int, handled_ns: int, now_ns: int) -> None:
        """Count an answer that is ready now; `handled_ns` is 0 where its handler gave it."""
        if handled_ns:
            self.local.observe(handled_ns - started_ns)
            self.remote.observe(now_ns - handled_ns)
            self.total.observe(now_ns - started_ns)
        else:
            self.prompt.observe(now_ns - started_ns)


class Timed(NamedTuple):
    """A kind of request as dashboards see it, and the times that are its own."""

    name: str
    times: tuple[Times, ...]


class RequestTimes:
    """The times of every API that was asked for, and what was refused."""

    def __init__(self) -> None:
        self.errors = Counters()
        """Refusals by request and code, where the answer as a whole, or a partition, is one."""
        self._times: dict[tuple[int, int], Times] = {}
        self._of_followers: dict[int, Times] = {}

    def of(self, api_key: int, version: int) -> Times:
        """Return where the times of an API in a version belong."""
        found = self._times.get((api_key, version))
        if found is None:
            found = self._times[api_key, version] = Times()
        return found

    def of_followers(self, version: int) -> Times:
        """Return where the times of followers' fetches belong."""
        found = self._of_followers.get(version)
        if found is None:
            found = self._of_followers[version] = Times()
        return found

    def note_refusal(self, api_key: int, code: int) -> None:
        """Count a refusal of a request, or of a partition of it."""
        self.errors.of(API[api_key].name, code_of(code).name).value += 1

    # ---- what is told

    def families(self, now_ms: int) -> Iterator[Family | None]:
        """Yield how many requests there were, and each part of their time."""
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
            "Refusals of requests, or of partitions of Produce and Fetch.",
            ("request", "error"),
            self.errors.samples(),
        )
        for name, text, parts in (
            ("RequestQueueTimeMs", "until a request that was read is taken up", ("queued",)),
            ("LocalTimeMs", "spent on a request itself", ("prompt", "local")),
            ("RemoteTimeMs", "a request waits, of those that do", ("remote",)),
            ("TotalTimeMs", "from taking a request up until its answer", ("prompt", "total")),
            (
                "ResponseQueueTimeMs",
                "answers wait for others, of those that do",
                ("answer_queued",),
            ),
            ("ResponseSendTimeMs", "a full socket takes for an answer", ("answer_sent",)),
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

    def _kinds(self) -> list[Timed]:
        """Return the kinds of requests; Fetch is told as Kafka does: of all, and of each sort."""
        by_key: dict[int, list[Times]] = {}
        for (api_key, _), times in self._times.items():
            by_key.setdefault(api_key, []).append(times)
        of_followers = tuple(self._of_followers.values())
        kinds = []
        for api_key, found in sorted(by_key.items()):
            if api_key == FETCH:
                kinds.append(Timed(FETCH_CONSUMER, tuple(found)))
                found += of_followers
            kinds.append(Timed(API[api_key].name, tuple(found)))
        if of_followers:
            kinds.append(Timed(FETCH_FOLLOWER, of_followers))
        return kinds


def _count(times: Times) -> int:
    return times.prompt.count + times.total.count
