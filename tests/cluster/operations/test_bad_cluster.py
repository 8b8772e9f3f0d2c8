"""Nodes that do not belong together: one sentence with the problem and its cure."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.cluster.cluster_file import properties_of
from ottla.cli.main import run
from ottla.node.local.local_nodes_driver import free_port
from tests.cluster.secure_form import PROTOCOL

pytestmark = pytest.mark.cluster

START_TIMEOUT_S = 60
PATIENCE_MS = "1500"
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
OTHER_CLUSTER = "belongs to another cluster"
WARNING = "the clock of broker 2 is "

Plan = Callable[..., Any]


def start_in_vain(processes: Any, name: str, **settings: str) -> str:
    """Start a node that cannot start, beside the one of its file; return its last words."""
    role = name.split()[0]
    options = [f"--set={key.replace('_', '.')}={value}" for key, value in settings.items()]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "ottla.cli",
            role,
            str(properties_of(role, processes.node(name))),
            *options,
        ],
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    return done.stderr.strip().splitlines()[-1]


def elsewhere(tmp_path: Path) -> dict[str, str]:
    """Return the changes that turn a copy of a broker's file into another broker's, for a test to
    adapt."""
    return {
        "listeners": f"{PROTOCOL}://127.0.0.1:0",
        "log_dirs": str(tmp_path / "elsewhere"),
        "initial_broker_registration_timeout_ms": PATIENCE_MS,
    }


def test_a_second_broker_of_an_id_reports_the_conflict_and_the_cure(
    fresh: Any, tmp_path: Path
) -> None:
    fresh.start()

    said = start_in_vain(fresh, "broker", **elsewhere(tmp_path))

    assert "another broker 1 is registered and alive" in said
    assert "stop it, or give this one a node.id of its own" in said


def test_a_second_controller_of_an_id_may_not_vote(plan_cluster: Plan, tmp_path: Path) -> None:
    """Its directory is formatted, but is not the one that has the vote."""
    processes = plan_cluster(controllers=3, brokers=1)
    processes.start()
    other = plan_cluster(controllers=3, brokers=1)
    source = Path(other.node("controller 101").dir) / "meta.properties"
    source.write_text(source.read_text().replace(other.plan.cluster_id, processes.plan.cluster_id))
    shutil.copytree(
        Path(processes.node("controller 101").dir) / "__cluster_metadata-0",
        source.parent / "__cluster_metadata-0",
        dirs_exist_ok=True,
    )

    said = start_in_vain(
        processes,
        "controller 101",
        metadata_log_dir=str(source.parent),
        listeners=f"CONTROLLER://127.0.0.1:{free_port()}",
    )

    assert str(source.parent) in said
    assert "101" in said


def test_a_controller_of_another_cluster_is_named_by_both_sides(plan_cluster: Plan) -> None:
    processes = plan_cluster(controllers=3, brokers=1)
    other = plan_cluster(controllers=3, brokers=1)
    strayed = Path(processes.node("controller 103").dir)
    shutil.rmtree(strayed)
    shutil.copytree(other.node("controller 103").dir, strayed)
    processes.start("controller 101", "controller 102", "broker")

    processes.start("controller 103")

    def is_named() -> bool:
        reasons = processes.status()["reasons"]
        return any("controller 103" in each and OTHER_CLUSTER in each for each in reasons)

    processes.wait_for(is_named, "a reason that names the stray")
    assert OTHER_CLUSTER in processes.log_of("controller 103").read_text()


def test_a_broker_of_another_cluster_reports_both_cluster_ids(plan_cluster: Plan) -> None:
    processes = plan_cluster(controllers=1, brokers=1)
    processes.start()
    processes.end("broker")
    other = plan_cluster(controllers=1, brokers=1)
    other.start("controller")

    said = start_in_vain(
        processes,
        "broker",
        controller_quorum_voters=f"101@{other.node('controller').address}",
    )

    assert f"belongs to cluster {processes.plan.cluster_id}" in said
    assert other.plan.cluster_id in said


def test_a_brokers_address_among_the_controllers_is_named(fresh: Any, tmp_path: Path) -> None:
    fresh.start()
    address = fresh.node("broker").address

    said = start_in_vain(
        fresh,
        "broker",
        node_id="7",
        controller_quorum_voters=f"101@{address}",
        **elsewhere(tmp_path),
    )

    assert said.startswith("ottla broker: controller.quorum.voters: no controller answers: ")
    assert address in said
    assert "is it a broker's address?" in said


def test_a_controllers_address_is_no_bootstrap(
    fresh: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    fresh.start("controller")
    address = fresh.node("controller").address

    assert run(["status", "--bootstrap", address]) == 3

    (said,) = capsys.readouterr().err.splitlines()
    assert f"{address} does not answer as a broker" in said
    assert "is it a controller's address" in said


def test_an_unreachable_advertised_address_is_reported_with_its_setting(
    plan_cluster: Plan,
) -> None:
    processes = plan_cluster(controllers=1, brokers=2)
    processes.start("controller", "broker 1")
    dead_address = f"127.0.0.1:{free_port()}"
    processes.start("broker 2", advertised_listeners=f"{PROTOCOL}://{dead_address}")

    def unreachable() -> list[str]:
        """Reasons once the controller has unfenced broker 2; until then the reason is its fence."""
        return [each for each in processes.status()["reasons"] if "is fenced" not in each]

    (reason,) = processes.wait_for(unreachable, "a reason other than the fence")

    assert "broker 2" in reason
    assert dead_address in reason
    assert "advertised.listeners" in reason


def test_more_replicas_than_brokers_are_refused_with_both_numbers(
    cluster: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--replication-factor=3", f"--bootstrap={cluster.bootstrap}"]

    assert run(["topic", "create", "wide", *options]) == 1

    (said,) = capsys.readouterr().err.splitlines()
    assert "replication factor of 3 cannot be reached because only 1 broker(s)" in said
    assert "start more brokers, or ask for fewer replicas with --replication-factor" in said


def test_up_with_more_replicas_than_brokers_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(
        ["up", f"--dir={tmp_path}", "--port=0", "--brokers=2", "--set=default.replication.factor=3"]
    )

    assert code == 1
    assert capsys.readouterr().err == (
        "ottla up: default.replication.factor: is 3, but there are 2 brokers; start more with "
        "--brokers, or ask for fewer\n"
    )


@pytest.mark.skipif(not FAKETIME.exists(), reason="LOUD: without libfaketime clocks are NOT tested")
def test_a_clock_an_hour_ahead_changes_no_session_and_is_warned_of(
    plan_cluster: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = plan_cluster(controllers=3, brokers=2, broker_session_timeout_ms="3000")
    processes.start("controller 101", "controller 103", "broker 1")
    monkeypatch.setenv("LD_PRELOAD", str(FAKETIME))
    monkeypatch.setenv("FAKETIME", "+1h")
    monkeypatch.setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    processes.start("controller 102", "broker 2")
    monkeypatch.delenv("LD_PRELOAD")

    processes.wait_healthy()
    (warning,) = processes.status()["warnings"]

    assert warning.startswith(WARNING)
    assert "60 min ahead" in warning

    # The controller whose clock is ahead takes over; no session ends by that.
    processes.kill("controller 101")
    processes.end("controller 103")
    processes.start("controller 103")
    processes.wait_for(lambda: processes.status()["quorum"]["leader_id"] in (102, 103), "a leader")
    assert [row["standing"] for row in processes.status()["brokers"]] == ["active", "active"]
