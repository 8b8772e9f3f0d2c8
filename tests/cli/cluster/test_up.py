"""Which ports, roles and settings a local cluster starts with."""

import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.cluster import up
from ottla.cli.cluster.cluster_file import ClusterPlan, make_plan, properties_of
from ottla.cli.cluster.cluster_format import format_plan
from ottla.cli.main import run
from ottla.model.errors import ConfigError
from ottla.node.local.local_nodes_driver import free_port
from ottla.node.properties import parse_properties


def planned(directory: Path, port: int | None) -> ClusterPlan:
    plan = make_plan(directory, host="127.0.0.1", port=port, controllers=1, brokers=1)
    plan.write()
    return plan


def test_a_cluster_comes_back_on_the_port_it_had(tmp_path: Path) -> None:
    first = planned(tmp_path, 0)

    assert planned(tmp_path, None).bootstrap == first.bootstrap
    assert planned(tmp_path, 0).bootstrap == first.bootstrap


def test_a_port_that_is_asked_for_moves_a_cluster_that_is_there(tmp_path: Path) -> None:
    first = planned(tmp_path, 0)
    port = free_port()

    second = planned(tmp_path, port)

    assert second.bootstrap == f"127.0.0.1:{port}"
    assert second.controllers == first.controllers


@pytest.mark.parametrize("port", ["65536", "-1", "http"])
def test_what_is_no_port_is_a_usage_error(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["up", f"--port={port}", "--ephemeral"]) == 1

    assert "argument --port" in capsys.readouterr().err


def test_a_directory_of_an_ephemeral_cluster_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["up", "--ephemeral", f"--dir={tmp_path}/kept"]) == 1

    assert capsys.readouterr().err == (
        "ottla up: --dir: excludes --ephemeral, which removes its directory; give one\n"
    )
    assert not (tmp_path / "kept").exists()


@pytest.fixture
def own_signals() -> Iterator[None]:
    """Restore the handler of SIGTERM after 'ottla up' has replaced it."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("own_signals")
def test_a_setting_that_is_not_allowed_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = run(["up", "--dir", str(tmp_path), "--port", "0", "--set", "num.partitions=none"])

    assert code == 1
    assert "num.partitions: is 'none'" in capfd.readouterr().err


@pytest.mark.parametrize(("command", "role"), [("broker", "controller"), ("controller", "broker")])
def test_a_file_of_the_other_role_is_refused(
    command: str, role: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planned(tmp_path, 0).write_properties()
    (path,) = tmp_path.glob(f"{role}-*.properties")

    assert run([command, str(path)]) == 1

    said = capsys.readouterr().err
    assert said == (
        f"ottla {command}: process.roles: is {role!r}; run it with 'ottla {role} {path}'\n"
    )


def test_a_busy_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        with pytest.raises(ConfigError, match=f"127.0.0.1:{port} cannot be listened on"):
            planned(tmp_path, port)


def identities(plan: ClusterPlan) -> list[dict[str, str]]:
    return [
        parse_properties((Path(node.dir) / "meta.properties").read_text())
        for node in plan.controllers
    ]


def test_the_controllers_of_a_new_cluster_are_formatted_as_one_anothers_peers(
    tmp_path: Path,
) -> None:
    plan = make_plan(tmp_path, host="127.0.0.1", port=0, controllers=3, brokers=3)

    format_plan(plan)

    found = identities(plan)
    assert [each["cluster.id"] for each in found] == [plan.cluster_id] * 3
    assert [each["directory.id"] for each in found] == [n.directory_id for n in plan.controllers]
    snapshots = [next(Path(node.dir).rglob("*.checkpoint")) for node in plan.controllers]
    assert len({path.read_bytes() for path in snapshots}) == 1


def test_a_controller_that_lost_its_directory_is_not_formatted_again(tmp_path: Path) -> None:
    first = make_plan(tmp_path, host="127.0.0.1", port=0, controllers=3, brokers=3)
    format_plan(first)
    shutil.rmtree(first.controllers[1].dir)

    again = make_plan(tmp_path, host="127.0.0.1", port=None, controllers=None, brokers=None)
    format_plan(again)

    assert not Path(first.controllers[1].dir).exists()
    assert (again.cluster_id, again.controllers) == (first.cluster_id, first.controllers)


def test_a_first_start_that_was_interrupted_goes_on_with_the_same_ids(tmp_path: Path) -> None:
    first = make_plan(tmp_path, host="127.0.0.1", port=0, controllers=3, brokers=1)
    format_plan(first)
    shutil.rmtree(first.controllers[2].dir)
    first.is_formatted = False
    first.write()

    again = make_plan(tmp_path, host="127.0.0.1", port=None, controllers=3, brokers=1)
    format_plan(again)

    assert [each["directory.id"] for each in identities(again)] == [
        node.directory_id for node in first.controllers
    ]


def test_directories_of_another_cluster_are_not_taken_over(tmp_path: Path) -> None:
    format_plan(make_plan(tmp_path, host="127.0.0.1", port=0, controllers=3, brokers=1))
    (tmp_path / "cluster.json").unlink()

    with pytest.raises(ConfigError, match="formatted already"):
        format_plan(make_plan(tmp_path, host="127.0.0.1", port=0, controllers=3, brokers=1))


def test_three_brokers_keep_three_replicas_of_which_two_must_be_in_sync(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, host="127.0.0.1", port=0, controllers=1, brokers=4)
    plan.write_properties()

    settings = parse_properties(properties_of("broker", plan.brokers[0]).read_text())

    assert settings["default.replication.factor"] == "3"
    assert settings["min.insync.replicas"] == "2"
    assert settings["offsets.topic.replication.factor"] == "3"


def test_a_controller_moves_when_its_port_is_occupied(tmp_path: Path) -> None:
    first = planned(tmp_path, 0)
    with socket.create_server(("127.0.0.1", first.controllers[0].port)):
        again = planned(tmp_path, None)

    assert again.controllers[0].port != first.controllers[0].port


def test_another_number_of_nodes_than_a_cluster_has_is_refused(tmp_path: Path) -> None:
    planned(tmp_path, 0)

    with pytest.raises(ConfigError, match=r"--brokers: is 2, but the cluster of .* has 1"):
        make_plan(tmp_path, host="127.0.0.1", port=None, controllers=1, brokers=2)


def test_a_cluster_may_have_a_broker_for_each_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up, "machine_cores", lambda: 5)
    assert (up._count("auto"), up._count("3")) == (5, 3)


def test_only_the_first_start_of_an_interpreted_cluster_advises_a_compiled_wheel() -> None:
    advice = up.advice_on_form("interpreted", is_first_start=True)

    assert "OTTLA_COMPILE=1 pip install ." in advice
    assert advice.endswith(".\n")
    assert up.advice_on_form("interpreted", is_first_start=False) == ""
    assert up.advice_on_form("compiled", is_first_start=True) == ""
