"""A whole run: on an existing cluster, on nodes of its own, and interrupted."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ottla.cli.lab.jepsen_plan import UNKNOWN
from ottla.client.network.cluster import open_cluster
from ottla.jepsen.history import EventKind, History
from ottla.jepsen.processes.nodes import NodeError
from ottla.jepsen.processes.runs import run_driver
from ottla.jepsen.processes.runs.run_driver import HarnessError, run
from ottla.jepsen.processes.runs.run_judge import judge
from ottla.jepsen.processes.runs.run_plan import RunPlan
from ottla.jepsen.processes.runs.run_status import Status
from ottla.jepsen.processes.store import RunDirectory, Store
from ottla.model.settings.endpoints import parse_bootstrap
from ottla.testing.in_process import open_in_process_cluster

pytestmark = pytest.mark.cluster

INTERRUPT_TIMEOUT_S = 120.0


def _history(directory: RunDirectory) -> History:
    with directory.history.open() as lines:
        return History.from_lines(lines)


async def test_an_existing_cluster_gets_load_and_is_left_as_it_was(tmp_path: Path) -> None:
    said: list[str] = []
    phases: list[str] = []

    def show(status: Status) -> None:
        if phases[-1:] != [str(status.phase)]:
            phases.append(str(status.phase))

    async with open_in_process_cluster(broker_count=1) as cluster:
        plan = RunPlan(
            workloads=("queue", "producer-ids"),
            bootstrap=cluster.bootstrap,
            seconds=2.0,
            threads=2,
            ops_per_s_min=0.1,
        )
        directories = await run(plan, Store(tmp_path), show=show, say=said.append)
        async with open_cluster(parse_bootstrap(cluster.bootstrap)) as view:
            topics = (await view.metadata(None)).topics
            left = [topic.name for topic in topics if str(topic.name).startswith("jepsen-")]

    assert said == ["an existing cluster: load and checks only, no faults"]
    assert phases == ["set-up", "load", "heal", "final reads", "collect"]
    assert left == []
    for directory in directories:
        kinds = {operation.kind for operation in _history(directory).operations()}
        assert EventKind.OK in kinds
        course = judge(directory.path)["verdicts"][0]
        assert (course["checker"], course["valid"]) == ("run", True)


def test_an_interrupted_run_cleans_up_and_is_judged_as_far_as_it_went(tmp_path: Path) -> None:
    words = ["jepsen", "run", "--workload", "queue", "--nemesis", "kill", "--for", "5m"]
    words += ["--controllers", "1", "--brokers", "1", "--threads", "2", "--interval", "2s"]
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla.cli", *words, "--store", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        history = _wait_for_history(tmp_path)
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=INTERRUPT_TIMEOUT_S)
    finally:
        process.kill()
        process.wait()

    assert process.returncode == UNKNOWN, printed
    assert "interrupted: healing and cleaning up" in printed
    results = json.loads(history.with_name("results.json").read_text())
    assert results["valid"] == "unknown"
    assert "it was interrupted" in results["reason"]
    assert _nodes_of(process.pid) == []


def _wait_for_history(store: Path) -> Path:
    """Wait until a run has noted its first fault."""
    deadline = time.monotonic() + INTERRUPT_TIMEOUT_S
    while time.monotonic() < deadline:
        for path in store.glob("*/*/history.jsonl"):
            if '"phase":"injected"' in path.read_text():
                return path
        time.sleep(0.1)
    raise AssertionError("no fault was injected")


def _nodes_of(parent: int) -> list[str]:
    """Return the commands of processes that a run's environment still has."""
    found = []
    for path in Path("/proc").iterdir():
        try:
            if path.name.isdecimal() and f"OTTLA_PARENT_PID={parent}".encode() in (
                path / "environ"
            ).read_bytes().split(b"\0"):
                found.append((path / "cmdline").read_text())
        except OSError:
            continue
    return found


async def test_a_cluster_that_does_not_start_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(*_: object, **__: object) -> None:
        raise NodeError("b1 did not start within 60 s")

    monkeypatch.setattr(run_driver, "open_cluster", cannot)
    plan = RunPlan(workloads=("queue",))

    with pytest.raises(HarnessError, match="b1 did not start"):
        await run(plan, Store(tmp_path), show=lambda _: None, say=lambda _: None)
    (left,) = Store(tmp_path).runs()
    assert left.plan() == plan
    assert not left.is_judged
