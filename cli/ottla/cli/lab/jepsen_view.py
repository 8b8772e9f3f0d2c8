"""Prints a Jepsen run to the terminal: a progress line, then its verdict and the anomalies that
checkers found."""

from typing import TYPE_CHECKING, Any

from ottla.cli.common import counted, print_json
from ottla.cli.tables import Milliseconds, print_table
from ottla.cli.terminal import draw, is_watched, note, say, wipe

if TYPE_CHECKING:
    from ottla.jepsen.processes.runs.run_plan import RunPlan
    from ottla.jepsen.processes.runs.run_status import Status
    from ottla.jepsen.processes.store import RunDirectory

BAR_WIDTH = 20
EXAMPLES_MAX = 3
"""Maximum number of examples that the terminal shows for each anomaly of a Jepsen run; results.json
has more."""
WORDS = {True: "valid", False: "INVALID", "unknown": "unknown"}


class ProgressLine:
    """Progress line of a Jepsen run. A terminal shows one line that is redrawn; any other output
    gets a line at each new phase."""

    def __init__(self, plan: "RunPlan") -> None:
        self._name = f"{','.join(plan.workloads)} × {plan.nemesis}"
        self._phase = ""

    def show(self, status: "Status") -> None:
        """Print the present progress of the Jepsen run on a terminal, or each new phase to other
        outputs."""
        if is_watched():
            draw(self.line(status))
        elif status.phase != self._phase:
            note(f"{self._name}: {status.phase}")
        self._phase = status.phase

    def say(self, sentence: str) -> None:
        """Print a message to the user above the Jepsen run's progress line."""
        self.end()
        note(sentence)

    def end(self) -> None:
        """Erase the Jepsen run's progress line from the terminal."""
        if is_watched():
            wipe()

    def line(self, status: "Status") -> str:
        """Return the progress line for the present status of a Jepsen run."""
        parts = [self._name, f"{status.phase} {status.phase_s:.0f}"]
        if status.phase_s_max:
            filled = round(BAR_WIDTH * min(1.0, status.phase_s / status.phase_s_max))
            parts[-1] += f"/{status.phase_s_max:.0f} s [{'#' * filled:.<{BAR_WIDTH}}]"
        else:
            parts[-1] += " s"
        if status.operation_count:
            parts.append(f"{status.operation_count:,} ops ({status.ops_per_s:,.0f}/s)")
            parts.append(counted(status.fault_count, "fault"))
            anomalies = ", ".join(f"{name} × {n}" for name, n in status.anomalies.items())
            parts.append(anomalies or "no anomaly so far")
        if status.fault:
            parts.append(f"now: {status.fault}")
        return "  ".join(parts)


def show_results(
    directories: list["RunDirectory"], results: list[dict[str, Any]], form: str
) -> None:
    """Print each verdict of a Jepsen run with its statistics. Also prints the anomalies that
    checkers found and the events that prove these anomalies."""
    from ottla.jepsen.report.figures import MISSING, can_draw

    if not can_draw():
        note(MISSING)
    if form == "json":
        rows = zip(directories, results, strict=True)
        print_json([{"directory": str(where.path), **found} for where, found in rows])
        return
    print_table(
        ("WORKLOAD", "NEMESIS", "VERDICT", "OPS", "OPS/S", "OK", "INFO", "FAULTS", "RECOVERY-P99"),
        [_row(found) for found in results],
    )
    for directory, found in zip(directories, results, strict=True):
        _show_findings(found)
        say(f"  {directory.path}/index.html")
    for command in dict.fromkeys(found["command"] for found in results):
        say(f"  again: {command}")


def recovery_of(found: dict[str, Any]) -> Milliseconds | None:
    """Return the time, in milliseconds, in which the cluster recovered in a Jepsen run. Returns
    None if the results of the run have no recovery time."""
    seconds = found["figures"].get("recovery_p99_s")
    return None if seconds is None else Milliseconds(1_000 * seconds)


def _row(found: dict[str, Any]) -> list[Any]:
    figures = found["figures"]
    return [
        found["workload"],
        "+".join(found["nemesis"]),
        WORDS[found["valid"]],
        figures["operations"],
        figures["ops_per_s"],
        figures["ok"],
        figures["info"],
        figures["faults"],
        recovery_of(found),
    ]


def _show_findings(found: dict[str, Any]) -> None:
    if found["reason"]:
        say(f"{found['workload']}: {WORDS[found['valid']]}: {found['reason']}")
    for verdict in found["verdicts"]:
        printed: dict[str, int] = {}
        for finding in verdict["findings"] if verdict["valid"] is not True else ():
            anomaly = finding["anomaly"]
            printed[anomaly] = printed.get(anomaly, 0) + 1
            if printed[anomaly] <= EXAMPLES_MAX:
                events = ", ".join(map(str, finding["operations"]))
                where = f" (events {events})" if events else ""
                say(f"  {anomaly}: {finding['detail']}{where}")
