"""`ottla jepsen bugs`: runs real nodes with one deliberate bug at a time. Each run must detect its
bug as the expected anomaly."""

import argparse
from typing import Any

from ottla.cli.common import print_json
from ottla.cli.lab.jepsen_plan import INVALID
from ottla.cli.lab.jepsen_runs import run_in_child
from ottla.cli.tables import print_table
from ottla.cli.terminal import note, say
from ottla.model.errors import ConfigError


def run_bugs(arguments: argparse.Namespace) -> int:
    """`ottla jepsen bugs`: run real nodes with each injected bug, one bug at a time. Returns exit
    code 2 if any bug was not detected."""
    from ottla.jepsen.processes.runs.run_bugs import PLANTED, found_by

    names = arguments.names or list(PLANTED)
    for name in names:
        if name not in PLANTED:
            raise ConfigError("NAME", f"is {name!r}; it must be one of {', '.join(PLANTED)}")
    rows: list[dict[str, Any]] = []
    for name in names:
        bug = PLANTED[name]
        results = run_in_child(bug.plan, arguments.store)
        finding = found_by(bug, results)
        rows.append(
            {
                "bug": name,
                "found": finding is not None,
                "anomaly": finding["anomaly"] if finding else None,
                "detail": finding["detail"] if finding else None,
                "operations": finding["operations"] if finding else [],
                "directory": results[0]["directory"] if results else None,
                "command": bug.plan.command(),
            }
        )
        said = f"{finding['anomaly']}: {finding['detail']}" if finding else "not found"
        note(f"{name}: {said}")
    if arguments.format == "json":
        print_json(rows)
    else:
        headers = ("BUG", "ANOMALY", "EVENTS", "RUN")
        print_table(
            headers,
            [[row["bug"], row["anomaly"], row["operations"], row["directory"]] for row in rows],
        )
        say(f"{sum(row['found'] for row in rows)} of {len(rows)} found")
    return 0 if all(row["found"] for row in rows) else INVALID
