"""`ottla jepsen run|run-all|bugs|analyze|serve|list`: runs real processes under real faults, and
checks the recorded histories of operations.

Exit codes:

- 0 if the run is valid
- 1 for a usage error or a failure of the test harness
- 2 if the run is invalid, because an anomaly was found
- 4 if the verdict is unknown, for example because the run had too little load or too few faults;
  an unknown verdict does not count as success
"""

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.cli.common import FORMAT, print_json
from ottla.cli.lab.jepsen_plan import HARNESS, code_of, names_of, plan_of
from ottla.cli.options import Declared, option
from ottla.cli.tables import header_of, print_table
from ottla.cli.terminal import note, say
from ottla.cli.verbs import Handler, Verb, verb
from ottla.jepsen.processes.runs import run_plan
from ottla.model.errors import ConfigError, OttlaError

if TYPE_CHECKING:
    from ottla.jepsen.processes.store import RunDirectory

STORE_DEFAULT = "store"
STORE_HELP = "directory of stored runs (default: store)"
PORT_DEFAULT = 8470
EPILOG = "Exit codes: 0 valid, 1 usage or the harness failed, 2 invalid, 4 unknown."


def _run(arguments: argparse.Namespace) -> int:
    from ottla.cli.lab.jepsen_runs import one_run
    from ottla.cli.lab.jepsen_view import show_results

    plan = plan_of(arguments, names_of(arguments.workload), names_of(arguments.nemesis))
    directories, results = one_run(plan, arguments.store)
    show_results(directories, results, arguments.format)
    return code_of(results)


def _run_all(arguments: argparse.Namespace) -> int:
    from ottla.cli.lab.jepsen_matrix import run_all

    return run_all(arguments)


def _bugs(arguments: argparse.Namespace) -> int:
    from ottla.cli.lab.jepsen_bugs import run_bugs

    return run_bugs(arguments)


def _analyze(arguments: argparse.Namespace) -> int:
    from ottla.cli.lab.jepsen_view import show_results
    from ottla.jepsen.processes.runs.run_judge import judge_all
    from ottla.jepsen.processes.store import RunDirectory

    directories = [RunDirectory(path) for path in arguments.directories]
    for directory in directories:
        directory.plan()
    results = judge_all(directories)
    show_results(directories, results, arguments.format)
    return code_of(results)


def _serve(arguments: argparse.Namespace) -> int:
    from ottla.cli.lab.jepsen_serve import serve

    if not arguments.store.is_dir():
        raise ConfigError("DIR", f"{arguments.store} is not there; 'ottla jepsen run' makes one")
    return serve(arguments.store, arguments.port)


def _list(arguments: argparse.Namespace) -> int:
    import trio

    from ottla.jepsen.processes.runs.run_nemeses import nemesis_rows
    from ottla.jepsen.processes.store import Store
    from ottla.jepsen.workloads.table import ROWS

    workloads = [
        {"workload": name, "what": _sentence_of(row.generator)} for name, row in ROWS.items()
    ]
    nemeses = trio.run(nemesis_rows)
    runs = [_row_of(run) for run in Store(arguments.store).runs()]
    if arguments.format == "json":
        print_json({"workloads": workloads, "nemeses": nemeses, "runs": runs})
        return 0
    print_table(("WORKLOAD", "WHAT"), [list(row.values()) for row in workloads])
    say()
    print_table(("NEMESIS", "WHAT", "NOT-HERE"), [list(row.values()) for row in nemeses])
    if runs:
        say()
        print_table(list(map(header_of, runs[0])), [list(row.values()) for row in runs])
    else:
        note(f"no runs in {arguments.store}")
    return 0


def _sentence_of(maker: object) -> str:
    """Return the first line of the docstring of the module that defines an object."""
    import sys

    text = sys.modules[getattr(maker, "__module__", "")].__doc__ or ""
    return text.partition("\n")[0].partition(": ")[2].rstrip(".")


def _row_of(run: "RunDirectory") -> dict[str, Any]:
    from ottla.cli.lab.jepsen_view import WORDS

    results = run.results() if run.is_judged else {"valid": None, "figures": {}}
    return {
        "run": str(run.path),
        "verdict": WORDS.get(results["valid"]),
        "ops_per_s": results["figures"].get("ops_per_s"),
        "faults": results["figures"].get("faults"),
        "anomalies": results.get("anomalies") or None,
    }


