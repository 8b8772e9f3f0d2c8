"""`ottla bench floor`: the program, and a short run beside a broker."""

import shutil
from pathlib import Path

import pytest

from ottla.bench.floor import floor_program
from ottla.bench.floor.floor import CPU, RATE, ROWS, as_table, compared, run_floor
from ottla.bench.floor.floor_program import (
    COMPILERS,
    FloorAnswer,
    build_floor,
    open_floor,
)
from ottla.bench.requests import SmallRequest, dial, exchanged, repeat
from ottla.model.errors import RefusedError

SHORT = 0.0005
"""Part of the requests of a usual round."""

compiled = pytest.mark.skipif(not any(map(shutil.which, COMPILERS)), reason="needs a C compiler")


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_floor(tmp_path_factory.mktemp("program"))


@compiled
def test_produced_records_are_written_and_answered(program: Path, tmp_path: Path) -> None:
    request = framed(b"header" + b"first" + b"end")
    work = FloorAnswer("produce", framed(b"answer"), records_at=10, records=b"first")
    with open_floor(program, tmp_path / "files", work) as floor:
        with dial(floor.address) as client:
            for size in (1, 5):  # Frames in pieces, and several at once.
                for at in range(0, len(request), size):
                    client.sendall(request[at : at + size])
                assert client.recv(100) == framed(b"answer")
        small = SmallRequest(request, 5, answer=b"answer")
        repeat(floor.address, "", [small] * 3, count=60, in_flight=4, progress=lambda done: None)
        assert (tmp_path / "files" / "data").read_bytes() == b"first" * 62


@compiled
@pytest.mark.parametrize("size", [100, 100_000, 1_000_000])
def test_fetched_records_stand_in_the_answer(program: Path, tmp_path: Path, size: int) -> None:
    records = bytes(range(250)) * (size // 250) or b"few"
    answer = b"head" + records + b"tail"
    work = FloorAnswer("fetch", framed(answer), records_at=8, records=records)
    with (
        open_floor(program, tmp_path / "files", work) as floor,
        dial(floor.address) as client,
    ):
        for _ in range(3):
            assert exchanged(client, framed(b"request")) == answer


def test_a_machine_without_a_compiler_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(floor_program, "COMPILERS", ())
    with pytest.raises(RefusedError, match="install gcc"):
        build_floor(tmp_path)


def test_the_cost_is_a_multiple_of_the_floor_in_each_figure() -> None:
    rounds = [
        {
            ("row", "ottla"): {RATE: 50.0 + at, CPU: 30.0},
            ("row", "floor"): {RATE: 100.0 + 2 * at, CPU: 10.0},
        }
        for at in range(3)
    ]
    rate, cpu = compared(rounds)
    assert (rate.times_floor, cpu.times_floor) == (2.0, 3.0)
    assert (rate.ours.lowest, rate.floor.highest) == (50.0, 104.0)


@compiled
@pytest.mark.cluster
def test_a_short_run_beside_a_broker() -> None:
    report = run_floor(rounds=1, progress=lambda done: None, scale=SHORT)
    assert [each.row for each in report.found] == [row.title for row in ROWS for _ in range(2)]
    rates = [each for each in report.found if each.figure == RATE]
    assert all(each.ours.median > 0 and each.floor.median > 0 for each in rates)
    table = as_table(report)
    assert "Produce, 100 B, 10 × 1" in table
    assert "Fetch, 128 KiB, 1 × 1" in table
    assert "1 round;" in table
