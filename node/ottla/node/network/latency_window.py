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
        """Return the 99th percentile of request durations in µs, and start a new window. Returns
        None if no request was answered since the last call.

        Durations are counted in buckets whose bounds differ by a quarter. They are assumed to be
        distributed evenly within a bucket.
        """
        counts = self._times.counts_of(self._api_key)
        recent = [now - before for now, before in zip(counts, self._seen, strict=True)]
        self._seen = counts
        total = sum(recent)
        if not total:
            return None
        rank = -(-99 * total // 100)
        sums = list(accumulate(recent))
        bucket = next(at for at, count in enumerate(sums) if count >= rank)
        if bucket >= len(BOUNDS_NS):
            return BOUNDS_NS[-1] // NS_PER_US
        low_ns = BOUNDS_NS[bucket - 1] if bucket else 0
        in_bucket = rank - sums[bucket] + recent[bucket]
        width_ns = BOUNDS_NS[bucket] - low_ns
        return (low_ns + width_ns * in_bucket // recent[bucket]) // NS_PER_US
