"""`ottla world fuzz`: fuzzes every parser that reads untrusted bytes.

The exit code is 0 if no failure was found, or 2 if a parser raised an unexpected exception or
needed too much time or memory. Each failing input is written to a file, and the next run begins
with these inputs.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.common import FORMAT, print_json
from ottla.cli.options import Declared, option
from ottla.cli.tables import Milliseconds, header_of, print_table
from ottla.cli.terminal import draw, is_watched, note, wipe
from ottla.cli.times import parse_duration
from ottla.model.errors import ConfigError
from ottla.model.install_hint import install_hint

if TYPE_CHECKING:
    from ottla.jepsen.fuzz.hunt import FuzzReport
    from ottla.jepsen.fuzz.target import FuzzTarget

FOUND = 2
DURATION_DEFAULT = "10s"
KEEP_DEFAULT = "fuzz-findings"


OPTIONS: tuple[Declared, ...] = (
    option(
        "--target NAME", "target; may be repeated (default: all)", action="append", dest="targets"
    ),
    option("--list", "list the targets without fuzzing"),
    option(
        "--for TIME",
        f"duration of each target (default: {DURATION_DEFAULT})",
        dest="duration",
        default=DURATION_DEFAULT,
    ),
    option("--seed SEED", "seed (default: 0)", type=int, default=0),
    option(
        "--driver",
        "driver: by coverage, or by mutation alone (default: atheris if it is installed)",
        choices=("atheris", "plain"),
    ),
    option(
        "--keep DIR",
        "directory of inputs, to which findings are added (default: none)",
        type=Path,
        default=Path(KEEP_DEFAULT),
    ),
    FORMAT,
)


def run(arguments: argparse.Namespace) -> int:
    """`ottla world fuzz`: run the fuzzers, or list them. Returns the exit code."""
    from ottla.jepsen.fuzz.hunt import ATHERIS, PLAIN, has_atheris, hunt
    from ottla.jepsen.fuzz.kept import read_kept
    from ottla.jepsen.fuzz.table import TARGETS, target_of

    unknown = [name for name in arguments.targets or () if name not in TARGETS]
    if unknown:
        raise ConfigError("--target", f"is {unknown[0]!r}; it must be one of {', '.join(TARGETS)}")
    targets = [target_of(name) for name in arguments.targets or TARGETS]
    if arguments.list:
        return _list(targets, arguments.format)
    driver = arguments.driver or (ATHERIS if has_atheris() else PLAIN)
    if driver == ATHERIS and not has_atheris():
        raise ConfigError("--driver", f"atheris is not installed: {install_hint('dev')}")
    seconds = parse_duration("--for", arguments.duration)
    reports = []
    for target in targets:
        if is_watched():
            draw(f"{target.name}: {target.sentence} …")
        kept = read_kept(arguments.keep, target.name)
        reports.append(hunt(target, driver=driver, seconds=seconds, seed=arguments.seed, kept=kept))
    if is_watched():
        wipe()
    return _report(reports, arguments)


def _list(targets: "list[FuzzTarget]", form: str) -> int:
    rows = [{"target": target.name, "what": target.sentence} for target in targets]
    if form == "json":
        print_json(rows)
    else:
        print_table(("TARGET", "WHAT"), [list(row.values()) for row in rows])
    return 0


def _report(reports: "list[FuzzReport]", arguments: argparse.Namespace) -> int:
    from ottla.jepsen.fuzz.kept import add_kept

    findings = [finding for report in reports for finding in report.findings]
    rows = [report.row() for report in reports]
    if arguments.format == "json":
        found = [
            {"target": one.target, "kind": one.kind, "what": one.what, "data": one.data.hex()}
            for one in findings
        ]
        print_json({"targets": rows, "findings": found})
    else:
        names = [name for name in rows[0] if name not in ("seconds", "slowest_ms")]
        print_table(
            [*map(header_of, names), "TOOK", "SLOWEST"],
            [
                [
                    *(row[name] for name in names),
                    Milliseconds(1_000 * row["seconds"]),
                    Milliseconds(row["slowest_ms"]),
                ]
                for row in rows
            ],
        )
    for finding in findings:
        path = add_kept(arguments.keep, finding.target, finding.data, finding.what)
        note(f"{finding.target}: {finding.kind}: {finding.what}")
        note(
            f"  to see it again: ottla world fuzz --target {finding.target} --driver plain "
            f"--for 1s --keep {path.parent}"
        )
    return FOUND if findings else 0
