"""Runs of many seeds: their work is added up and their failures are stored, under any runner."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from ottla.jepsen.world import engine, runner
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.corpus import Case, cases_in, load, replay, save
from ottla.jepsen.world.engine import RunOutcome, make_engine
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.runner import Job, RunTotals, run_batch, run_many
from ottla.jepsen.world.trace import Trace
from ottla.jepsen.world.violation import Violation, violation_of
from ottla.model.errors import CorruptDataError, RefusedError


class Toy:
    """An engine whose runs fail when they draw a nine twice in a row."""

    name = "walk"
    subject = "toy"
    budget = 20
    required = ("a nine", "a hundred")

    def run(self, chance: Chance, *, budget: int) -> RunOutcome:
        trace, rare = Trace(), RareStates()
        violation, last = None, 0
        for _ in range(budget):
            drawn = chance.below(10)
            trace.add(drawn)
            if drawn == 9:
                rare.sometimes("a nine")
            if drawn == last == 9:
                violation = Violation("NoTwoNines", "two nines")
                break
            last = drawn
        figures = {"draws": trace.event_count}
        return RunOutcome(
            "walk", "toy", chance.seed, trace.event_count, 10, figures, rare.counts, trace.hash,
            violation, tuple(chance.decisions),
        )  # fmt: skip


JOB = Job(engine="walk", subject="toy", budget=20)


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    module = ModuleType("toy_of_the_world")
    vars(module)["Toy"] = Toy
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(engine.ENGINES, "walk", {"toy": f"{module.__name__}:Toy"})
    yield


def test_sums_do_not_depend_on_how_seeds_were_dealt() -> None:
    whole = run_batch(JOB, 0, 40)
    parts = RunTotals()
    for first in (30, 0, 10, 20):
        parts.merge(run_batch(JOB, first, 10))

    assert whole.run_count == parts.run_count == 40
    assert whole.trace_hash == parts.trace_hash != run_batch(JOB, 1, 40).trace_hash
    assert whole.figures == parts.figures
    assert [each.seed for each in whole.failures] == [each.seed for each in parts.failures]
    assert whole.sim_ms == 400


def test_a_search_ends_at_its_count_or_its_time_or_its_first_failure() -> None:
    progress: list[int] = []

    counted = run_many(
        JOB, 5, count=50, on_progress=lambda totals: progress.append(totals.run_count)
    )
    timed = run_many(JOB, 0, seconds=0.0)
    failed = run_many(JOB, 0, count=100_000, ends_at_failure=True)

    assert counted.run_count == 50 == progress[-1]
    assert timed.run_count == 0
    assert failed.violation_count > 0
    assert failed.run_count < 100_000


def test_rare_states_that_were_missed_are_named() -> None:
    assert run_batch(JOB, 0, 40).missed(Toy.required) == ["a hundred"]


def test_a_run_that_hangs_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    class HangingToy(Toy):
        def run(self, chance: Chance, *, budget: int) -> RunOutcome:
            try:
                while True:
                    pass
            except Violation as violation:
                return RunOutcome("walk", "toy", 0, 0, 0, {}, {}, "", violation, ())

    monkeypatch.setattr(runner, "RUN_SECONDS_MAX", 1)
    monkeypatch.setattr(sys.modules["toy_of_the_world"], "Toy", HangingToy)

    (failure,) = run_batch(JOB, 0, 1).failures

    assert failure.violation is not None
    assert failure.violation.invariant == "EveryRunEnds"


def test_what_breaks_before_a_walk_begins_is_a_violation_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def break_at_once(self: Toy, chance: Chance, *, budget: int) -> RunOutcome:
        raise AssertionError("SingleLeader: two of them")

    monkeypatch.setattr(Toy, "run", break_at_once)

    totals = run_batch(JOB, 0, 3)

    assert totals.run_count == totals.violation_count == 3
    assert totals.broken == {"SingleLeader": 3}


def test_a_failure_is_kept_as_a_file_and_fails_again_from_it(tmp_path: Path) -> None:
    failure = run_many(JOB, 0, count=1000, ends_at_failure=True).failures[0]
    assert failure.violation is not None
    case = Case(
        engine="walk", subject="toy", seed=failure.seed, budget=20, decisions=failure.decisions,
        invariant=failure.violation.invariant, what="two nines in a row",
    )  # fmt: skip

    path = save(case, tmp_path)

    assert list(cases_in(tmp_path)) == [(path, case)]
    again = replay(load(path))
    assert again.trace_hash == failure.trace_hash
    assert again.violation is not None
    assert replay(case, (9, 1, 9)).violation is None


def test_a_file_that_is_no_case_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"engine": "walk"}')

    with pytest.raises(CorruptDataError):
        load(tmp_path / "x.json")


def test_engines_and_subjects_that_are_not_there_are_refused() -> None:
    for name, subject in (("Z", None), ("walk", "nothing")):
        with pytest.raises(RefusedError):
            make_engine(name, subject)


@pytest.mark.parametrize(
    ("error", "invariant"),
    [
        (Violation("Named", "x"), "Named"),
        (AssertionError("MonotonicEpoch: 2 went to 1"), "MonotonicEpoch"),
        (AssertionError("something odd"), "NoAssertionFails"),
        (AssertionError(), "NoAssertionFails"),
        (KeyError("x"), "NothingEscapes"),
    ],
)
def test_what_ends_a_run_names_an_invariant(error: Exception, invariant: str) -> None:
    assert violation_of(error).invariant == invariant
