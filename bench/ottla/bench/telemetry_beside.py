"""What clients that report cost all others: the latency of a steady producer, with and without.

All clients stay connected and known throughout; each has pushed once before it begins.  Phases in
which they push and phases in which they do not take turns, in one sitting, so that whatever else
the machine does meets both; what is told is the median of each kind.  The loop's CPU of the phases
without is what it costs to be there at all: the difference to those with, for each push, is what a
push costs.
"""

import time
from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

from ottla.bench.processes import main_thread_seconds, usage_of
from ottla.bench.requests import Waited
from ottla.bench.result import MB
from ottla.bench.steady_produce import SteadyProduce
from ottla.bench.telemetry_crowd import Address, Crowd, Progress, allow_files

PHASE_S = 4.0
"""Shorter has too few requests for a p99, longer meets other troubles of the machine."""
SETTLE_S = 0.25
"""The beginning of a phase, whose requests are not counted."""
AT_ONCE = 0.0, 1.0
"""When clients push first, in intervals: from the first phase on they push at their full rate."""


class PushPhase(NamedTuple):
    """One stretch of time, with or without pushes."""

    has_pushes: bool
    began_at: float
    ended_at: float
    pushes: int
    loop_s: float
    """CPU seconds of the brokers' loops."""

    @property
    def loop_share(self) -> float:
        """The loop's CPU seconds a second."""
        return self.loop_s / (self.ended_at - self.began_at)

    def waits_ms(self, waited: Sequence[Waited]) -> list[float]:
        """Return how long the requests that were sent in it took, sorted."""
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
    """Let clients push in half of the time, and one producer send at a rate in all of it."""
    allow_files(clients)
    crowd = Crowd(address)
    phases: list[PushPhase] = []
    with crowd.opened(clients):
        crowd.check_is_asked()
        crowd.begin(AT_ONCE)
        crowd.go_on(crowd.interval_ms / 1e3, progress)  # a first push is not like the others
        with SteadyProduce(address, topic, rate) as producer:
            rounds = max(1, round(seconds / 2 / PHASE_S))
            for number in range(rounds):
                # With and without, then without and with: a drift meets both alike.
                for has_pushes in (number % 2 == 0, number % 2 == 1):
                    phases.append(_phase(crowd, has_pushes, pids))
                    progress(int(len(phases) * PHASE_S))
        crowd.finish()
        rss_bytes = usage_of(pids).rss_bytes
    figures = _figures(crowd, phases, producer.waited)
    if pids:
        figures["push_loop_us_each"] = round(1e6 * cost_of_push_s(phases), 1)
        figures["broker_rss_mb"] = round(rss_bytes / MB, 1)
    return figures


def cost_of_push_s(phases: Sequence[PushPhase]) -> float:
    """Return the loop's CPU seconds for each push: what is more where there are pushes."""
    without = median(phase.loop_share for phase in phases if not phase.has_pushes)
    costs = [
        (phase.loop_share - without) * (phase.ended_at - phase.began_at) / phase.pushes
        for phase in phases
        if phase.pushes
    ]
    return median(costs) if costs else 0.0


def _phase(crowd: Crowd, has_pushes: bool, pids: list[int]) -> PushPhase:
    sent, loop_s, began_at = crowd.outcome.sent, main_thread_seconds(pids), time.perf_counter()
    if has_pushes:
        crowd.go_on(PHASE_S, lambda _: None)
    else:
        crowd.rest(PHASE_S)
    return PushPhase(
        has_pushes,
        began_at,
        time.perf_counter(),
        crowd.outcome.sent - sent,
        main_thread_seconds(pids) - loop_s,
    )


def _figures(crowd: Crowd, phases: Sequence[PushPhase], waited: Sequence[Waited]) -> dict[str, Any]:
    outcome = crowd.outcome
    pushes = sum(phase.pushes for phase in phases)
    pushing_s = sum(phase.ended_at - phase.began_at for phase in phases if phase.has_pushes)
    figures: dict[str, Any] = {
        "what": "telemetry beside produce",
        "clients": crowd.count,
        "interval_ms": crowd.interval_ms,
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
