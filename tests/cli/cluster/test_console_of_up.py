"""The console that `ottla up` starts: it serves the cluster's pages, and ends with the cluster."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.cli.cluster import console_process
from ottla.cli.cluster.cluster_file import make_plan
from ottla.cli.cluster.console_process import SWITCH_VARIABLE, local_console
from ottla.cli.cluster.up import _pages
from tests.cli.conftest import PATIENCE_S, Up

pytestmark = pytest.mark.cluster
ADDRESS = r"Web pages: (http://127\.0\.0\.1:\d+/)"


def console_pids(directory: Path) -> list[int]:
    """Return the processes that serve the console of a directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"console" in words and os.fsencode(directory) in words:
            found.append(int(path.parent.name))
    return found


def wait_until_ended(directory: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while console_pids(directory):
        assert time.monotonic() < deadline, "the console is still there"
        time.sleep(0.05)


def page(address: str) -> str:
    with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())


def wait_until_healthy(address: str) -> None:
    """Wait until the overview names no cause: a busy machine delays the first heartbeats."""
    deadline = time.monotonic() + PATIENCE_S
    while "no cause found" not in (shown := page(address)):
        assert time.monotonic() < deadline, shown
        time.sleep(0.2)


def test_a_console_serves_pages_and_ends_with_its_cluster(
    up: Callable[..., Up], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH_VARIABLE, "")
    cluster = up("--port", "0")
    address = cluster.said(ADDRESS)[1]
    wait_until_healthy(address)
    # Without its console the cluster serves on, and 'ottla down' stops the rest.
    (pid,) = console_pids(cluster.directory)
    os.kill(pid, signal.SIGKILL)
    bootstrap = json.loads((cluster.directory / "cluster.json").read_text())["bootstrap"]
    command = [sys.executable, "-m", "ottla.cli"]
    subprocess.run([*command, "status", "--bootstrap", bootstrap], check=True)
    subprocess.run([*command, "down", "--dir", str(cluster.directory)], check=True)
    assert cluster.process.wait(PATIENCE_S) == 0

    again = up("--port", "0")
    wait_until_healthy(again.said(rf"(?s){ADDRESS}.*{ADDRESS}")[2])
    again.process.kill()
    wait_until_ended(again.directory)
    subprocess.run([*command, "down", "--dir", str(again.directory)], check=True)


def test_without_the_extra_one_line_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(tmp_path, host="127.0.0.1", port=0, controllers=1, brokers=1)
    monkeypatch.setattr(console_process, "find_spec", lambda _: None)
    monkeypatch.setenv(SWITCH_VARIABLE, "")
    assert local_console(plan, is_wanted=True) is None
    assert "[console]" in _pages(None)
    monkeypatch.setenv(SWITCH_VARIABLE, "off")
    assert _pages(None) == ""


def test_no_console_starts_where_it_is_not_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(tmp_path, host="127.0.0.1", port=0, controllers=1, brokers=1)
    monkeypatch.setenv(SWITCH_VARIABLE, "")
    assert local_console(plan, is_wanted=False) is None
    monkeypatch.setenv(SWITCH_VARIABLE, "off")
    assert local_console(plan, is_wanted=True) is None
