"""Computes the verdict on a finished run: the checkers' results for its history, results.json, and
pictures.

It needs only the run's folder, so a run can be checked again later with improved checkers.
"""

import re
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from ottla.jepsen.checkers.table import CHECKERS
from ottla.jepsen.checkers.verdict import RunFacts, Validity, Verdict, combined
from ottla.jepsen.history import EventKind, History
from ottla.jepsen.processes.runs.run_plan import RunPlan
from ottla.jepsen.processes.runs.run_verdict import RunSummary, judge_run
from ottla.jepsen.processes.store import RESULTS_FILE, RunDirectory
from ottla.jepsen.report.write import write_report
from ottla.model.errors import ConfigError
from ottla.model.garbage import collection_paused

ERRORS_KEPT_MAX = 20
ERROR_CHARACTERS_MAX = 160
NUMBER = re.compile(r"\d+")


def judge_all(directories: Sequence[RunDirectory]) -> list[dict[str, Any]]:
    """Judge finished runs in parallel, each in a separate process. Returns the content of each
    run's results.json."""
    if len(directories) == 1:
        return [judge(directories[0].path)]
    # Spawned, not forked: gRPC and librdkafka have threads in this process.
    with ProcessPoolExecutor(max_workers=2, mp_context=get_context("spawn")) as pool:
        asked = [pool.submit(_judge_in_child, directory.path) for directory in directories]
        answers = [answer.result() for answer in asked]
    for answer in answers:
        if isinstance(answer, tuple):
            raise ConfigError(*answer)
    return [answer for answer in answers if isinstance(answer, dict)]


def _judge_in_child(path: Path) -> dict[str, Any] | tuple[str, str]:
    """Judge a finished run in a worker process, and return its results. A ConfigError is returned
    as (setting, problem)."""
    try:
        return judge(path)
    except ConfigError as error:
        return error.setting, error.problem


def judge(path: Path) -> dict[str, Any]:
    """Run the checkers on one finished run, write its results and plots, and return the results."""
    directory = RunDirectory(path)
    test = directory.test()
    plan = directory.plan()
    facts = RunFacts.from_json(test.get("facts", {}))
    try:
        with directory.history.open() as lines:
            history = History.from_lines(lines)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(str(directory.history), f"cannot be read: {error}") from None
    verdicts = [judge_run(plan, RunSummary.from_json(test.get("course", {})))]
    with collection_paused():
        verdicts += [_judged(name, history, facts) for name in test.get("checkers", [])]
    results = results_of(plan, test, history, verdicts)
    directory.write(RESULTS_FILE, results)
    write_report(directory.path, history)
    return results


def results_of(
    plan: RunPlan, test: dict[str, Any], history: History, verdicts: Sequence[Verdict]
) -> dict[str, Any]:
    """Return the content of results.json, from the plan, the content of test.json, the history and
    the checkers' verdicts."""
    valid: Validity = combined(verdicts)
    anomalies: Counter[str] = Counter()
    for verdict in verdicts:
        anomalies.update(verdict.findings_count)
    reasons = [f"{each.checker}: {each.reason}" for each in verdicts if each.valid is not True]
    return {
        "valid": valid,
        "reason": "; ".join(reasons) or None,
        "workload": test.get("workload"),
        "nemesis": list(plan.nemeses),
        "clients": list(plan.clients),
        "planted": plan.planted,
        "started": test.get("started"),
        "command": plan.command(),
        "figures": _figures(history, RunSummary.from_json(test.get("course", {})), verdicts),
        "anomalies": dict(anomalies),
        "errors": dict(_errors(history).most_common(ERRORS_KEPT_MAX)),
        "verdicts": [verdict.to_json() for verdict in verdicts],
    }


def _judged(name: str, history: History, facts: RunFacts) -> Verdict:
    """Run one checker on a run's history, and return its verdict. If the checker raises an
    exception, the verdict is "unknown"."""
    try:
        return CHECKERS[name](history, facts)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        said = f"the checker failed: {type(error).__name__}: {error} ({where.name}:{where.lineno})"
        return Verdict(name, "unknown", reason=said)


def _figures(history: History, summary: RunSummary, verdicts: Iterable[Verdict]) -> dict[str, Any]:
    kinds = Counter(operation.kind for operation in history.operations())
    figures: dict[str, Any] = {
        "operations": kinds.total(),
        "ok": kinds[EventKind.OK],
        "fail": kinds[EventKind.FAIL],
        "info": kinds[EventKind.INFO],
        "ops_per_s": round(summary.own_ops_per_s, 1),
        "ops_per_s_of_all": round(summary.ops_per_s, 1),
        "seconds": round(summary.seconds, 1),
        "faults": summary.fault_count,
        "faults_by_kind": dict(summary.faults),
    }
    for verdict in verdicts:
        if "recovery_s" in verdict.figures:
            figures["recovery_p99_s"] = verdict.figures["recovery_s"]["p99"]
            figures["calm_ok_share"] = verdict.figures.get("calm_ok_share")
    return figures


def _errors(history: History) -> Counter[str]:
    """Return the number of failed operations in the history, by operation, outcome and error text.
    Numbers in the text are removed, so that equal errors are counted together."""
    return Counter(
        f"{event.f} {event.kind}: {NUMBER.sub('N', event.error)[:ERROR_CHARACTERS_MAX]}"
        for event in history.events
        if event.process >= 0 and event.error is not None
    )
