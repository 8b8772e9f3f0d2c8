"""Benchmark of clients that push metrics (KIP-714): lost pushes, latency of a push, and CPU time of
the broker for each push."""

from typing import Any

from ottla.bench.client_metrics.pushing_clients import (
    Address,
    Progress,
    PushingClients,
    allow_files,
)
from ottla.bench.processes import main_thread_seconds, usage_of
from ottla.bench.result import Result


def run_telemetry(
    address: Address, *, clients: int, seconds: float, pids: list[int], progress: Progress
) -> Result:
    """Connect clients, push metrics from all of them for `seconds` seconds, and disconnect them.
    Returns the latencies of the pushes."""
    allow_files(clients)
    pushing = PushingClients(address)
    with pushing.opened(clients):
        pushing.check_is_asked()
        before = usage_of(pids)
        loop_before = main_thread_seconds(pids)
        pushing.begin()
        pushing.push_for(seconds, progress)
        pushing.finish()
        usage = usage_of(pids).since(before)
        loop_s = main_thread_seconds(pids) - loop_before
    outcome = pushing.outcome
    answered = sum(outcome.codes.values())
    notes: dict[str, Any] = {
        "clients": clients,
        "interval_ms": pushing.interval_ms,
        "push_bytes": round(outcome.sent_bytes / max(1, outcome.sent)),
        "sent": outcome.sent,
        "lost": outcome.sent - answered,
        "codes": dict(outcome.codes),
        "hung_up": outcome.hung_up,
        "asked_again": outcome.asked_again,
        "load_late_ms_max": round(outcome.late_ms_max, 1),
    }
    if pids:
        notes["broker_loop_us_each"] = round(1e6 * loop_s / max(1, answered), 1)
    return Result(
        "telemetry",
        max(1, answered),
        outcome.sent_bytes,
        seconds,
        outcome.latencies_ms,
        usage=usage if pids else None,
        notes=notes,
    )
