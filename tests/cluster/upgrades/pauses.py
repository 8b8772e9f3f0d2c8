"""The longest pauses of clients while a cluster is rolled, and the steps of the roll meanwhile."""

import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple


class Step(NamedTuple):
    """A step of a roll, such as the end of a node."""

    at_s: float
    text: str


class Pause(NamedTuple):
    """The longest time for which a client saw no event, by the monotonic clock, in seconds."""

    began_s: float
    ended_s: float

    @property
    def seconds(self) -> float:
        """Length of the pause."""
        return self.ended_s - self.began_s


class Phase:
    """One roll of all nodes; notes its steps."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.steps: list[Step] = []
        self.note("begin")

    def note(self, text: str) -> None:
        """Record that a step was taken now."""
        self.steps.append(Step(time.monotonic(), text))

    @property
    def seconds(self) -> float:
        """Time from the first step to the last one."""
        return self.steps[-1].at_s - self.steps[0].at_s

    def longest_pause(self, times: Sequence[float]) -> Pause:
        """Return the longest time without an event of a client."""
        began_s, ended_s = self.steps[0].at_s, self.steps[-1].at_s
        inside = [one for one in times if began_s <= one <= ended_s]
        pauses = [Pause(*pair) for pair in pairwise([began_s, *inside, ended_s])]
        return max(pauses, key=lambda pause: pause.seconds)

    def steps_during(self, pause: Pause) -> str:
        """Return the last step before a pause and those during it, with seconds since its begin."""
        before = [step for step in self.steps if step.at_s <= pause.began_s]
        during = [step for step in self.steps if pause.began_s < step.at_s < pause.ended_s]
        return ", ".join(
            f"{step.text} {step.at_s - pause.began_s:+.2f} s" for step in [*before[-1:], *during]
        )


def print_pauses(phases: Sequence[Phase], times: Mapping[str, Sequence[float]]) -> None:
    """Print the longest pause of each client in each phase, given the times of its events."""
    for phase in phases:
        print(f"{phase.name}, {phase.seconds:.0f} s; the longest pause of")
        for name, at in times.items():
            pause = phase.longest_pause(at)
            print(f"  {name}: {pause.seconds:.2f} s; {phase.steps_during(pause)}")
