"""Converts command-line arguments to the plan of a Jepsen run, and the run's verdicts to an exit
code."""

import argparse
from typing import TYPE_CHECKING, Any

from ottla.cli.times import parse_duration

if TYPE_CHECKING:
    from ottla.jepsen.processes.runs.run_plan import RunPlan

HARNESS = 1
INVALID = 2
UNKNOWN = 4


def plan_of(
    arguments: argparse.Namespace, workloads: tuple[str, ...], nemeses: tuple[str, ...]
) -> "RunPlan":
    """Return the plan of a Jepsen run from the command line's arguments."""
    from ottla.jepsen.processes.runs.run_plan import RunPlan

    return RunPlan(
        workloads=workloads,
        nemeses=nemeses,
        clients=names_of(arguments.clients),
        seconds=parse_duration("--for", arguments.duration),
        interval_s=parse_duration("--interval", arguments.interval),
        threads=arguments.threads,
        seed=arguments.seed,
        controllers=arguments.controllers,
        brokers=arguments.brokers,
        flush=arguments.flush,
        plain=arguments.plain,
        secure=arguments.secure,
        bootstrap=getattr(arguments, "bootstrap_server", None),
        planted=getattr(arguments, "planted", None),
        ops_per_s_min=arguments.min_ops,
        faults_min=arguments.min_faults,
    )


def names_of(text: str) -> tuple[str, ...]:
    """Return the names in a comma-separated list of workloads or nemeses."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def code_of(results: list[dict[str, Any]]) -> int:
    """Return the exit code of the worst verdict of Jepsen runs, or the exit code of an unknown
    verdict if `results` is empty."""
    verdicts = [found["valid"] for found in results]
    if any(valid is False for valid in verdicts):
        return INVALID
    return UNKNOWN if not verdicts or "unknown" in verdicts else 0
