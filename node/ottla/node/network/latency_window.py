"""Latency of one API's requests (99th percentile) since this value was last read. Pure."""

from itertools import accumulate

from ottla.node.network.request_times import BOUNDS_NS, RequestTimes

NS_PER_US = 1_000


class LatencyWindow:
    """99th percentile of the durations of one API's requests since this value was last read."""

    def __init__(self, times: RequestTimes, api_key: int) -> None:
        self._times = times
        self._api_key = api_key
        self._seen = times.counts_of(api_key)

    def p99_us(self) -> int | None:
        """Return the 99th percentile of request durations in µs, rounded up by at most a quarter,
        and start a new window. Returns None if no request was answered since the last call."""
        counts = self._times.counts_of(self._api_key)
        recent = [now - before for now, before in zip(counts, self._seen, strict=True)]
        self._seen = counts
        total = sum(recent)
        if not total:
            return None
        rank = -(-99 * total // 100)
        bucket = next(at for at, count in enumerate(accumulate(recent)) if count >= rank)
        return BOUNDS_NS[min(bucket, len(BOUNDS_NS) - 1)] // NS_PER_US
