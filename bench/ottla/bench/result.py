"""Figures of one measured run: rates, latencies, and the broker's use of CPU time and memory."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla.bench.processes import Usage

MB = 1_000_000
GB = 1_000_000_000
QUANTILES = (("p50", 0.50), ("p99", 0.99), ("p99.9", 0.999))


def latency_figures(latencies_ms: Sequence[float]) -> dict[str, float]:
    """Return the median, the 99th and the 99.9th percentile of latencies in ms, by names such as
    "p99_ms"."""
    ordered = sorted(latencies_ms)
    last = len(ordered) - 1
    return {f"{name}_ms": ordered[int(quantile * last)] for name, quantile in QUANTILES}


@dataclass(slots=True)
class Result:
    """Result of one benchmark run: the count of records or requests, and the duration.
    `latencies_ms` contains one latency for each sampled record or request."""

    what: str
    count: int
    payload_bytes: int
    seconds: float
    latencies_ms: Sequence[float] = ()
    usage: Usage | None = None
    """Resource use of the broker's processes during the run, or None if no --pid was given."""
    notes: dict[str, Any] = field(default_factory=dict)

    def figures(self) -> dict[str, Any]:
        """Return the measured values of the run by name, in the order in which they are printed."""
        found: dict[str, Any] = {
            "what": self.what,
            "count": self.count,
            "seconds": round(self.seconds, 3),
            "per_second": round(self.count / self.seconds),
            "mb_per_second": round(self.payload_bytes / MB / self.seconds, 2),
        }
        latencies = latency_figures(self.latencies_ms) if self.latencies_ms else {}
        found |= {f"latency_{name}": round(value, 3) for name, value in latencies.items()}
        if self.usage is not None:
            found |= self._cost(self.usage)
        return found | self.notes

    def _cost(self, usage: Usage) -> dict[str, Any]:
        found: dict[str, Any] = {
            "broker_user_s": round(usage.user_s, 2),
            "broker_system_s": round(usage.system_s, 2),
            "broker_cpu_us_each": round(1e6 * (usage.user_s + usage.system_s) / self.count, 2),
            "broker_user_us_each": round(1e6 * usage.user_s / self.count, 2),
        }
        if self.payload_bytes >= MB:
            found["broker_user_s_per_gb"] = round(usage.user_s * GB / self.payload_bytes, 3)
            found["broker_system_s_per_gb"] = round(usage.system_s * GB / self.payload_bytes, 3)
        found["broker_rss_mb"] = round(usage.rss_bytes / MB, 1)
        return found
