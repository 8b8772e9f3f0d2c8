"""The fuzz drivers and the checker find the planted errors, and only those."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from ottla.jepsen.fuzz.hunt import PLAIN, hunt
from ottla.jepsen.fuzz.judge import Judge
from ottla.jepsen.fuzz.kept import add_kept, read_kept
from ottla.jepsen.fuzz.mutate import mutated
from ottla.jepsen.fuzz.plain_driver import fuzz
from ottla.jepsen.fuzz.target import FuzzTarget, joined, number_of, numbered, parts_of
from ottla.model.errors import ProtocolError
from ottla.model.limits import MIB


def target(check: Callable[[bytes], None], **changes: int) -> FuzzTarget:
    return FuzzTarget(
        name="planted",
        sentence="what a test plants",
        check=check,
        seeds=lambda random: [b"good", b"fine"],
        **changes,  # type: ignore[arg-type]  # bounds only
    )


def spin(data: bytes) -> None:
    if data[:1] == b"x":
        sum(range(10_000_000))


def test_an_error_that_is_no_refusal_is_found_once_a_place_with_its_shortest_input() -> None:
    def check(data: bytes) -> None:
        if data.startswith(b"x"):
            raise KeyError(data)

    judge = Judge(target(check))
    for data in (b"xyz", b"good", b"xy", b"xyzz"):
        judge.take(data)
    (finding,) = judge.findings.values()
    assert finding.kind == "escape"
    assert finding.data == b"xy"
    assert finding.where.startswith("KeyError at test_driver.py:")


def test_a_refusal_is_counted_and_is_no_finding() -> None:
    def check(data: bytes) -> None:
        raise ProtocolError("no")

    judge = fuzz(target(check), count=100)
    assert (judge.input_count, judge.refused_count) == (100, 100)
    assert not judge.findings


def test_what_takes_long_is_found() -> None:
    judge = Judge(target(spin))
    assert judge.take(b"good", is_measured=False) is None
    finding = judge.take(b"x", is_measured=False)
    assert finding is not None
    assert finding.kind == "slow"


def test_what_takes_much_memory_is_found_though_it_is_given_back() -> None:
    judge = Judge(target(lambda data: bytearray(len(data) * MIB).clear()))
    assert judge.take(b"", is_measured=True) is None
    finding = judge.take(b"xx", is_measured=True)
    assert finding is not None
    assert finding.kind == "memory"


def test_a_course_depends_on_its_seed_alone() -> None:
    def course(seed: int) -> list[bytes]:
        taken: list[bytes] = []
        fuzz(target(taken.append), seed=seed, count=200)
        return taken

    assert course(1) == course(1)
    assert course(1) != course(2)
    assert course(1)[:2] == [b"good", b"fine"]


def test_kept_inputs_are_read_first(tmp_path: Path) -> None:
    add_kept(tmp_path, "planted", b"\0\xff", "what it was\nand why")
    add_kept(tmp_path, "planted", b"\0\xff", "again")
    assert list(read_kept(tmp_path, "planted")) == [b"\0\xff"]
    assert list(read_kept(tmp_path, "other")) == []
    taken: list[bytes] = []
    fuzz(target(taken.append), count=3, kept=read_kept(tmp_path, "planted"))
    assert taken[2] == b"\0\xff"


def test_changed_inputs_stay_within_their_bound() -> None:
    random = Random(1)
    for _ in range(2_000):
        assert len(mutated(random, b"abc" * 20, [b"other", b""], 100)) <= 100


@pytest.mark.parametrize("parts", [(b"",), (b"a", b"", b"ccc"), (b"x" * 300, b"y")])
def test_parts_come_back(parts: tuple[bytes, ...]) -> None:
    assert parts_of(joined(*parts), len(parts)) == list(parts)


def test_any_bytes_are_some_parts() -> None:
    assert parts_of(b"", 3) == [b"", b"", b""]
    assert parts_of(b"\0\5ab", 2) == [b"ab", b""]


def test_an_input_says_which_reader_it_is_for() -> None:
    inputs = list(numbered([[b"a"], [b"b", b"c"]]))
    assert [(number_of(data, 2), data[2:]) for data in inputs] == [(0, b"a"), (1, b"b"), (1, b"c")]
    assert number_of(b"", 5) == 0


def test_a_hunt_tells_its_figures() -> None:
    report = hunt(target(spin), driver=PLAIN, seconds=0.05)
    row = report.row()
    assert row["inputs"] == report.inputs > 2
    assert row["driver"] == PLAIN
