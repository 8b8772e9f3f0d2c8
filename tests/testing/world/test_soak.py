"""A soak finds failing plans, shrinks and keeps them, and counts all runs."""

import json
import sys
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from ottla.model.errors import CorruptDataError
from ottla.testing.world.errors import WorldError
from ottla.testing.world.soak import program_soak as module
from ottla.testing.world.soak.program_soak import ProgramSoak
from ottla.testing.world.soak.soak_worker import (
    SoakFailure,
    SoakResult,
    run_again,
    run_batch,
    save_case,
)

TESTS = """
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ottla.testing.world as world

RECORDS = [world.Record(key=b"k", value=b"%d" % number) for number in range(4)]
PLANS = st.builds(world.ClusterPlan, seed=st.integers(0, 3))
KILLS = st.lists(
    st.builds(
        world.Kill,
        st.just(0),
        st.builds(world.Mark, st.just("work"), st.integers(1, 2)),
        restart_after_s=st.just(1.0),
    ),
    max_size=2,
).map(lambda kills: world.FaultSchedule(tuple(kills)))


async def lose_work(w, is_correct):
    from ottla.client.consumer import open_consumer
    from ottla.model.settings.client import ConsumerConfig

    config = ConsumerConfig(
        group_id="g", auto_offset_reset="earliest", enable_auto_commit=False, poll_records_max=2
    )
    async with open_consumer(w.bootstrap, config) as consumer:
        consumer.subscribe(["orders"])
        while True:
            records = await consumer.poll(0.5)
            if records and not is_correct:
                await consumer.commit()
            for record in records:
                world.mark("work")
                await w.store().put(str(record.offset), record.value)
            if records and is_correct:
                await consumer.commit()


def check(plan, faults, is_correct):
    async def scenario(w):
        await w.create_topic("orders")
        sent = await w.produce("orders", RECORDS)
        w.start("a", lose_work, w, is_correct, runtime="trio")
        await w.settle()
        keys = [str(one.offset) for one in sent]
        world.at_least_once(keys, w.store().rows(), key=lambda one: one)

    world.run(scenario, plan, faults)


@given(PLANS, KILLS)
@settings(max_examples=100_000)
def test_buggy(plan, faults):
    check(plan, faults, False)


class TestCorrect:
    @pytest.mark.parametrize("is_correct", [True])
    @given(PLANS, KILLS)
    def test_correct(self, is_correct, tmp_path_factory, plan, faults):
        check(plan, faults, is_correct)


def test_without_examples():
    pass
"""


@pytest.fixture
def tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "test_of_a_user.py"
    path.write_text(TESTS)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, path.stem, raising=False)
    return path


