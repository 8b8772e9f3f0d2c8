"""Files of failing runs, and their replay by pytest and by `ottla world replay`."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import ottla.testing.world as world
from ottla.testing.world.failure_files import FailingRun, RuleChoices, load_failing_run
from ottla.testing.world.timeline import Timeline

RUN = FailingRun(
    test="tests/test_billing.py::test_bills[a-1]",
    plan=world.ClusterPlan(brokers=3, seed=5),
    faults=world.FaultSchedule((world.Kill(0, world.Request("Produce", 2)),)),
    error="CheckFailedError: lost",
)

PROJECT_TEST = """
from hypothesis import Phase, given

import ottla.testing.world as world


@world.settings(
    max_examples=60, database=None, phases=[Phase.generate], report_multiple_bugs=False
)
@given(world.cluster(), world.faults(kills=True))
def test_lives(plan, faults):
    with open("runs", "a") as runs:
        runs.write(f"{plan.seed} {len(faults.faults)}\\n")

    async def scenario(w):
        instance = w.start("sleeper", sleep, runtime="trio")
        await w.sleep(5)
        if instance.start_count != 1:
            raise world.CheckFailedError("started twice", check="lives")

    world.run(scenario, plan, faults)


async def sleep():
    import trio

    await trio.sleep_forever()
"""


@pytest.mark.parametrize("rules", [None, RuleChoices(version="6.1.0", blob="AAEB")])
def test_a_failing_run_is_saved_and_loaded(tmp_path: Path, rules: RuleChoices | None) -> None:
    run = replace(RUN, rules=rules)
    path = run.save(tmp_path / "new", Timeline())

    assert path.name == "test_billing-py-test_bills-a-1.json"
    assert load_failing_run(path) == run
    assert "<html" in path.with_suffix(".html").read_text()


@pytest.mark.parametrize(
    "text",
    [
        '{"test": "t", "plan": {"brokers": 0}, "faults": []}',
        '{"test": "t", "plan": {"size": 1}, "faults": []}',
        '{"test": "t", "plan": {}, "faults": [{"kind": "Explode"}]}',
        '{"test": "t", "plan": {}, "faults": 3}',
        '{"test": "t", "plan": {}, "faults": [], "rules": {"blob": "AAEB"}}',
    ],
)
def test_a_malformed_run_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)

    with pytest.raises(ValueError, match=r"no failing run|1 to 9 brokers"):
        load_failing_run(path)


def test_another_json_file_is_no_failing_run(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text('{"decisions": []}')

    assert load_failing_run(path) is None


def test_a_failing_test_is_replayed_by_one_command(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["ottla.testing"]\n')
    (tmp_path / "test_program.py").write_text(PROJECT_TEST)
    environment = {name: text for name, text in os.environ.items() if "OTTLA_WORLD" not in name}

    def call(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1, done.stdout + done.stderr
        return done.stdout

    found = call("pytest", "-q", "-p", "no:cacheprovider", "--world-seed", "9")
    file = Path(".ottla-world", "test_program-py-test_lives.json")
    assert f"To repeat this run: ottla world replay {file}" in found
    runs = tmp_path / "runs"
    assert {line.split()[0] for line in runs.read_text().splitlines()} == {"9"}
    last = runs.read_text().splitlines()[-1]
    runs.unlink()

    replayed = call("ottla.cli", "world", "replay", str(file))

    assert set(runs.read_text().splitlines()) == {last}
    assert "started twice" in replayed