def _verb(name: str, summary: str, body: Handler, *options: Declared, **settings: Any) -> Verb:
    return verb(name, summary, partial(_run_verb, body), *options, **settings)


def _run_verb(body: Handler, arguments: argparse.Namespace) -> int:
    """Run one verb of `ottla jepsen`. Returns the exit code HARNESS, which is no verdict, if a
    cluster is unreachable or refuses a request."""
    try:
        return body(arguments)
    except ConfigError:
        raise
    except OttlaError as error:
        note(f"ottla jepsen: {error}")
        return HARNESS


RUN_OPTIONS: tuple[Declared, ...] = (
    option("--for TIME", "time of load", dest="duration", default="60s"),
    option("--clients NAME,…", "client libraries", default=",".join(run_plan.CLIENTS)),
    option("--seed SEED", "seed of operations and faults", type=int, default=0),
    option(
        "--interval TIME",
        "length of a fault, and of the pause after it (default: 10s)",
        default=run_plan.duration_text(run_plan.INTERVAL_S_DEFAULT),
    ),
    option(
        "--threads THREADS", "threads of each workload", type=int, default=run_plan.THREADS_DEFAULT
    ),
    option(
        "--controllers CONTROLLERS",
        "number of controllers",
        type=int,
        default=run_plan.NODES_DEFAULT,
    ),
    option("--brokers BROKERS", "number of brokers", type=int, default=run_plan.NODES_DEFAULT),
    option("--flush", "flush every message on brokers"),
    option("--plain", "use loopback and proxies instead of network namespaces, as without root"),
    option("--secure", "authenticate nodes and clients over TLS, and authorize them by ACLs"),
    option(
        "--min-ops N",
        "operations a second below which a run is unknown (default: 500)",
        type=float,
        default=run_plan.OPS_PER_S_MIN_DEFAULT,
    ),
    option(
        "--min-faults N",
        "faults below which a run is unknown (default: half of those that fit)",
        type=int,
    ),
    option("--store DIR", STORE_HELP, type=Path, default=Path(STORE_DEFAULT)),
)
VERBS = (
    _verb(
        "run",
        "run one test: load, faults, verdict",
        _run,
        option("--workload NAME,…", "workloads, all at once", required=True),
        option("--nemesis NAME,…", "faults, in turns (default: none)", default="none"),
        option(
            "--bootstrap-server --bootstrap HOST:PORT,…",
            "brokers of a running cluster, for load and checks without faults",
        ),
        option("--planted BUG", "bug that is planted into every node"),
        *RUN_OPTIONS,
        FORMAT,
        epilog=EPILOG,
    ),
    _verb(
        "run-all",
        "run every workload under every nemesis, without those that have a verdict",
        _run_all,
        option("--workloads NAME,…", "workloads (default: all)", default="all"),
        option("--nemeses NAME,…", "kinds of fault (default: all)", default="all"),
        option("--together N", "workloads on one cluster at once", type=int, default=2),
        option("--again", "repeat runs that have a verdict"),
        *RUN_OPTIONS,
        FORMAT,
    ),
    _verb(
        "bugs",
        "plant bugs, and check that each is found",
        _bugs,
        option("names NAME", "bugs (default: all)", nargs="*"),
        option("--store DIR", STORE_HELP, type=Path, default=Path(STORE_DEFAULT)),
        FORMAT,
    ),
    _verb(
        "analyze",
        "judge stored runs again",
        _analyze,
        option("directories DIR ...", "directories of runs", type=Path),
        FORMAT,
        epilog=EPILOG,
    ),
    _verb(
        "serve",
        "serve stored reports to browsers of this machine",
        _serve,
        option("--port PORT", "port; 0 for any free one", type=int, default=PORT_DEFAULT),
        option("store DIR", STORE_HELP, nargs="?", type=Path, default=Path(STORE_DEFAULT)),
    ),
    _verb(
        "list",
        "list workloads, nemeses and runs",
        _list,
        option("store DIR", STORE_HELP, nargs="?", type=Path, default=Path(STORE_DEFAULT)),
        FORMAT,
    ),
)
