"""`ottla jepsen run-all`: runs every workload under every nemesis, prints a table of all results,
and writes the matrix page.

A cell of the table is one workload with one nemesis (kind of fault). If a cell already has a
verdict from a run of at least the planned length, it is not run again. Each run is a process of its
own, so that a crash, even in a library, affects only the cells of that run.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ottla.cli.common import print_json
from ottla.cli.lab.jepsen_plan import code_of, names_of, plan_of
from ottla.cli.lab.jepsen_runs import run_in_child
from ottla.cli.lab.jepsen_view import WORDS, recovery_of
from ottla.cli.tables import print_table
from ottla.cli.terminal import note
from ottla.model.errors import ConfigError

if TYPE_CHECKING:
    from ottla.jepsen.processes.runs.run_plan import RunPlan
    from ottla.jepsen.processes.store import RunDirectory, Store

ALL = "all"
COLUMNS = ("WORKLOAD", "NEMESIS", "VERDICT", "OPS", "OPS/S", "FAULTS", "RECOVERY-P99")


def run_all(arguments: argparse.Namespace) -> int:
    """`ottla jepsen run-all`: run the cells of the matrix that have no result yet. A cell is a pair
    of workload and nemesis. Returns the exit code of the worst verdict."""
    from ottla.jepsen.processes.store import Store
    from ottla.jepsen.report.write import write_matrix

    store = Store(arguments.store)
    cells: list[dict[str, Any]] = []
    try:
        for plan in _plans(arguments):
            cells += _cells(plan, store, again=arguments.again)
    finally:
        # The page is also written after an interrupt, so that it has the runs completed so far.
        if arguments.store.is_dir():
            page = write_matrix(arguments.store)
            note(f"the matrix: {page}")
    if arguments.format == "json":
        print_json(cells)
    else:
        print_table(COLUMNS, [_row(found) for found in cells])
    return code_of(cells)


def _plans(arguments: argparse.Namespace) -> Iterator["RunPlan"]:
    """Yield the plans of Jepsen runs: one for each nemesis and each set of workloads that share a
    cluster."""
    from ottla.jepsen.processes.runs.run_nemeses import needs_flush, nemesis_names
    from ottla.jepsen.workloads.table import WORKLOADS

    workloads = _chosen("--workloads", arguments.workloads, tuple(WORKLOADS))
    nemeses = _chosen("--nemeses", arguments.nemeses, nemesis_names())
    if arguments.together < 1:
        raise ConfigError("--together", "is below 1")
    for nemesis in nemeses:
        for at in range(0, len(workloads), arguments.together):
            plan = plan_of(arguments, workloads[at : at + arguments.together], (nemesis,))
            yield replace(plan, flush=True) if needs_flush(nemesis) else plan


def _chosen(option: str, text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    if text == ALL:
        return known
    names = names_of(text)
    for name in names:
        if name not in known:
            raise ConfigError(option, f"is {name!r}; it must be one of {', '.join(known)}")
    return names


def _cells(plan: "RunPlan", store: "Store", *, again: bool) -> list[dict[str, Any]]:
    """Run the workloads of a Jepsen run's plan that have no verdict yet. Returns the results of all
    workloads of the plan."""
    kept = {name: None if again else _kept(plan, name, store) for name in plan.workloads}
    missing = tuple(name for name, run in kept.items() if run is None)
    results = {name: run.results() for name, run in kept.items() if run is not None}
    for name, found in results.items():
        _note_cell(name, found, is_kept=True)
    if missing:
        wanted = replace(plan, workloads=missing)
        new = run_in_child(wanted, store.root)
        for name, found in zip(missing, new or _broken(wanted), strict=True):
            results[name] = found
            _note_cell(name, found)
    return [results[name] for name in plan.workloads]


def _broken(plan: "RunPlan") -> list[dict[str, Any]]:
    """Return the results of a Jepsen run that failed without a verdict, with one entry for each
    workload of the run."""
    figures = {"operations": 0, "ops_per_s": 0.0, "faults": 0}
    common = {"valid": "unknown", "nemesis": list(plan.nemeses), "figures": figures}
    return [{**common, "reason": "the harness broke", "workload": name} for name in plan.workloads]


def _kept(plan: "RunPlan", workload: str, store: "Store") -> "RunDirectory | None":
    """Return the last stored Jepsen run of a workload under the plan's nemesis. Returns None if no
    run is stored, or if the last run was interrupted or shorter than planned."""
    run = store.latest(plan.test_of(workload))
    if run is None or run.plan().seconds < plan.seconds or run.plan().clients != plan.clients:
        return None
    return None if run.test()["course"]["is_interrupted"] else run


def _note_cell(workload: str, found: dict[str, Any], *, is_kept: bool = False) -> None:
    """Print the verdict of a Jepsen workload as soon as it is known."""
    line = f"{workload} × {'+'.join(found['nemesis'])}: {WORDS[found['valid']]}"
    if is_kept:
        line += ", kept"
    elif found["reason"]:
        line += f", {found['reason']}"
    note(line)


def _row(found: dict[str, Any]) -> list[Any]:
    figures = found["figures"]
    return [
        found["workload"],
        "+".join(found["nemesis"]),
        WORDS[found["valid"]],
        figures["operations"],
        round(figures["ops_per_s"]),
        figures["faults"],
        recovery_of(found),
    ]
