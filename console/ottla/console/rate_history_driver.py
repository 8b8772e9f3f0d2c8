"""Reads rates of traffic for pages: the difference between two samples of the brokers' counters.

The samples of each admin client are kept, so that a page that is opened or renewed again shows the
rates since the sample before. No page waits for a second sample.
"""

from weakref import WeakKeyDictionary

import trio

from ottla.client.admin import Admin
from ottla.insight.facts.traffic_driver import TrafficSample, sample_counters
from ottla.insight.rules.traffic_rates import TrafficRates, rates_between

SAMPLE_S_MIN = 2.0
"""Minimum time between two samples of the brokers' counters in seconds. Rates over less time
fluctuate too much."""
SAMPLE_S_MAX = 120.0
"""Maximum time between two samples of the brokers' counters in seconds. Rates over more time do not
show the present."""


class _Samples:
    def __init__(self) -> None:
        self.latest: TrafficSample | None = None
        self.rates: TrafficRates | None = None
        self.lock = trio.Lock()


_SAMPLES: WeakKeyDictionary[Admin, _Samples] = WeakKeyDictionary()


async def traffic_rates(admin: Admin) -> TrafficRates | None:
    """Return the traffic rates of brokers and topics, busiest first. None if this is the first
    sample of an admin client, or if no broker reports its counters."""
    samples = _SAMPLES.setdefault(admin, _Samples())
    async with samples.lock:
        before, now_s = samples.latest, trio.current_time()
        if before is not None and now_s - before.at_s < SAMPLE_S_MIN:
            return samples.rates
        after = samples.latest = await sample_counters(admin)
        is_recent = before is not None and after.at_s - before.at_s <= SAMPLE_S_MAX
        samples.rates = None
        if before is not None and is_recent and after.figures:
            samples.rates = rates_between(before, after)
        return samples.rates
