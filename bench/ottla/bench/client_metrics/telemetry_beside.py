"""Cost of metric pushes to other clients: the latency of a steady producer, with and without
pushes.

All clients stay connected throughout, and each has pushed once before the measurement.  Phases with
pushes and phases without pushes alternate in one run, so that other load of the machine affects
both. Figures are medians over the phases of a kind.

The CPU time of the broker's event loop in the phases without pushes is the cost of the connections.
The additional CPU time in the phases with pushes, divided by the number of pushes, is the cost of a
push.
"""

import time
from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

from ottla.bench.client_metrics.pushing_clients import (
    Address,
    Progress,
    PushingClients,
    allow_files,
)
from ottla.bench.client_metrics.steady_produce import SteadyProduce
from ottla.bench.processes import main_thread_seconds, usage_of
from ottla.bench.requests import RequestLatency
from ottla.bench.result import MB

PHASE_S = 4.0
"""Length in seconds of a phase with or without pushes of metrics. A shorter phase has too few
requests for a p99. A longer phase is disturbed more by other load of the machine."""
SETTLE_S = 0.25
"""Seconds at the start of a phase whose produce requests are not counted."""
AT_ONCE = 0.0, 1.0
"""Earliest and latest time of each client's first push, in fractions of its push interval. With
this range, pushes reach their full rate in the first phase."""


class PushPhase(NamedTuple):
    """One phase of the measurement, with or without metric pushes: its start and end, the number of
    pushes, and the CPU time of the brokers."""

    has_pushes: bool
    began_at: float
    ended_at: float
    pushes: int
    loop_s: float
    """CPU seconds that the brokers' event loops used during this phase of the measurement."""

    @property
    def loop_share(self) -> float:
        """CPU seconds that the brokers' event loops used per second of this phase."""
        return self.loop_s / (self.ended_at - self.began_at)

    def waits_ms(self, waited: Sequence[RequestLatency]) -> list[float]:
        """Return the sorted latencies in ms of the producer's requests that were sent in the
        phase."""
        begin = self.began_at + SETTLE_S
        return sorted(
            1e3 * each.seconds for each in waited if begin <= each.sent_at < self.ended_at
        )


def run_beside(
    address: Address,
    *,
    clients: int,
    seconds: float,
    rate: int,
    topic: str,
    pids: list[int],
    progress: Progress,
) -> dict[str, Any]:
    """Run one producer at a steady rate, while clients push metrics in every second phase. Returns
    the latencies and CPU costs of the phases with and without pushes."""
    allow_files(clients)
    pushing = PushingClients(address)
    phases: list[PushPhase] = []
    with pushing.opened(clients):
        pushing.check_is_asked()
        pushing.begin(AT_ONCE)
        # The first pushes of clients cost more.
        pushing.push_for(pushing.interval_ms / 1e3, progress)
        with SteadyProduce(address, topic, rate) as producer:
            rounds = max(1, round(seconds / 2 / PHASE_S))
            for number in range(rounds):
                # The order of the two kinds of phase alternates, so that a drift of the machine
                # affects both alike.
                for has_pushes in (number % 2 == 0, number % 2 == 1):
                    phases.append(_phase(pushing, has_pushes, pids))
                    progress(int(len(phases) * PHASE_S))
        pushing.finish()
        rss_bytes = usage_of(pids).rss_bytes
    figures = _figures(pushing, phases, producer.waited)
    if pids:
        figures["push_loop_us_each"] = round(1e6 * cost_of_push_s(phases), 1)
        figures["broker_rss_mb"] = round(rss_bytes / MB, 1)
    return figures


def cost_of_push_s(phases: Sequence[PushPhase]) -> float:
    """Return the CPU seconds of the broker's event loop that one push of metrics takes."""
    without = median(phase.loop_share for phase in phases if not phase.has_pushes)
    costs = [
        (phase.loop_share - without) * (phase.ended_at - phase.began_at) / phase.pushes
        for phase in phases
        if phase.pushes
    ]
    return median(costs) if costs else 0.0


def _phase(pushing: PushingClients, has_pushes: bool, pids: list[int]) -> PushPhase:
    sent, loop_s, began_at = pushing.outcome.sent, main_thread_seconds(pids), time.perf_counter()
    if has_pushes:
        pushing.push_for(PHASE_S, lambda _: None)
    else:
        pushing.rest(PHASE_S)
    return PushPhase(
        has_pushes,
        began_at,
        time.perf_counter(),
        pushing.outcome.sent - sent,
        main_thread_seconds(pids) - loop_s,
    )


def _figures(
    pushing: PushingClients, phases: Sequence[PushPhase], waited: Sequence[RequestLatency]
) -> dict[str, Any]:
    outcome = pushing.outcome
    pushes = sum(phase.pushes for phase in phases)
    pushing_s = sum(phase.ended_at - phase.began_at for phase in phases if phase.has_pushes)
    figures: dict[str, Any] = {
        "what": "telemetry beside produce",
        "clients": pushing.count,
        "interval_ms": pushing.interval_ms,
        "phases": len(phases),
        "pushes": outcome.sent,
        "pushes_per_second": round(pushes / pushing_s),
        "lost": outcome.sent - sum(outcome.codes.values()),
        "codes": dict(outcome.codes),
        "load_late_ms_max": round(outcome.late_ms_max, 1),
    }
    for name, quantile in (("p50", 0.5), ("p99", 0.99)):
        found = [
            median(
                waits[int(quantile * (len(waits) - 1))]
                for phase in phases
                if phase.has_pushes is has_pushes and (waits := phase.waits_ms(waited))
            )
            for has_pushes in (False, True)
        ]
        figures[f"produce_{name}_ms_without"] = round(found[0], 3)
        figures[f"produce_{name}_ms_with"] = round(found[1], 3)
        figures[f"produce_{name}_ratio"] = round(found[1] / found[0], 3)
    return figures
