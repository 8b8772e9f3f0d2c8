from pathlib import Path

from ottla.bench.faults.ledger import (
    NOT_ACKNOWLEDGED,
    ROW,
    LedgerPartition,
    LedgerWriter,
    read_ledger,
)

PLACES = (LedgerPartition("load", 0, 5), LedgerPartition("load", 1))


def write(path: Path) -> None:
    writer = LedgerWriter(path, PLACES, run_id=(1 << 64) - 1, started_s=100.0)
    writer.add(0, 0, 5, 100.5)
    writer.add(1, 0, NOT_ACKNOWLEDGED, 100.6)
    writer.add(0, 1, 6, 101.5)
    writer.close()


def test_every_answer_is_read_as_it_was_written(tmp_path: Path) -> None:
    write(tmp_path / "ledger")
    ledger = read_ledger(tmp_path / "ledger")
    assert ledger.run_id == (1 << 64) - 1
    assert [answers.place for answers in ledger.answers] == list(PLACES)
    first, second = ledger.answers
    assert list(first.numbers) == [0, 1]
    assert list(first.offsets) == [5, 6]
    assert list(first.at_s) == [100.5, 101.5]
    assert list(second.failed) == [0]
    assert (ledger.acknowledged, ledger.failed, ledger.ended_s) == (2, 1, 101.5)


def test_a_writer_that_was_killed_leaves_a_ledger_up_to_its_last_whole_row(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    write(path)
    path.write_bytes(path.read_bytes()[: -ROW.size // 2])
    assert list(read_ledger(path).answers[0].numbers) == [0]
