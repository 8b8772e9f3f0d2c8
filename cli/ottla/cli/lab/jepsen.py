"""`ottla jepsen run|run-all|bugs|analyze|serve|list`: real processes, real faults, exact checkers.

Exit code 0 only when a run is valid; 1 usage, or the harness itself failed; 2 invalid: an anomaly;
4 unknown: too little load, too few faults, or something else that leaves it undecided: no pass.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.cli.common import add_format_argument, print_json, print_table
from ottla.cli.lab.jepsen_plan import HARNESS, code_of, names_of, plan_of
from ottla.cli.terminal import note, say
from ottla.model.errors import ConfigError, OttlaError

if TYPE_CHECKING:
    from ottla.jepsen.processes.store import RunDirectory

STORE_DEFAULT = "store"
STORE_HELP = "directory of stored runs (default: store)"
PORT_DEFAULT = 8470
EPILOG = "Exit codes: 0 valid, 1 usage or the harness failed, 2 invalid, 4 unknown."


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs of 'ottla jepsen'."""
    parser.epilog = EPILOG
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    run_ = verbs.add_parser("run", help="run one test: load, faults, verdict", epilog=EPILOG)
    run_.add_argument("--workload", required=True, metavar="NAME,…", help="workloads, all at once")
    run_.add_argument(
        "--nemesis",
        default="none",
        metavar="NAME,…",
        help="faults, in turns (default: none)",
    )
    run_.add_argument(
        "--bootstrap-server",
        "--bootstrap",
        metavar="HOST:PORT,…",
        help="brokers of a running cluster, for load and checks without faults",
    )
    run_.add_argument("--planted", metavar="BUG", help="bug that is planted into every node")
    add_run_arguments(run_)
    all_ = verbs.add_parser(
        "run-all", help="run every workload under every nemesis, without those that have a verdict"
    )
    all_.add_argument(
        "--workloads", default="all", metavar="NAME,…", help="workloads (default: all)"
    )
    all_.add_argument(
        "--nemeses", default="all", metavar="NAME,…", help="kinds of fault (default: all)"
    )
    all_.add_argument(
        "--together",
        type=int,
        default=2,
        metavar="N",
        help="workloads on one cluster at once",
    )
    all_.add_argument("--again", action="store_true", help="repeat runs that have a verdict")
    add_run_arguments(all_)
    bugs_ = verbs.add_parser("bugs", help="plant bugs, and check that each is found")
    bugs_.add_argument("names", nargs="*", metavar="NAME", help="bugs (default: all)")
    bugs_.add_argument(
        "--store", type=Path, default=Path(STORE_DEFAULT), metavar="DIR", help=STORE_HELP
    )
    analyze = verbs.add_parser("analyze", help="judge stored runs again", epilog=EPILOG)
    analyze.add_argument(
        "directories", nargs="+", type=Path, metavar="DIR", help="directories of runs"
    )
    serve = verbs.add_parser("serve", help="serve stored reports to browsers of this machine")
    serve.add_argument("--port", type=int, default=PORT_DEFAULT, help="port; 0 for any free one")
    list_ = verbs.add_parser("list", help="list workloads, nemeses and runs")
    for verb in (serve, list_):
        verb.add_argument(
            "store",
            nargs="?",
            type=Path,
            default=Path(STORE_DEFAULT),
            metavar="DIR",
            help=STORE_HELP,
        )
    for verb in (run_, all_, bugs_, analyze, list_):
        add_format_argument(verb)


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of every run."""
    from ottla.jepsen.processes import run_plan

    parser.add_argument(
        "--for", dest="duration", default="60s", metavar="TIME", help="time of load"
    )
    parser.add_argument(
        "--clients", default=",".join(run_plan.CLIENTS), metavar="NAME,…", help="client libraries"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of operations and faults")
    parser.add_argument(
        "--interval",
        default=run_plan.duration_text(run_plan.INTERVAL_S_DEFAULT),
        metavar="TIME",
        help="length of a fault, and of the pause after it (default: 10s)",
    )
    parser.add_argument(
        "--threads", type=int, default=run_plan.THREADS_DEFAULT, help="threads of each workload"
    )
    parser.add_argument(
        "--controllers", type=int, default=run_plan.NODES_DEFAULT, help="number of controllers"
    )
    parser.add_argument(
        "--brokers", type=int, default=run_plan.NODES_DEFAULT, help="number of brokers"
    )
    parser.add_argument("--flush", action="store_true", help="flush every message on brokers")
    parser.add_argument(
        "--plain",
        action="store_true",
        help="use loopback and proxies instead of network namespaces, as without root",
    )
    parser.add_argument(
        "--secure",
        action="store_true",
        help="have nodes and clients show who they are, over TLS, and ACLs decide",
    )
    parser.add_argument(
        "--min-ops",
        type=float,
        default=run_plan.OPS_PER_S_MIN_DEFAULT,
        metavar="N",
        help="operations a second below which a run is unknown (default: 500)",
    )
    parser.add_argument(
        "--min-faults",
        type=int,
        metavar="N",
        help="faults below which a run is unknown (default: half of those that fit)",
    )
    parser.add_argument(
        "--store", type=Path, default=Path(STORE_DEFAULT), metavar="DIR", help=STORE_HELP
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the verb."""
    verbs = {
        "run": _run,
        "run-all": _run_all,
        "bugs": _bugs,
        "analyze": _analyze,
        "serve": _serve,
        "list": _list,
    }
    try:
        return verbs[arguments.verb](arguments)
    except ConfigError:
        raise
    except OttlaError as error:
        # Unreachable or refused: without a run there is no code of a verdict.
        note(f"ottla jepsen: {error}")
        return HARNESS


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
    from ottla.jepsen.processes.run_judge import judge_all
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

    from ottla.jepsen.processes.run_nemeses import nemesis_rows
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
    print_table(("NEMESIS", "WHAT", "NOT HERE"), [list(row.values()) for row in nemeses])
    if runs:
        say()
        headers = [name.upper().replace("_", " ") for name in runs[0]]
        print_table(headers, [list(row.values()) for row in runs])
    else:
        note(f"no runs in {arguments.store}")
    return 0


def _sentence_of(maker: object) -> str:
    """Return the first line of the docstring of the module where something was made."""
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
