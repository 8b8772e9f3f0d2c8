"""Each kind of wrong, planted into a history that is right, is found, and nothing else is."""

from array import array

import pytest

from ottla.bench.audit import AuditedRecords, AuditVerdict, audit
from ottla.bench.ledger import Answers, LedgerLane, RunLedger

LANE = LedgerLane("load", 3, 10)


def judged(
    acknowledged: dict[int, int], found: list[tuple[int, int]], failed: tuple[int, ...] = ()
) -> AuditVerdict:
    """Judge one lane: acknowledged is offset to number, found is (offset, number) as read."""
    answers = Answers(
        LANE,
        numbers=array("L", acknowledged.values()),
        offsets=array("q", acknowledged),
        at_s=array("d", [0.0] * len(acknowledged)),
        failed=array("L", failed),
    )
    ledger = RunLedger(run_id=1, started_s=0.0, answers=[answers])
    offsets = array("q", [offset for offset, _ in found])
    return audit(
        ledger, {LANE: AuditedRecords(offsets, array("L", [number for _, number in found]))}
    )


def test_what_was_acknowledged_and_is_there_is_clean() -> None:
    verdict = judged({10: 0, 11: 1, 12: 2}, [(10, 0), (11, 1), (12, 2)])
    assert verdict.is_clean
    assert (verdict.acknowledged, verdict.read) == (3, 3)


def test_a_failed_send_may_be_there_or_not() -> None:
    assert judged({10: 0, 12: 2}, [(10, 0), (11, 1), (12, 2)], failed=(1,)).is_clean
    assert judged({10: 0, 11: 2}, [(10, 0), (11, 2)], failed=(1,)).is_clean


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        pytest.param([(10, 0), (11, 1)], {"lost": 1}, id="the last is lost"),
        pytest.param([(10, 0), (12, 2)], {"lost": 1}, id="one in the middle is lost"),
        pytest.param([(10, 0), (11, 1), (12, 2), (13, 1)], {"doubled": 1}, id="one is there twice"),
        pytest.param(
            [(10, 0), (11, 2), (12, 1)], {"lost": 2, "out_of_order": 1}, id="two changed places"
        ),
        pytest.param(
            [(10, 0), (11, 1), (12, 2), (13, 3)], {"unasked": 1}, id="one nobody answered for"
        ),
    ],
)
def test_a_planted_wrong_is_named(found: list[tuple[int, int]], wrong: dict[str, int]) -> None:
    verdict = judged({10: 0, 11: 1, 12: 2}, found)
    assert not verdict.is_clean
    kinds = ("lost", "doubled", "out_of_order", "unasked")
    assert {kind: getattr(verdict, kind) for kind in kinds if getattr(verdict, kind)} == wrong
    assert all("load-3" in example for example in verdict.examples)
    assert verdict.examples
