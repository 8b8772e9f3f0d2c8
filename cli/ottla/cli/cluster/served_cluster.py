"""Cluster of `ottla up` from the time it is ready until it ends: its nodes, its console, and the
process that supervises them.

While nothing happens, the supervising process executes `resting_driver`, which takes a sixth of the
memory. When a node ends or a signal arrives, it executes this module, which continues with the
state in the environment variable OTTLA_UP_STATE.
"""

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ottla.cli.cluster.cluster_file import read_plan
from ottla.cli.cluster.console_process import RunningConsole
from ottla.cli.cluster.local_cluster import LocalCluster
from ottla.cli.terminal import note
from ottla.node.local import resting_driver
from ottla.node.local.interrupts_driver import interrupt

STATE_VARIABLE = "OTTLA_UP_STATE"
MODULE = "ottla.cli.cluster.served_cluster"
"""Name of this module, which is `__main__` in a process that has rested before."""
SHOWN = ("ottla", "up")
"""Words that `ps` shows at the end of the command line. They have no effect."""


@dataclass(slots=True, kw_only=True)
class ServedCluster:
    """A local cluster that `ottla up` runs, and its console."""

    cluster: LocalCluster
    directory: Path
    restarts: bool
    is_removed: bool
    """True if the directory of the cluster is removed when the cluster has ended."""
    log: Path | None
    """File of this process's output, or None if the output is a terminal or a pipe."""
    console: RunningConsole | None = None

    def run(self, begin: Callable[[], int]) -> int:
        """Call `begin`, which starts the cluster. If it returns the exit code 0, wait until the
        cluster ends or is asked to stop. Returns the exit code."""
        signal.signal(signal.SIGTERM, interrupt)
        try:
            code = begin()
            if code == 0:
                code = self.cluster.watch(resting_driver.LOG_LOOK_S, self._bound_log, self._rest)
        except KeyboardInterrupt:
            note("stopping …")
            code = 0
        finally:
            began_at = time.monotonic()
            if self.console is not None:
                self.console.stop()
            self.cluster.stop()
            if self.is_removed:
                shutil.rmtree(self.directory, ignore_errors=True)
        note(f"stopped in {time.monotonic() - began_at:.1f} s")
        return code

    def _bound_log(self) -> None:
        """Empty the log of a process that does not rest, because its nodes keep ending, if the log
        is too large."""
        if self.log is not None:
            resting_driver.bound_log(str(self.log))

    def _rest(self) -> None:
        """Execute the program that waits for the end of a node in place of this process. Returns if
        a node has ended just now."""
        signal.pthread_sigmask(signal.SIG_BLOCK, resting_driver.SIGNALS)
        if self.cluster.has_events:
            unblock_signals()
            return
        log = "" if self.log is None else str(self.log)
        state = {
            "directory": str(self.directory),
            "restarts": self.restarts,
            "removed": self.is_removed,
            "log": log,
            "console": None if self.console is None else self.console.handed_over(),
            "nodes": self.cluster.running(),
        }
        sys.stdout.flush()
        sys.stderr.flush()
        program = [sys.executable, "-I", "-S", resting_driver.__file__, log]
        command = [sys.executable, "-P", "-m", MODULE, *SHOWN, "--dir", str(self.directory)]
        environment = {**os.environ, STATE_VARIABLE: json.dumps(state)}
        try:
            os.execve(program[0], [*program, *command], environment)
        except OSError:  # the interpreter has been replaced: this process supervises on
            unblock_signals()


def unblock_signals() -> None:
    """Accept signals again, first those that arrived since they were blocked."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, resting_driver.SIGNALS)


def served_again(state: dict[str, Any]) -> ServedCluster:
    """Return the cluster whose supervising process has rested, from the state of that time."""
    directory = Path(state["directory"])
    cluster = LocalCluster(read_plan(directory), restarts=state["restarts"])
    cluster.adopt(state["nodes"])
    return ServedCluster(
        cluster=cluster,
        directory=directory,
        restarts=state["restarts"],
        is_removed=state["removed"],
        log=Path(state["log"]) if state["log"] else None,
        console=None if state["console"] is None else RunningConsole.taken_over(*state["console"]),
    )


def main() -> NoReturn:
    """Continue to supervise the cluster of this process, until it ends or this process rests."""

    def begin() -> int:
        unblock_signals()
        return 0

    sys.exit(served_again(json.loads(os.environ.pop(STATE_VARIABLE))).run(begin))


if __name__ == "__main__":
    main()
