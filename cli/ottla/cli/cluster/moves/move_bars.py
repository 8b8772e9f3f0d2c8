"""Formats progress bars of replica moves as text. Prints nothing."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.cli.common import counted

BAR_WIDTH = 24
BARS_MAX = 12
"""Maximum number of replica moves that have a progress bar at the same time. The bars must fit on a
screen."""


class MoveBar(NamedTuple):
    """Progress of one replica move that has not finished."""

    part: float
    """Copied fraction of the replica's bytes, from 0 to 1."""
    name: str
    target: str


def bar(part: float) -> str:
    """Return a progress bar with its percentage, as text. `part` is a fraction from 0 to 1."""
    filled = int(part * BAR_WIDTH)
    return f"[{'#' * filled}{'-' * (BAR_WIDTH - filled)}] {100 * part:5.1f} %"


def bars(moving: Sequence[MoveBar], total: int, noun: str) -> list[str]:
    """Return the lines of text that show the progress of replica moves. The first line shows the
    overall progress of `total` moves, which are called `noun`."""
    whole = (total - len(moving) + sum(one.part for one in moving)) / total
    shown = sorted(moving, key=lambda one: -one.part)[:BARS_MAX]
    width = max((len(one.name) for one in shown), default=0)
    lines = [f"{bar(whole)}  {total - len(moving)} of {counted(total, noun)} moved"]
    lines += [f"{bar(one.part)}  {one.name:<{width}}  to {one.target}" for one in shown]
    if len(moving) > len(shown):
        lines.append(f"… and {len(moving) - len(shown)} more")
    return lines