class InlineExecutor(Executor):
    """An executor that runs each call at once, in this process."""

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def test_batches_run_tests_of_users(
    tests: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One soak of a buggy and a correct test: the plan that fails is small, kept, and counted."""
    monkeypatch.setattr(module, "BATCH_S", 0.5)
    names = [f"{tests.name}::test_buggy", f"{tests.name}::TestCorrect"]
    corpus = tmp_path / "corpus"
    soak = ProgramSoak(
        names, seconds=60, corpus=corpus, first_seed=3, make_pool=lambda _: InlineExecutor()
    )

    soak.run(should_stop=lambda: soak.next_seed >= 5)

    buggy, correct = soak.facts()["tests"]
    assert buggy["failures"] > 0
    assert (correct["failures"], correct["problem"]) == (0, "")
    assert correct["runs"] == 5
    assert soak.has_failed
    assert soak.lost == []
    (path,) = corpus.glob("*.json")
    assert buggy["files"] == [str(path)]
    case = json.loads(path.read_text())
    assert case["test"] == names[0]
    assert len(case["faults"]) == 1  # one kill, at the first record after the commit, is enough
    assert case["plan"]["seed"] == 0
    assert "at_least_once" in case["error"]
    assert "kill a when it passes the mark 'work'" in case["error"]
    assert run_again(names[0], str(path)).failures[0].kind in soak.rows[names[0]].kinds
    assert not (tmp_path / ".ottla-world").exists()
    facts = soak.facts()
    assert facts["virtual_hours"] > 0
    assert facts["seeds"][0] == 3
    assert facts["seeds"][1] == 5


def test_a_batch_reports_that_pytest_itself_fails(
    tests: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_words: Any, **_options: Any) -> int:
        raise RuntimeError("a plugin is broken")

    monkeypatch.setattr(pytest, "main", fail)
    batch = run_batch(f"{tests.name}::test_buggy", 1, 1)
    assert batch.run_count == 0
    assert batch.problem == "pytest failed: RuntimeError('a plugin is broken')"


def result(*failures: SoakFailure, problem: str = "", wall_s: float = 10.0) -> SoakResult:
    return SoakResult(
        run_count=5,
        virtual_s=1_800,
        cpu_s=wall_s,
        wall_s=wall_s,
        test_count=1,
        failures=list(failures),
        problem=problem,
    )


class Batches:
    """Results of batches, by test, in place of real ones; records their calls."""

    def __init__(self, results: dict[str, SoakResult | Exception]) -> None:
        self.calls: list[tuple[str, int, int, bool]] = []
        self._results = results

    def __call__(
        self, test: str, seed: int, example_count: int, *, shrinks: bool = True
    ) -> SoakResult:
        self.calls.append((test, seed, example_count, shrinks))
        found = self._results[test]
        if isinstance(found, Exception):
            raise found
        return found


def run_soak(
    monkeypatch: pytest.MonkeyPatch, corpus: Path, results: dict[str, SoakResult | Exception]
) -> tuple[ProgramSoak, Batches]:
    batches = Batches(results)
    monkeypatch.setattr(module, "run_batch", batches)
    soak = ProgramSoak(
        list(results), seconds=60, corpus=corpus, make_pool=lambda _: InlineExecutor()
    )
    soak.run(should_stop=lambda: len(batches.calls) >= 12)
    return soak, batches


def test_tests_share_the_time_and_batches_grow_to_their_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soak, batches = run_soak(
        monkeypatch, tmp_path, {"slow": result(wall_s=30.0), "fast": result(wall_s=5.0)}
    )

    names = [call[0] for call in batches.calls]
    assert names.count("fast") > names.count("slow") > 0
    assert [call[1] for call in batches.calls] == list(range(12))
    fast = [call[2] for call in batches.calls if call[0] == "fast"]
    assert fast[:3] == [5, 20, 80]
    assert not soak.has_failed
    assert soak.is_stopped


def test_failures_of_one_kind_are_kept_once_and_soon_not_shrunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case: dict[str, Any] = {"plan": {}, "faults": []}
    failure = SoakFailure("f.py::t", "CheckFailedError: N lost", "text", case)
    without = SoakFailure("f.py::t", "KeyError", "text", None)

    soak, batches = run_soak(monkeypatch, tmp_path, {"f.py::t": result(failure, without)})

    assert [path.name for path in tmp_path.glob("*.json")] == ["t-CheckFailedError-N-lost.json"]
    assert [call[3] for call in batches.calls][:5] == [True, True, True, False, False]
    assert soak.rows["f.py::t"].kinds["KeyError"] == ""
    assert soak.has_failed


def test_a_test_that_cannot_run_and_a_batch_that_fails_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soak, batches = run_soak(
        monkeypatch, tmp_path, {"absent": result(problem="no file"), "odd": OSError("odd")}
    )

    assert [call[0] for call in batches.calls].count("absent") == 1
    assert soak.rows["absent"].problem == "no file"
    assert "OSError('odd')" in soak.lost[0]
    assert soak.has_failed


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("test_of_a_user.py::test_without_examples", "draws no examples; decorate it with @given"),
        ("test_of_a_user.py::test_absent", "not found"),
        ("absent.py", "absent.py"),
    ],
)
@pytest.mark.usefixtures("tests")
def test_a_batch_reports_why_a_test_cannot_run(name: str, problem: str) -> None:
    found = run_batch(name, 0, 1)

    assert problem in found.problem
    assert found.test_count == 0


def test_a_damaged_corpus_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[1]")
    with pytest.raises(CorruptDataError, match="is no stored failure"):
        ProgramSoak(["f.py::t"], seconds=1, corpus=tmp_path)
    with pytest.raises(WorldError, match="needs at least one test"):
        ProgramSoak([], seconds=1, corpus=tmp_path / "none")


def test_a_case_without_a_plan_has_no_file(tmp_path: Path) -> None:
    assert save_case(SoakFailure("f.py::t", "k", "text", None), tmp_path) is None


@pytest.mark.parametrize(
    ("found", "still_failing", "fixed", "lost"),
    [
        (result(SoakFailure("f.py::t", "k", "text", None)), 1, 0, 0),
        (result(), 0, 1, 0),
        (result(problem="no such option"), 0, 0, 1),
    ],
)
def test_the_corpus_runs_first(
    found: SoakResult,
    still_failing: int,
    fixed: int,
    lost: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []

    def run_again(test: str, path: str) -> SoakResult:
        calls.append((test, path))
        return found

    for name in ("f.py::t", "f.py::t[0]", "f.py::other"):
        save_case(SoakFailure(name, "k", "text", {"plan": {}, "faults": []}), tmp_path)
    monkeypatch.setattr(module, "run_again", run_again)
    monkeypatch.setattr(module, "run_batch", Batches({"f.py::t": result()}))
    soak = ProgramSoak(
        ["f.py::t"], seconds=0, corpus=tmp_path, make_pool=lambda _: InlineExecutor()
    )

    soak.run()

    paths = [str(tmp_path / name) for name in ("t-0-k.json", "t-k.json")]
    assert calls == [("f.py::t", path) for path in paths]
    counts = (len(soak.still_failing), len(soak.fixed), len(soak.lost))
    assert counts == (2 * still_failing, 2 * fixed, 2 * lost)
    assert soak.rows["f.py::t"].batch_count == 1
    assert soak.has_failed == bool(still_failing or lost)
