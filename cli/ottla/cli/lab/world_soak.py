"""`ottla world soak`: runs all kinds of simulations for a limited time, and writes one table of the
results.

The exit code is 0 if no invariant was violated, otherwise 2. The table is written every minute, and
when a signal ends the search, so that no result is lost.
"""

import argparse
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from ottla.cli.common import print_json
from ottla.cli.options import Declared, option
from ottla.cli.tables import header_of, print_table
from ottla.cli.terminal import draw, is_watched, note, say, say_block, wipe
from ottla.cli.times import parse_duration
from ottla.model.signal_handlers_driver import signal_handlers

if TYPE_CHECKING:
    from ottla.jepsen.world.soak import Soak

FOUND = 2
DURATION_DEFAULT = "60m"
OUT_DEFAULT = "world-soak"
WRITE_SECONDS = 60.0
BAR_WIDTH = 24


OPTIONS: tuple[Declared, ...] = (
    option(
        "--for TIME",
        f"duration of the search (default: {DURATION_DEFAULT})",
        dest="duration",
        default=DURATION_DEFAULT,
    ),
    option("--seed SEED", "first seed (default: 0)", type=int, default=0),
    option(
        "--out DIR",
        f"directory for soak.json, soak.md and failures (default: {OUT_DEFAULT})",
        type=Path,
        default=Path(OUT_DEFAULT),
    ),
    option(
        "--processes N",
        "number of processes (default: one per CPU)",
        type=int,
        default=os.cpu_count() or 1,
    ),
    option(
        "--format",
        "format of the output (default: %(default)s)",
        choices=("table", "markdown", "json"),
        default="table",
    ),
)


def run(arguments: argparse.Namespace) -> int:
    """`ottla world soak`: run simulations for the time on the command line. Then write the table of
    results and print it. Returns the exit code."""
    from ottla.jepsen.world.soak import Soak
    from ottla.jepsen.world.soak_table import facts_of

    seconds = parse_duration("--for", arguments.duration)
    folder: Path = arguments.out
    folder.mkdir(parents=True, exist_ok=True)
    soak = Soak(
        seconds=seconds,
        folder=folder,
        first_seed=arguments.seed,
        processes=max(1, arguments.processes),
    )
    watch = _Watch(folder)
    with stopped_by_signals() as should_stop:
        soak.run(should_stop=should_stop, on_progress=watch.look)
    watch.end()
    facts = facts_of(soak)
    _write(folder, facts)
    _print(facts, arguments.format)
    note(f"written to {folder}/soak.json and {folder}/soak.md")
    return FOUND if soak.violation_count or soak.lost else 0


@contextmanager
def stopped_by_signals() -> Iterator["_Stop"]:
    """Yield a function that returns True once this process has received a signal to stop. A second
    signal ends the process as usual."""
    stop = _Stop()

    def request_stop(number: int, frame: FrameType | None) -> None:
        stop.is_asked = True
        handlers.close()
        note("stopping: what is under way is finished first")

    with ExitStack() as handlers:
        handlers.enter_context(signal_handlers(request_stop, signal.SIGINT, signal.SIGTERM))
        yield stop


class _Stop:
    """Callable that returns True once this process has received a signal to stop."""

    def __init__(self) -> None:
        self.is_asked = False

    def __call__(self) -> bool:
        return self.is_asked


class _Watch:
    """Observer of a running search of the simulator. It draws the progress line, and writes the
    table of results each minute."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written = time.monotonic()

    def look(self, soak: "Soak") -> None:
        """Draw the progress of the simulator's search for failures."""
        if is_watched():
            self._draw(soak)
        if time.monotonic() - self._written >= WRITE_SECONDS:
            from ottla.jepsen.world.soak_table import facts_of

            self._written = time.monotonic()
            _write(self._folder, facts_of(soak))

    def _draw(self, soak: "Soak") -> None:
        filled = round(BAR_WIDTH * min(1.0, soak.seconds / max(0.001, soak.seconds_max)))
        runs = sum(row.totals.run_count for row in soak.rows)
        events = sum(row.totals.event_count for row in soak.rows)
        line = (
            f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {_clock(soak.seconds)} of "
            f"{_clock(soak.seconds_max)}, {runs:,} schedules, {events:,} events, "
            f"{soak.violation_count} violations"
        )
        draw(line)

    def end(self) -> None:
        """Erase the progress line of the simulator's search."""
        if is_watched():
            wipe()


def _write(folder: Path, facts: dict[str, Any]) -> None:
    """Replace both result files of the simulator's search in the output folder atomically."""
    import json

    from ottla.jepsen.world.soak_table import markdown_of

    for name, text in (
        ("soak.json", json.dumps(facts, indent=2, ensure_ascii=False) + "\n"),
        ("soak.md", markdown_of(facts)),
    ):
        fresh = folder / f"{name}.tmp"
        fresh.write_text(text)
        fresh.replace(folder / name)


def _print(facts: dict[str, Any], form: str) -> None:
    from ottla.jepsen.world.soak_table import HEADERS, cells_of, markdown_of, notes_of, words_of

    if form == "json":
        print_json(facts)
    elif form == "markdown":
        say_block(markdown_of(facts).removesuffix("\n"))
    else:
        print_table(list(map(header_of, HEADERS)), cells_of(facts))
        for line in (words_of(facts), *notes_of(facts)):
            say(line)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
