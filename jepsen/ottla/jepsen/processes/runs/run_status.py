"""Types that describe the progress of a run on real processes, for its display. The module does no
I/O."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum


class RunPhase(StrEnum):
    """Phases of a run on real processes."""

    SET_UP = "set-up"
    LOAD = "load"
    HEAL = "heal"
    FINAL = "final reads"
    COLLECT = "collect"
    JUDGE = "judge"


@dataclass(slots=True)
class Status:
    """Progress of a run on real processes at one moment."""

    phase: RunPhase = RunPhase.SET_UP
    phase_s: float = 0.0
    """Seconds since the current phase of the run began."""
    phase_s_max: float = 0.0
    """Planned duration of the run's current phase in seconds, or 0 if it is unknown."""
    operation_count: int = 0
    ops_per_s: float = 0.0
    """Client operations per second since the previous status."""
    fault: str = ""
    """Name of the nemesis whose fault is active, or "" if no fault is active."""
    fault_count: int = 0
    anomalies: Counter[str] = field(default_factory=Counter)
    """Number of each kind of anomaly seen so far during the run, by the anomaly's name. The
    checkers search for more afterwards."""


Show = Callable[[Status], None]
Say = Callable[[str], None]
"""Callback that shows one message to the user of the command line."""
