"""`ottla world run|soak|soak-programs|replay|bugs|fuzz|list`: searches the deterministic simulator
for failures, from a seed.

The exit code is 0 if no failure was found, or 2 if an invariant was violated or an injected bug was
not found. Each failing run is reduced and written to a file, and the command that replays it is
printed.
"""

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.cli.common import FORMAT, print_json
from ottla.cli.lab import world_fuzz, world_programs, world_soak, world_tests
from ottla.cli.options import one_of, option
from ottla.cli.tables import Milliseconds, header_of, print_table
from ottla.cli.terminal import draw, is_watched, note, say, wipe
from ottla.cli.times import parse_duration
from ottla.cli.verbs import verb

if TYPE_CHECKING:
    from ottla.jepsen.world.runner import Job, RunTotals

FOUND = 2
KEEP_DEFAULT = "world-failures"
STORY_LINES = 60
"""Default number of events that are shown of a replayed simulation. The last events are shown."""

KEPT_MAX = 3
"""Maximum number of failures of the simulator that one search reduces and saves. Further failures
rarely provide new information."""

BUG_SECONDS_DEFAULT = "120s"
BAR_WIDTH = 24


def _run(arguments: argparse.Namespace) -> int:
    from ottla.jepsen.world import report
    from ottla.jepsen.world.engine import make_engine
    from ottla.jepsen.world.runner import Job, run_many

    engine = make_engine(arguments.engine, arguments.subject)
    budget = engine.budget if arguments.budget is None else arguments.budget
    job = Job(engine=engine.name, subject=engine.subject, budget=budget, mutant=arguments.mutant)
    seconds = parse_duration("--for", arguments.duration) if arguments.duration else None
    count = None if seconds is not None else (arguments.seeds or 1)
    bar = _Bar(job, count, seconds)
    totals = run_many(
        job,
        arguments.seed,
        count=count,
        seconds=seconds,
        processes=1 if count == 1 else arguments.processes,
        on_progress=bar.draw,
    )
    bar.end()
    figures = report.figures_of(job, arguments.seed, totals, bar.seconds)
    figures["files"] = _keep(job, totals, arguments)
    if arguments.format == "json":
        print_json(figures)
    else:
        _print_figures(figures)
    for failure, path in zip(figures["failures"], figures["files"], strict=False):
        note(f"seed {failure['seed']}: {failure['invariant']}: {failure['detail']}")
        note(f"  to see it again: ottla world replay {path}")
    for failure in figures["failures"][KEPT_MAX:]:
        note(f"seed {failure['seed']}: {failure['invariant']}: {failure['command']}")
    is_poor = arguments.demand_rare and bool(figures["rare_missed"])
    for name in figures["rare_missed"] if is_poor else ():
        note(f"never reached: {name}")
    return FOUND if totals.violation_count or is_poor else 0


def _keep(job: "Job", totals: "RunTotals", arguments: argparse.Namespace) -> list[str]:
    """Write the first failures that a search of the simulator found to the output directory.
    Returns the paths of the files."""
    from ottla.jepsen.world.bugs import bank
    from ottla.jepsen.world.corpus import save
    from ottla.jepsen.world.report import case_of

    paths: list[str] = []
    for outcome in totals.failures[:KEPT_MAX]:
        if is_watched():
            note(f"seed {outcome.seed} failed; making it small …")
        trials_max = 0 if arguments.no_shrink else None
        if job.mutant is None:
            case = case_of(job, outcome, trials_max)
        else:
            with bank.mutant(job.mutant).apply():
                case = case_of(job, outcome, trials_max)
        paths.append(str(save(case, Path(arguments.keep))))
    return paths


def _replay(arguments: argparse.Namespace) -> int:
    from contextlib import nullcontext

    test = world_tests.named_test(arguments.file)
    if test is not None:
        return world_tests.replay(test, arguments.file)

    from ottla.jepsen.world.bugs import bank
    from ottla.jepsen.world.corpus import load
    from ottla.jepsen.world.report import replayed_events

    case = load(arguments.file)
    with bank.mutant(case.mutant).apply() if case.mutant else nullcontext():
        outcome, story = replayed_events(case)
    violation = outcome.violation
    shown = story if arguments.all else story[-STORY_LINES:]
    if arguments.format == "json":
        print_json(
            {
                "engine": case.engine,
                "subject": case.subject,
                "seed": case.seed,
                "events": outcome.event_count,
                "trace_hash": outcome.trace_hash,
                "invariant": None if violation is None else violation.invariant,
                "detail": None if violation is None else violation.detail,
                "story": shown,
            }
        )
    else:
        for at, line in enumerate(shown, start=len(story) - len(shown) + 1):
            say(f"{at:6}  {line}")
        say(f"trace {outcome.trace_hash}: {'clean' if violation is None else violation}")
    return 0 if violation is None else FOUND


