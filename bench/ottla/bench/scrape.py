"""Cost of Prometheus scrapes to a broker: time and size of /metrics, and the latency of requests
during a scrape.

The benchmark uses only a broker's listeners, so it works with any broker that exports its metrics.
While the metrics are fetched, another connection sends small requests one after the other.  The
longest latency during a fetch is shown together with the longest latency without one.  The
difference reveals whether scrapes block the broker.
"""

import http.client
import socket
import threading
import time
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

from ottla.bench.requests import SILENCE_S, RequestLatency, dial, frame_of
from ottla.model.errors import ErrorCode, RefusedError
from ottla.wire.messages.api_versions_request import ApiVersionsRequest

API_VERSIONS_VERSION = 0
REQUEST_PAUSE_S = 0.000_5
"""Pause in seconds between two small requests to the broker. With a shorter pause, shorter
interruptions are detected, but the requests themselves become a load."""

CALM_S = 2.0
PATH = "/metrics"


class Prober:
    """Client that sends small requests one after the other until it is stopped, and records the
    latencies."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.waited: list[RequestLatency] = []
        self._socket = dial(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Prober":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopping = True
        self._thread.join()
        self._socket.close()

    def longest_ms(self, began_at: float, ended_at: float) -> float:
        """Return the longest latency in ms of the requests that overlap the given time span."""
        waits = [
            each.seconds
            for each in self.waited
            if each.sent_at + each.seconds >= began_at and each.sent_at <= ended_at
        ]
        return 1e3 * max(waits, default=0.0)

    def _run(self) -> None:
        frame = frame_of(ApiVersionsRequest(), API_VERSIONS_VERSION)
        stream = self._socket.makefile("rb")
        while not self._is_stopping:
            sent_at = time.perf_counter()
            self._socket.sendall(frame)
            stream.read(int.from_bytes(stream.read(4), "big"))
            self.waited.append(RequestLatency(sent_at, time.perf_counter() - sent_at))
            time.sleep(REQUEST_PAUSE_S)


class Scrape(NamedTuple):
    """Times and size of one fetch (scrape) of a broker's metrics."""

    seconds: float
    byte_count: int
    row_count: int
    """Number of samples (lines) of metrics in the response, or 0 if it was compressed."""
    longest_wait_ms: float


def run_scrapes(
    broker: tuple[str, int],
    metrics: tuple[str, int],
    *,
    rounds: int,
    progress: Callable[[int], None],
) -> dict[str, Any]:
    """Fetch a broker's metrics `rounds` times, alternately plain and compressed. Returns measured
    times and sizes by name, most of them medians."""
    plain: list[Scrape] = []
    packed: list[Scrape] = []
    with Prober(broker) as prober:
        began_at = time.perf_counter()
        time.sleep(CALM_S)
        calm_ms = prober.longest_ms(began_at, time.perf_counter())
        for done in range(rounds):
            plain.append(_scrape(metrics, prober, is_packed=False))
            packed.append(_scrape(metrics, prober, is_packed=True))
            progress(done + 1)
    return {
        "what": "scrape",
        "rounds": rounds,
        "rows": plain[-1].row_count,
        "bytes": plain[-1].byte_count,
        "gzip_bytes": packed[-1].byte_count,
        "plain_ms": _median_ms(plain),
        "gzip_ms": _median_ms(packed),
        "longest_wait_calm_ms": round(calm_ms, 2),
        "longest_wait_plain_ms": round(max(each.longest_wait_ms for each in plain), 2),
        "longest_wait_gzip_ms": round(max(each.longest_wait_ms for each in packed), 2),
    }


def _median_ms(scrapes: list[Scrape]) -> float:
    return round(1e3 * median(each.seconds for each in scrapes), 1)


def _scrape(metrics: tuple[str, int], prober: Prober, *, is_packed: bool) -> Scrape:
    connection = http.client.HTTPConnection(*metrics, timeout=SILENCE_S)
    connection.sock = dial(metrics)
    began_at = time.perf_counter()
    connection.request("GET", PATH, headers={"Accept-Encoding": "gzip"} if is_packed else {})
    response = connection.getresponse()
    body = response.read()
    ended_at = time.perf_counter()
    connection.close()
    if response.status != http.client.OK:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"{PATH}: HTTP status {response.status}")
    rows = 0 if is_packed else sum(not line.startswith(b"#") for line in body.splitlines())
    return Scrape(ended_at - began_at, len(body), rows, prober.longest_ms(began_at, ended_at))
