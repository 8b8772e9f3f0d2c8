"""Conditions for a run to count as one."""

from typing import Any

import pytest

from ottla.jepsen.processes.runs.run_plan import RunPlan
from ottla.jepsen.processes.runs.run_verdict import RunSummary, judge_run

PLAN = RunPlan(workloads=("queue",), nemeses=("kill",), seconds=60)
GOOD: dict[str, Any] = {
    "seconds": 60.0,
    "operation_count": 40_000,
    "faults": {"kill": 3},
    "is_read": True,
}


def test_a_run_with_load_faults_and_a_good_end_is_one() -> None:
    verdict = judge_run(PLAN, RunSummary(**GOOD))

    assert verdict.valid is True
    assert verdict.figures["ops_per_s"] == 666.7


@pytest.mark.parametrize(
    ("changes", "anomaly"),
    [
        ({"broken_clients": {"KeyError: 3": 2}}, "client-broke"),
        ({"died": ["b1 ended with code 1"]}, "node-died"),
        ({"unhealthy": "b1 is not in sync"}, "not-healthy-again"),
    ],
)
def test_a_poor_run_is_invalid(changes: dict[str, Any], anomaly: str) -> None:
    verdict = judge_run(PLAN, RunSummary(**{**GOOD, **changes}))

    assert verdict.valid is False
    assert list(verdict.findings_count) == [anomaly]


@pytest.mark.parametrize(
    ("changes", "shortage"),
    [
        ({"operation_count": 29_000}, "too-few-operations"),
        ({"seconds": 0.0}, "too-few-operations"),
        ({"faults": {}}, "too-few-faults"),
    ],
)
def test_a_run_with_too_little_load_or_too_few_faults_is_unknown(
    changes: dict[str, Any], shortage: str
) -> None:
    verdict = judge_run(PLAN, RunSummary(**{**GOOD, **changes}))

    assert verdict.valid == "unknown"
    assert list(verdict.findings_count) == [shortage]
    assert "at least" in str(verdict.reason)


def test_too_little_load_excuses_no_anomaly() -> None:
    verdict = judge_run(PLAN, RunSummary(**{**GOOD, "operation_count": 1, "died": ["b1 ended"]}))

    assert verdict.valid is False
    assert verdict.reason == "node-died × 1"


@pytest.mark.parametrize(
    "changes",
    [
        {"is_interrupted": True, "operation_count": 1, "faults": {}, "is_read": False},
        {"is_read": False},
        {"skipped": {"power-cut": "no loop devices"}},
        {"fault_errors": ["kill could not be injected"]},
    ],
)
def test_a_run_that_was_not_done_wholly_is_unknown(changes: dict[str, Any]) -> None:
    verdict = judge_run(PLAN, RunSummary(**{**GOOD, **changes}))

    assert verdict.valid == "unknown"
    assert verdict.reason


def test_without_a_nemesis_no_fault_is_asked_for() -> None:
    calm = RunPlan(workloads=("queue",))

    assert judge_run(calm, RunSummary(**{**GOOD, "faults": {}})).valid is True


def test_the_course_is_read_as_it_was_written() -> None:
    course = RunSummary(**GOOD, died=["b1"], skipped={"slow": "no tbf"})

    assert RunSummary.from_json(course.to_json()) == course
