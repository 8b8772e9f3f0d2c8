"""The audit finds each kind of violation planted into a valid history, and no other."""

from array import array
from types import SimpleNamespace

import confluent_kafka
import pytest
from confluent_kafka import KafkaError

from ottla.bench.faults.audit import STAMP, AuditedRecords, AuditVerdict, audit, read_back
from ottla.bench.faults.ledger import UNKNOWN_OFFSET, Answers, LedgerPartition, RunLedger

PLACE = LedgerPartition("load", 3, 10)


def judged(
    acknowledged: dict[int, int], found: list[tuple[int, int]], failed: tuple[int, ...] = ()
) -> AuditVerdict:
    """Judge one partition: acknowledged is offset to number, found is (offset, number) as read."""
    answers = Answers(
        PLACE,
        numbers=array("L", acknowledged.values()),
        offsets=array("q", acknowledged),
        at_s=array("d", [0.0] * len(acknowledged)),
        failed=array("L", failed),
    )
    ledger = RunLedger(run_id=1, started_s=0.0, answers=[answers])
    offsets = array("q", [offset for offset, _ in found])
    return audit(
        ledger, {PLACE: AuditedRecords(offsets, array("L", [number for _, number in found]))}
    )


def test_what_was_acknowledged_and_is_there_is_clean() -> None:
    verdict = judged({10: 0, 11: 1, 12: 2}, [(10, 0), (11, 1), (12, 2)])
    assert verdict.is_clean
    assert (verdict.acknowledged, verdict.read) == (3, 3)


def test_a_failed_send_may_be_there_or_not() -> None:
    assert judged({10: 0, 12: 2}, [(10, 0), (11, 1), (12, 2)], failed=(1,)).is_clean
    assert judged({10: 0, 11: 2}, [(10, 0), (11, 2)], failed=(1,)).is_clean


def test_an_acknowledgement_without_an_offset_asks_for_the_record_alone() -> None:
    assert judged({10: 0, UNKNOWN_OFFSET: 1}, [(10, 0), (11, 1)]).is_clean
    assert judged({10: 0, UNKNOWN_OFFSET: 1}, [(10, 0)]).lost == 1


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
            [(10, 0), (11, 1), (12, 2), (13, 3)], {"unasked": 1}, id="one without an answer"
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


class LogOfGaps:
    """A consumer of a log that ends at 15, whose record at 11 is the only one after compaction."""

    def __init__(self, settings: dict[str, object]) -> None:
        self._answers = [message(11, value=STAMP.pack(7, 0))]
        if settings.get("enable.partition.eof"):
            self._answers.append(message(15, error=KafkaError(KafkaError._PARTITION_EOF)))

    def get_watermark_offsets(self, at: object, timeout: float) -> tuple[int, int]:
        return 10, 15

    def assign(self, partitions: list[object]) -> None:
        assert len(partitions) == 1

    def consume(self, count: int, timeout: float) -> list[SimpleNamespace]:
        answers, self._answers = self._answers, []
        return answers

    def close(self) -> None:
        self._answers.clear()


def message(
    offset: int, *, value: bytes | None = None, error: KafkaError | None = None
) -> SimpleNamespace:
    """Return a message with the interface of confluent-kafka: its fields are methods."""
    fields = {"topic": "load", "partition": 3, "offset": offset, "value": value, "error": error}
    return SimpleNamespace(**{name: lambda held=held: held for name, held in fields.items()})


def test_a_lane_is_read_to_its_end_where_no_record_leads_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(confluent_kafka, "Consumer", LogOfGaps)
    monkeypatch.setattr("ottla.bench.faults.audit.SILENCE_S", 0.5)

    found = read_back("nowhere:1", [PLACE], run_id=7)

    assert list(found[PLACE].offsets) == [11]
