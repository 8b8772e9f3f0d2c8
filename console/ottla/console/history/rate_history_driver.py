"""Computes rates of traffic for pages: the difference between two samples of the brokers' counters.

The samples of each admin client are stored. A page therefore shows the rates since the previous
sample, without waiting for a second sample. The same samples are the history of the nodes' metrics.
"""

from collections.abc import Mapping
from weakref import WeakKeyDictionary

import trio

from ottla.client.admin import Admin
from ottla.console.history.metric_history import MetricHistory
from ottla.insight.facts.traffic_driver import TrafficSample, sample_counters
from ottla.insight.rules.traffic_rates import TrafficRates, rates_between

SAMPLE_S_MIN = 2.0
"""Minimum seconds between two samples of the brokers' counters. Rates over a shorter time fluctuate
too much."""
SAMPLE_S_MAX = 120.0
"""Maximum seconds between two samples of the brokers' counters. Rates over a longer time do not
describe the present."""


class _Samples:
    def __init__(self) -> None:
        self.latest: TrafficSample | None = None
        self.rates: TrafficRates | None = None
        self.lock = trio.Lock()
        self.metrics = MetricHistory()


HISTORIES_MAX = 4
"""Maximum number of admin clients whose metrics over time are stored. Above it, the history of the
client that was used longest ago is deleted."""
BYTES_IN, BYTES_OUT = "topics.bytes.in", "topics.bytes.out"
"""Names of two metrics that the console computes for each broker: bytes that clients wrote to the
broker's topics, and bytes that clients read from them."""
_SAMPLES: WeakKeyDictionary[Admin, _Samples] = WeakKeyDictionary()


async def traffic_rates(admin: Admin) -> TrafficRates | None:
    """Return the traffic rates of brokers and topics, busiest first. Returns None if this is the
    first sample of an admin client, or if no broker reports its counters."""
    samples = _SAMPLES.setdefault(admin, _Samples())
    async with samples.lock:
        before, now_s = samples.latest, trio.current_time()
        if before is not None and now_s - before.at_s < SAMPLE_S_MIN:
            return samples.rates
        after = samples.latest = await sample_counters(admin)
        samples.metrics.add(after.at_s, _metrics_of(after))
        _forget_histories(admin)
        is_recent = before is not None and after.at_s - before.at_s <= SAMPLE_S_MAX
        samples.rates = None
        if before is not None and is_recent and after.figures:
            samples.rates = rates_between(before, after)
        return samples.rates


async def metric_history(admin: Admin) -> MetricHistory:
    """Return the history of the nodes' metrics. A new sample of the metrics is taken first."""
    await traffic_rates(admin)
    return _SAMPLES[admin].metrics


def _metrics_of(sample: TrafficSample) -> Mapping[int, Mapping[str, float]]:
    return {
        broker: {
            **figures,
            BYTES_IN: sum(one.bytes_in for one in sample.topics.get(broker, ())),
            BYTES_OUT: sum(one.bytes_out for one in sample.topics.get(broker, ())),
        }
        for broker, figures in sample.figures.items()
    }


def _forget_histories(latest: Admin) -> None:
    """Delete the histories of the clients that were used longest ago. The client `latest` was used
    last."""
    used = _SAMPLES.pop(latest)
    _SAMPLES[latest] = used  # now the last one
    for samples in list(_SAMPLES.values())[:-HISTORIES_MAX]:
        samples.metrics = MetricHistory()
