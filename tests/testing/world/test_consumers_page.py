"""docs/testing-your-consumers.md: its tests find the bugs of its programs, and pass the corrected
ones, as they are typed into an empty directory."""

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[3] / "docs" / "testing-your-consumers.md").read_text("utf-8")
BLOCKS = re.findall(r"^`(\w+\.py)`(, corrected)?:\n\n```python\n(.*?)```", PAGE, re.M | re.S)
BUGGY = {name: text for name, corrected, text in BLOCKS if not corrected}
CORRECTED = {name: text for name, corrected, text in BLOCKS if corrected}
OUTPUTS = re.findall(r"```text\n(.*?)```", PAGE, re.S)
CHECKS = ("at_least_once", "exactly_once", "has not settled", "no_lost_dead_letter")

CONFTEST = """
from hypothesis import Phase

import ottla.testing.world as world

settings = world.settings
world.settings = lambda: settings(
    max_examples={count},
    phases=(Phase.generate,),
    database=None,
    derandomize=True,
    report_multiple_bugs=False,
)
"""
"""Always the same examples, at most as many as by default, until one fails. Neither shrinking nor a
search for a second bug, to save time."""


LAST_PAYMENT = """
import ottla.testing.world as world
import test_ledger

FAULTS = world.FaultSchedule((world.Kill(0, world.Mark("store.committed", 3)),))


def test_the_last_payment_is_delivered_again():
    test_ledger.test_every_payment_counts_once.hypothesis.inner_test(FAULTS, world.ClusterPlan())
"""
"""Fault at which the corrected ledger skipped the last payment without committing it."""

EXAMPLE_COUNT = 100
"""Number of examples of a test of the page: Hypothesis' default."""


def typed(directory: Path, files: dict[str, str], *, example_count: int) -> str:
    """Run pytest in a directory with these files, and return its output."""
    (directory / "conftest.py").write_text(CONFTEST.format(count=example_count))
    for name, text in files.items():
        (directory / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"]
    # The tests of Ottla itself may turn files of failing runs off.
    environment = {name: text for name, text in os.environ.items() if "OTTLA_WORLD" not in name}
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def test_each_bug_is_found_by_its_test(tmp_path: Path) -> None:
    output = typed(tmp_path, BUGGY, example_count=EXAMPLE_COUNT)

    assert "5 failed" in output, output[-2_000:]
    names = re.findall(r"FAILED (test_\w+)\.py", output)
    assert sorted(f"{name}.py" for name in names) == sorted(BUGGY.keys() - CORRECTED.keys())
    (command,) = re.findall(r"ottla world replay (\S+)", PAGE)
    assert (tmp_path / command).exists(), sorted((tmp_path / ".ottla-world").glob("*"))
    assert (tmp_path / command).with_suffix(".html").exists()
    for shown in OUTPUTS:
        assert any(check in shown and check in output for check in CHECKS)


def test_the_corrected_programs_pass(tmp_path: Path) -> None:
    assert len(CORRECTED) == 5
    (tmp_path / "test_last_payment.py").write_text(LAST_PAYMENT)
    output = typed(tmp_path, BUGGY | CORRECTED, example_count=3)

    assert "6 passed" in output, output[-2_000:]
