"""`ottla world soak-programs`: searches for failures of property tests of programs that use Kafka,
for a limited time, in several processes.

Exit code 0 if no test failed, 2 otherwise.
"""

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.cli.common import FORMAT, print_json
from ottla.cli.lab.world_soak import stopped_by_signals
from ottla.cli.options import Declared, option
from ottla.cli.tables import print_table
from ottla.cli.terminal import draw, is_watched, note, wipe
from ottla.cli.times import parse_duration

if TYPE_CHECKING:
    from ottla.testing.world.soak.program_soak import ProgramSoak

FOUND = 2
DURATION_DEFAULT = "60m"
CORPUS_DEFAULT = ".ottla-world/corpus"
NOTE_SECONDS = 60.0
"""Interval, in seconds, between two progress lines if the output is not a terminal."""

OPTIONS: tuple[Declared, ...] = (
    option("tests FILE[::TEST]", "tests that use ottla.testing.world and draw examples", nargs="+"),
    option(
        "--for TIME",
        f"duration of the search (default: {DURATION_DEFAULT})",
        dest="duration",
        default=DURATION_DEFAULT,
    ),
    option("--seed SEED", "seed of the first batch (default: 0)", type=int, default=0),
    option(
        "--corpus DIR",
        f"folder of stored failures, which run first (default: {CORPUS_DEFAULT})",
        type=Path,
        default=Path(CORPUS_DEFAULT),
    ),
    option(
        "--processes N",
        "number of processes (default: one per CPU)",
        type=int,
        default=os.cpu_count() or 1,
    ),
    FORMAT,
)


def run(arguments: argparse.Namespace) -> int:
    """`ottla world soak-programs`: run tests for the time on the command line, and print the
    results. Returns the exit code."""
    from ottla.testing.world.soak.program_soak import ProgramSoak

    soak = ProgramSoak(
        arguments.tests,
        seconds=parse_duration("--for", arguments.duration),
        corpus=arguments.corpus,
        first_seed=arguments.seed,
        processes=max(1, arguments.processes),
    )
    progress = _Progress()
    with stopped_by_signals() as should_stop:
        soak.run(should_stop=should_stop, on_progress=progress.look)
    if is_watched():
        wipe()
    facts = soak.facts()
    if arguments.format == "json":
        print_json(facts)
    else:
        _print(facts)
    return FOUND if soak.has_failed else 0


class _Progress:
    """Observer of a running soak. It draws a progress line on a terminal, or writes a line each
    minute to other outputs."""

    def __init__(self) -> None:
        self._noted = time.monotonic()

    def look(self, soak: "ProgramSoak") -> None:
        """Show the current progress of the soak on the terminal."""
        facts = soak.facts()
        runs = sum(row["runs"] for row in facts["tests"])
        failures = sum(row["failures"] for row in facts["tests"])
        line = (
            f"{soak.seconds:.0f} of {soak.seconds_max:.0f} s, {runs:,} runs, "
            f"{facts['virtual_hours']:,.1f} simulated hours, {failures} failed batches"
        )
        if is_watched():
            draw(line)
        elif time.monotonic() - self._noted >= NOTE_SECONDS:
            self._noted = time.monotonic()
            note(line)


def _print(facts: dict[str, Any]) -> None:
    print_table(
        ("TEST", "RUNS", "SIMULATED-HOURS", "CPU-S", "FAILED-BATCHES"),
        [
            (row["test"], row["runs"], row["virtual_hours"], row["cpu_s"], row["failures"])
            for row in facts["tests"]
        ],
    )
    note(
        f"{facts['virtual_hours']:,} simulated cluster-hours in {facts['seconds']:,} s; seeds "
        f"{facts['seeds'][0]} to {facts['seeds'][1] - 1}"
    )
    for row in facts["tests"]:
        if row["problem"]:
            note(f"{row['test']} did not run: {row['problem']}")
        for kind in row["kinds"]:
            note(f"{row['test']}: {kind}")
        for path in row["files"]:
            note(f"  to see it again: ottla world replay {path}")
    for path in facts["still_failing"]:
        note(f"still fails: {path}")
    for path in facts["fixed"]:
        note(f"passes now, delete it: {path}")
    for lost in facts["lost"]:
        note(f"results lost: {lost}")
