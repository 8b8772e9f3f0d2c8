"""`ottla world soak-programs` runs property tests in processes and reports what failed."""

import json
from pathlib import Path

import pytest

from ottla.cli.main import run

TEST = """
from hypothesis import given
from hypothesis import strategies as st

import ottla.testing.world as world


async def scenario(w):
    await w.create_topic("orders")


@given(st.integers(0, 99))
def test_a_topic(seed):
    world.run(scenario, world.ClusterPlan(seed=seed))
"""


def test_a_soak_counts_the_simulated_hours_of_each_test(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_topics.py").write_text(TEST)
    # A batch of examples takes longer than one test may take.
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout = 0.3\n")
    names = ["test_topics.py::test_a_topic", "test_topics.py::test_absent"]
    words = ["--for", "1s", "--processes", "1", "--seed", "7", "--corpus", "kept"]

    assert run(["world", "soak-programs", *names, *words, "--format", "json"]) == 2

    output = capsys.readouterr()
    facts = json.loads(output.out)
    topics, absent = facts["tests"]
    assert topics["runs"] >= 5
    assert (topics["failures"], topics["problem"]) == (0, "")
    assert "not found" in absent["problem"]
    assert facts["seeds"][0] == 7
    assert facts["lost"] == []


def test_a_damaged_corpus_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_text("{")

    assert run(["world", "soak-programs", "t.py::t", "--corpus", str(tmp_path)]) != 0

    assert "is no stored failure" in capsys.readouterr().err
