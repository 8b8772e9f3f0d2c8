"""How far a run is, for whoever watches it."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum


class RunPhase(StrEnum):
    """What a run does now."""

    SET_UP = "set-up"
    LOAD = "load"
    HEAL = "heal"
    FINAL = "final reads"
    COLLECT = "collect"
    JUDGE = "judge"


@dataclass(slots=True)
class Status:
    """A moment of a run."""

    phase: RunPhase = RunPhase.SET_UP
    phase_s: float = 0.0
    """Since the phase began."""
    phase_s_max: float = 0.0
    """How long the phase takes, where that is known; else 0."""
    operation_count: int = 0
    ops_per_s: float = 0.0
    """Since the moment before."""
    fault: str = ""
    """Under way now."""
    fault_count: int = 0
    anomalies: Counter[str] = field(default_factory=Counter)
    """Seen so far; the checkers look for more."""


Show = Callable[[Status], None]
Say = Callable[[str], None]
"""Takes one sentence that a person must see."""
