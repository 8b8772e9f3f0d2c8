"""A soak: every subject has its share of the time, no failure ends it early, and one table sums it
up."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ottla.jepsen.world import engine
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.corpus import load, replay
from ottla.jepsen.world.engine import RunOutcome
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.soak import Part, Soak
from ottla.jepsen.world.soak_table import cells_of, facts_of, markdown_of
from ottla.jepsen.world.trace import Trace
from ottla.jepsen.world.violation import Violation


class Toy:
    """An engine that never fails, and counts its power cuts."""

    name = "walk"
    subject = "calm"
    budget = 3
    required: tuple[str, ...] = ("a nine", "a hundred")

    def run(self, chance: Chance, *, budget: int) -> RunOutcome:
        trace, rare = Trace(), RareStates()
        drawn = [chance.below(10) for _ in range(budget)]
        for value in drawn:
            trace.add(value)
        if 9 in drawn:
            rare.sometimes("a nine")
        violation = self.judge(drawn)
        figures = {"power cuts": 2, "draws": budget}
        return RunOutcome(
            self.name, self.subject, chance.seed, budget, 1500, figures, rare.counts, trace.hash,
            violation, tuple(chance.decisions),
        )  # fmt: skip

    def judge(self, drawn: list[int]) -> Violation | None:
        return None


class BrokenToy(Toy):
    """One whose runs fail in one of two ways when they draw a 7 or an 8."""

    subject = "broken"

    def judge(self, drawn: list[int]) -> Violation | None:
        bad = next((value for value in drawn if value in (7, 8)), None)
        return None if bad is None else Violation("NoSeven" if bad == 7 else "NoEight", str(drawn))


class Here(Executor):
    """Processes that are this one."""

    def submit(self, fn: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*arguments, **keywords))
        except Exception as error:
            future.set_exception(error)
        return future


PLAN = (Part("walk", "calm", 60), Part("walk", "broken", 30))


@pytest.fixture(autouse=True)
def _toys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    module = ModuleType("toys_of_the_soak")
    vars(module).update(Calm=Toy, BrokenToy=BrokenToy)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    at = f"{module.__name__}:"
    monkeypatch.setitem(engine.ENGINES, "walk", {"calm": f"{at}Calm", "broken": f"{at}BrokenToy"})
    monkeypatch.setattr("ottla.jepsen.world.runner.BATCH_SECONDS", 0.002)
    yield


def soaked(folder: Path, seconds: float = 0.3, **options: Any) -> Soak:
    soak = Soak(seconds=seconds, folder=folder, plan=PLAN, make_pool=lambda count: Here())
    soak.run(**options)
    return soak


def test_every_subject_has_its_share(tmp_path: Path) -> None:
    calm, broken = soaked(tmp_path).rows

    # The task that gets the next work is at most a batch behind.
    assert 1.2 < calm.totals.busy_seconds / broken.totals.busy_seconds < 3.5


def test_violations_end_nothing_and_one_of_each_kind_is_made_small(tmp_path: Path) -> None:
    soak = soaked(tmp_path)

    assert soak.violation_count == sum(soak.rows[1].totals.broken.values()) > 10
    assert sorted(one.invariant for one in soak.kept) == ["NoEight", "NoSeven"]
    for one in soak.kept:
        assert one.is_small
        case = load(Path(one.path))
        assert case.decisions in ((7,), (8,))
        outcome = replay(case)
        assert outcome.violation is not None
        assert outcome.violation.invariant == one.invariant


def test_the_table_is_made_of_what_the_outcomes_counted(tmp_path: Path) -> None:
    soak = soaked(tmp_path)
    calm = soak.rows[0].totals
    facts = facts_of(soak)

    row = facts["rows"][0]
    assert (row["schedules"], row["events"]) == (calm.run_count, 3 * calm.run_count)
    assert row["sim_s"] == pytest.approx(1.5 * calm.run_count, abs=0.1)
    assert row["power_cuts"] == 2 * calm.run_count
    assert row["elections"] is None, "what is not counted is not 0"
    assert (row["rare_reached"], row["rare_required"]) == (1, 2)
    assert facts["totals"]["schedules"] == sum(each.totals.run_count for each in soak.rows)
    assert [cells[0] for cells in cells_of(facts)] == ["walk calm", "walk broken", "all"]
    page = markdown_of(facts)
    assert f"| walk calm | {calm.run_count:,} | {3 * calm.run_count:,} |" in page
    assert "walk calm never reached: a hundred" in page
    assert "ottla world run --engine walk --subject broken --seed " in page
    assert f"ottla world replay {tmp_path}" in page


def test_a_soak_that_should_stop_keeps_what_it_has(tmp_path: Path) -> None:
    looks: list[int] = []

    soak = soaked(
        tmp_path,
        seconds=600.0,
        should_stop=lambda: len(looks) >= 5,
        on_progress=lambda soak: looks.append(soak.violation_count),
    )

    assert soak.is_stopped
    assert len(looks) == 5
    assert "stopped early" in markdown_of(facts_of(soak))
    assert sum(row.totals.run_count for row in soak.rows) >= 5


class DyingPool(Here):
    """Processes of which the first task's dies, and with it all others."""

    def __init__(self, submitted: list[object]) -> None:
        self._submitted = submitted

    def submit(self, fn: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> "Future[Any]":
        self._submitted.append(fn)
        if len(self._submitted) == 1:
            future: Future[Any] = Future()
            future.set_exception(BrokenProcessPool("gone"))
            return future
        return super().submit(fn, *arguments, **keywords)


def test_a_process_that_dies_is_reported_and_replaced(tmp_path: Path) -> None:
    submitted: list[object] = []
    soak = Soak(
        seconds=0.2, folder=tmp_path, plan=PLAN, make_pool=lambda count: DyingPool(submitted)
    )

    soak.run()

    (lost,) = soak.lost
    assert "seeds [" in lost
    assert len(submitted) > 1
    assert f"nothing is known of {lost}" in markdown_of(facts_of(soak))


def test_a_batch_that_cannot_tell_what_it_did_ends_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(self: Toy, chance: Chance, *, budget: int) -> RunOutcome:
        raise SystemError("no outcome")

    monkeypatch.setattr("ottla.jepsen.world.runner.run_once", exhausted)

    soak = soaked(tmp_path, seconds=0.05)

    assert soak.lost
    assert all("SystemError" in lost for lost in soak.lost)
