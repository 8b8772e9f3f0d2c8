"""`ottla world run|soak|replay|bugs|fuzz|list`: the deterministic world, searched from a seed.

Exit code 0 when nothing was found, 2 when an invariant broke (or a planted bug was missed); each
failure is shrunk and kept as a file, and the one command that shows it again is printed.
"""

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.cli.common import add_format_argument, print_json, print_table
from ottla.cli.lab import world_fuzz, world_soak
from ottla.cli.terminal import draw, is_watched, note, say, wipe
from ottla.cli.times import parse_duration

if TYPE_CHECKING:
    from ottla.jepsen.world.runner import Job, Tally

FOUND = 2
KEEP_DEFAULT = "world-failures"
STORY_LINES = 60
"""The last events of a replay that are shown unless all are asked for."""

KEPT_MAX = 3
"""Failures that are shrunk and kept; the first few tell what the others do."""

BUG_SECONDS_DEFAULT = "120s"
BAR_WIDTH = 24


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs of 'ottla world'."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    run_ = verbs.add_parser("run", help="run seeds and judge every step")
    _add_subject(run_)
    run_.add_argument("--seed", type=int, default=0, help="first seed (default: 0)")
    length = run_.add_mutually_exclusive_group()
    length.add_argument("--seeds", type=int, metavar="COUNT", help="number of seeds (default: 1)")
    length.add_argument(
        "--for",
        dest="duration",
        metavar="TIME",
        help="duration of the search, such as 10m, in place of --seeds",
    )
    run_.add_argument(
        "--budget", type=int, help="number of events of a seed's run (default: the engine's)"
    )
    run_.add_argument("--mutant", help="bug to plant (default: none)")
    run_.add_argument("--keep", default=KEEP_DEFAULT, help="folder for failures")
    run_.add_argument(
        "--no-shrink", action="store_true", help="store failures without shrinking them"
    )
    run_.add_argument(
        "--demand-rare", action="store_true", help="fail if a required rare state was not reached"
    )
    world_soak.configure(verbs.add_parser("soak", help="search with every engine in turn"))
    replay_ = verbs.add_parser("replay", help="run a stored failure again and print its events")
    replay_.add_argument("file", type=Path, metavar="FILE", help="file of a stored failure")
    replay_.add_argument(
        "--all", action="store_true", help="print every event (default: the last ones)"
    )
    bugs_ = verbs.add_parser(
        "bugs", help="plant each known bug and measure the time until it is found"
    )
    bugs_.add_argument("names", nargs="*", metavar="NAME", help="bugs (default: all)")
    bugs_.add_argument(
        "--for",
        dest="duration",
        default=BUG_SECONDS_DEFAULT,
        metavar="TIME",
        help="time for each bug (default: %(default)s)",
    )
    world_fuzz.configure(verbs.add_parser("fuzz", help="fuzz every parser of foreign bytes"))
    list_ = verbs.add_parser("list", help="list engines and their subjects")
    for verb in (run_, bugs_):
        verb.add_argument(
            "--processes",
            type=int,
            default=os.cpu_count() or 1,
            metavar="N",
            help="number of processes (default: one per CPU)",
        )
    for verb in (run_, replay_, bugs_, list_):
        add_format_argument(verb)


def _add_subject(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--engine", required=True, choices=("walk", "whole"), help="engine of the simulation"
    )
    parser.add_argument(
        "--subject", help="subject of the engine; see 'ottla world list' (default: its first)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the verb."""
    verbs = {"run": _run, "replay": _replay, "bugs": _bugs, "list": _list}
    if arguments.verb == "fuzz":
        return world_fuzz.run(arguments)
    if arguments.verb == "soak":
        return world_soak.run(arguments)
    return verbs[arguments.verb](arguments)


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
    tally = run_many(
        job,
        arguments.seed,
        count=count,
        seconds=seconds,
        processes=1 if count == 1 else arguments.processes,
        on_progress=bar.draw,
    )
    bar.end()
    figures = report.figures_of(job, arguments.seed, tally, bar.seconds)
    figures["files"] = _keep(job, tally, arguments)
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
    return FOUND if tally.violation_count or is_poor else 0


def _keep(job: "Job", tally: "Tally", arguments: argparse.Namespace) -> list[str]:
    """Write the first failures into the folder and return their paths."""
    from ottla.jepsen.world.bugs import bank
    from ottla.jepsen.world.corpus import save
    from ottla.jepsen.world.report import case_of

    paths: list[str] = []
    for outcome in tally.failures[:KEPT_MAX]:
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

    from ottla.jepsen.world.bugs import bank
    from ottla.jepsen.world.corpus import load
    from ottla.jepsen.world.report import story_of

    case = load(arguments.file)
    with bank.mutant(case.mutant).apply() if case.mutant else nullcontext():
        outcome, story = story_of(case)
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
        found = hunt(mutant, seconds=seconds_max, processes=arguments.processes)
        rows.append(found.row())
    if is_watched():
        wipe()
    missed = [row["name"] for row in rows if row["seed"] is None and not row["equivalent"]]
    if arguments.format == "json":
        print_json({"mutants": rows, "missed": missed})
    else:
        columns = ("name", "engine", "subject", "seed", "seconds", "invariant", "sentence")
        print_table(
            [column.upper() for column in columns],
            [[row[column] for column in columns] for row in rows],
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
    """The line that shows how far a search is, where a person looks."""

    def __init__(self, job: "Job", count: int | None, seconds: float | None) -> None:
        self._name = f"{job.engine} {job.subject}"
        self._count = count
        self._seconds_max = seconds
        self._started = time.monotonic()
        self.seconds = 0.0

    def draw(self, tally: "Tally") -> None:
        """Draw it again."""
        self.seconds = time.monotonic() - self._started
        if not is_watched():
            return
        if self._seconds_max is not None:
            part = self.seconds / max(0.001, self._seconds_max)
        else:
            part = tally.run_count / max(1, self._count or 1)
        filled = round(BAR_WIDTH * min(1.0, part))
        rate = tally.event_count / max(0.001, self.seconds)
        line = (
            f"{self._name} [{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {tally.run_count} runs, "
            f"{tally.event_count} events ({rate:,.0f}/s), {tally.violation_count} violations"
        )
        draw(line)

    def end(self) -> None:
        """Take the line away."""
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
