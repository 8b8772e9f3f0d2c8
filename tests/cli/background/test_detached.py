"""`ottla up --detach` returns when the cluster serves, and `ottla down` ends all of its
processes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli.cluster.cluster_file import is_alive

TIMEOUT_S = 120.0


def ottla(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command; this hangs if a process that stays keeps one of its pipes."""
    command = [sys.executable, "-m", "ottla.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


@pytest.mark.cluster
def test_a_detached_cluster_serves_until_down(tmp_path: Path) -> None:
    directory = str(tmp_path / "data")

    started = ottla("up", "--detach", "--dir", directory, "--port", "0")
    try:
        assert started.returncode == 0, started.stderr
        assert f"python -m ottla.cli down --dir {directory}" in started.stdout
        found = json.loads((tmp_path / "data" / "cluster.json").read_text())
        pids = [found["pid"], *(n["pid"] for n in found["controllers"] + found["brokers"])]
        assert all(map(is_alive, pids))
        assert ottla("status", "--dir", directory).returncode == 0
    finally:
        stopped = ottla("down", "--dir", directory)

    assert stopped.stdout == "stopped 2 nodes\n"
    assert not any(map(is_alive, pids))
    assert (tmp_path / "data" / "logs" / "broker-1.log").exists()


@pytest.mark.parametrize("option", ["--dir={}", "--ephemeral"])
def test_a_start_that_fails_prints_the_reason_and_leaves_nothing(
    option: str, tmp_path: Path
) -> None:
    where = option.format(tmp_path / "data")

    started = ottla("up", "--detach", where, "--port=0", "--set=num.partitions=none")

    assert started.returncode == 1
    assert started.stdout == ""
    assert "num.partitions: is 'none'" in started.stderr
    found = tmp_path / "data" / "cluster.json"
    if found.exists():
        assert not is_alive(json.loads(found.read_text())["pid"])