def _bugs(arguments: argparse.Namespace) -> int:
    from ottla.jepsen.world.bugs import bank
    from ottla.jepsen.world.bugs.hunt import hunt

    mutants = [bank.mutant(name) for name in arguments.names] if arguments.names else bank.mutants()
    seconds_max = parse_duration("--for", arguments.duration)
    rows: list[dict[str, Any]] = []
    for mutant in mutants:
        if is_watched():
            draw(f"planting {mutant.name} …")
        found = hunt(mutant, cpu_seconds=seconds_max, processes=arguments.processes)
        rows.append(found.row())
    if is_watched():
        wipe()
    missed = [row["name"] for row in rows if row["seed"] is None and not row["equivalent"]]
    if arguments.format == "json":
        print_json({"mutants": rows, "missed": missed})
    else:
        columns = ("name", "engine", "subject", "seed", "invariant", "sentence")
        print_table(
            [*map(header_of, columns[:4]), "TOOK", *map(header_of, columns[4:])],
            [
                [
                    *(row[column] for column in columns[:4]),
                    Milliseconds(1_000 * row["seconds"]),
                    *(row[column] for column in columns[4:]),
                ]
                for row in rows
            ],
        )
        say(f"{len(rows) - len(missed)} of {len(rows)} found")
    return FOUND if missed else 0


def _list(arguments: argparse.Namespace) -> int:
    from ottla.jepsen.world.engine import ENGINES, SENTENCES

    rows = [
        {"engine": name, "subject": subject, "what": SENTENCES[name]}
        for name, subjects in ENGINES.items()
        for subject in subjects
    ]
    if arguments.format == "json":
        print_json(rows)
    else:
        print_table(("ENGINE", "SUBJECT", "WHAT"), [list(row.values()) for row in rows])
    return 0


class _Bar:
    """Progress line of a simulator's search for failures, drawn on a terminal only."""

    def __init__(self, job: "Job", count: int | None, seconds: float | None) -> None:
        self._name = f"{job.engine} {job.subject}"
        self._count = count
        self._seconds_max = seconds
        self._started = time.monotonic()
        self.seconds = 0.0

    def draw(self, totals: "RunTotals") -> None:
        """Redraw the progress line of the search, with the present totals."""
        self.seconds = time.monotonic() - self._started
        if not is_watched():
            return
        if self._seconds_max is not None:
            part = self.seconds / max(0.001, self._seconds_max)
        else:
            part = totals.run_count / max(1, self._count or 1)
        filled = round(BAR_WIDTH * min(1.0, part))
        rate = totals.event_count / max(0.001, self.seconds)
        line = (
            f"{self._name} [{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {totals.run_count} runs, "
            f"{totals.event_count} events ({rate:,.0f}/s), {totals.violation_count} violations"
        )
        draw(line)

    def end(self) -> None:
        """Erase the progress line of the search."""
        self.seconds = time.monotonic() - self._started
        if is_watched():
            wipe()


def _print_figures(figures: dict[str, Any]) -> None:
    head = ("engine", "subject", "seed", "seeds", "events", "sim_s", "seconds", "events_per_s")
    rows: list[tuple[str, object]] = [(name.replace("_", " "), figures[name]) for name in head]
    rows += list(figures["figures"].items())
    rows += [(f"rare: {name}", count) for name, count in figures["rare"].items()]
    rows += [("violations", figures["violations"]), ("trace hash", figures["trace_hash"])]
    print_table(("WHAT", "FIGURE"), [(name, _shown(value)) for name, value in rows])


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)


VERBS = (
    verb(
        "run",
        "run seeds and judge every step",
        _run,
        option("--engine", "engine of the simulation", required=True, choices=("walk", "whole")),
        option(
            "--subject SUBJECT",
            "subject of the engine; see 'ottla world list' (default: its first)",
        ),
        option("--seed SEED", "first seed (default: 0)", type=int, default=0),
        one_of(
            option("--seeds COUNT", "number of seeds (default: 1)", type=int),
            option(
                "--for TIME",
                "duration of the search, such as 10m, in place of --seeds",
                dest="duration",
            ),
        ),
        option(
            "--budget BUDGET", "number of events of a seed's run (default: the engine's)", type=int
        ),
        option("--mutant MUTANT", "bug to plant (default: none)"),
        option("--keep KEEP", "folder for failures", default=KEEP_DEFAULT),
        option("--no-shrink", "store failures without shrinking them"),
        option("--demand-rare", "fail if a required rare state was not reached"),
        option(
            "--processes N",
            "number of processes (default: one per CPU)",
            type=int,
            default=os.cpu_count() or 1,
        ),
        FORMAT,
    ),
    verb("soak", "search with every engine in turn", world_soak.run, *world_soak.OPTIONS),
    verb(
        "soak-programs",
        "search with property tests of programs that use Kafka",
        world_programs.run,
        *world_programs.OPTIONS,
    ),
    verb(
        "replay",
        "run a stored failure again and print its events; or the test of a program that failed",
        _replay,
        option("file FILE", "file of a stored failure", type=Path),
        option("--all", "print every event (default: the last ones)"),
        FORMAT,
    ),
    verb(
        "bugs",
        "plant each known bug and measure the time until it is found",
        _bugs,
        option("names NAME", "bugs (default: all)", nargs="*"),
        option(
            "--for TIME",
            "CPU time of each process for each bug (default: %(default)s)",
            dest="duration",
            default=BUG_SECONDS_DEFAULT,
        ),
        option(
            "--processes N",
            "number of processes (default: one per CPU)",
            type=int,
            default=os.cpu_count() or 1,
        ),
        FORMAT,
    ),
    verb("fuzz", "fuzz every parser of foreign bytes", world_fuzz.run, *world_fuzz.OPTIONS),
    verb("list", "list engines and their subjects", _list, FORMAT),
)
