"""Executes one run of `ottla jepsen`, in this process or in a child process."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.cli.lab.jepsen_plan import INVALID, UNKNOWN
from ottla.cli.lab.jepsen_view import ProgressLine
from ottla.cli.terminal import note

if TYPE_CHECKING:
    from ottla.jepsen.processes.runs.run_plan import RunPlan
    from ottla.jepsen.processes.store import RunDirectory


def one_run(plan: "RunPlan", store: Path) -> tuple[list["RunDirectory"], list[dict[str, Any]]]:
    """Execute a Jepsen run in this process and check its histories. Returns its result directories
    and their verdicts."""
    import trio

    from ottla.jepsen.processes.runs.run_driver import run
    from ottla.jepsen.processes.runs.run_judge import judge_all
    from ottla.jepsen.processes.runs.run_status import RunPhase, Status
    from ottla.jepsen.processes.store import Store

    line = ProgressLine(plan)

    async def body() -> list["RunDirectory"]:
        return await run(plan, Store(store), show=line.show, say=line.say)

    try:
        directories = trio.run(body)
        line.show(Status(phase=RunPhase.JUDGE))
        results = judge_all(directories)
    finally:
        line.end()
    return directories, results


def run_in_child(plan: "RunPlan", store: Path) -> list[dict[str, Any]]:
    """Execute a Jepsen run in a child process. Returns its verdicts, or an empty list if the test
    harness failed.

    A crash of the child, even in a library, does not affect this process.
    """
    words = [*shlex.split(plan.command())[1:], "--store", str(store), "--format", "json"]
    running = subprocess.Popen([sys.executable, "-m", "ottla.cli", *words], stdout=subprocess.PIPE)
    try:
        printed, _ = running.communicate()
    except KeyboardInterrupt:
        # The child received the same Ctrl-C. It must still heal the faults and stop its cluster.
        running.wait()
        raise
    if running.returncode in (0, INVALID, UNKNOWN):
        return list(json.loads(printed))
    note(f"the harness ended with code {running.returncode}: {plan.command()}")
    return []
