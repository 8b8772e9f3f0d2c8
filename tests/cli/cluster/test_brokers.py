"""`ottla broker` and `ottla quorum` against real brokers."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from ottla.cli.cluster.brokers import brokers_at
from ottla.cli.main import run
from ottla.insight.facts.survey_driver import SurveyedBroker

pytestmark = pytest.mark.cluster

REFUSED = 1
UNHEALTHY = 2


@pytest.fixture(scope="module")
def cluster(up_for_all: Callable[..., Any]) -> Any:
    """Three controllers and two brokers, which every test leaves as they were."""
    return up_for_all("--controllers=3", "--brokers=2", "--port=0")


@pytest.fixture
def ask(cluster: Any, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """A function that runs a command on the cluster; returns its code and JSON."""

    def run_it(*command: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = run([*command, "--dir", str(cluster.directory), "--format=json"])
        said = capsys.readouterr()
        return code, json.loads(said.out) if said.out else said.err

    return run_it


def leaders(ask: Callable[..., Any]) -> dict[int, int]:
    return {row["id"]: row["leaders"] for row in ask("broker", "list")[1]}


def test_a_drained_broker_leads_nothing_until_it_is_brought_back(ask: Callable[..., Any]) -> None:
    assert ask("topic", "create", "t", "--partitions=4", "--replication-factor=2")[0] == 0
    assert leaders(ask) == {1: 2, 2: 2}

    assert ask("broker", "drain", "2", "--yes") == (0, {"id": 2, "drained": True})

    assert leaders(ask) == {1: 4, 2: 0}
    code, found = ask("status")
    assert code == UNHEALTHY
    assert "'ottla broker drain 2 --undo'" in found["reasons"][0]
    assert [row["standing"] for row in found["brokers"]] == ["active", "drained"]

    assert ask("broker", "drain", "2", "--undo") == (0, {"id": 2, "drained": False})

    assert [row["state"] for row in ask("broker", "list")[1]] == ["active", "active"]
    assert ask("topic", "delete", "t", "--yes")[0] == 0


def test_a_drain_that_leaves_a_partition_without_leader_is_refused(ask: Callable[..., Any]) -> None:
    assert ask("topic", "create", "lone", "--partitions=2", "--replication-factor=1")[0] == 0

    code, said = ask("broker", "drain", "2")

    assert code == REFUSED
    assert "1 partition of broker 2 would be without leader" in said
    assert "add replicas ('ottla topic reassign TOPIC" in said
    assert "--force" in said
    assert ask("broker", "drain", "2", "--force", "--yes")[0] == 0
    assert ask("broker", "drain", "2", "--undo")[0] == 0


def test_the_brokers_of_a_host_are_drained_by_one_command(ask: Callable[..., Any]) -> None:
    assert ask("topic", "create", "two", "--partitions=2", "--replication-factor=2")[0] == 0

    code, said = ask("broker", "drain", "1-2")

    assert code == REFUSED
    assert "of broker 1, broker 2 would be without leader" in said
    assert ask("broker", "drain", "2,2", "--force", "--yes") == (0, {"id": 2, "drained": True})
    undone = [{"id": id_, "drained": False} for id_ in (1, 2)]
    assert ask("broker", "drain", "1-2", "--undo") == (0, undone)
    assert ask("topic", "delete", "two", "--yes")[0] == 0


def test_a_host_is_drained_as_one(ask: Callable[..., Any]) -> None:
    code, said = ask("broker", "drain", "--host", "localhost")
    assert code == REFUSED
    assert "of broker 1, broker 2 would be without leader" in said
    assert "no broker is at host 'four.example'" in ask("broker", "drain", "--host=four.example")[1]
    assert "or --host must be given" in ask("broker", "drain")[1]
    assert "or --host must be given" in ask("broker", "drain", "1", "--host=localhost")[1]

    both = [{"id": id_, "drained": True} for id_ in (1, 2)]
    assert ask("broker", "drain", "--host=localhost", "--force", "--yes") == (0, both)
    assert [row["state"] for row in ask("broker", "list")[1]] == ["drained", "drained"]
    undone = [{"id": id_, "drained": False} for id_ in (1, 2)]
    assert ask("broker", "drain", "--host=localhost", "--undo") == (0, undone)


def test_brokers_of_one_machine_belong_together_under_any_address() -> None:
    def broker(id_: int, host: str, machine: str | None) -> SurveyedBroker:
        return SurveyedBroker(
            id=id_, host=host, port=9092, rack=None, is_fenced=False, machine=machine
        )

    brokers = [broker(1, "a", "m"), broker(2, "b", "m"), broker(3, "c", "n"), broker(4, "d", None)]
    found = {
        host: [one.id for one in brokers_at(brokers, host)]
        for host in ("a", "b", "m", "c", "d", "e", "")
    }
    expected = {"a": [1, 2], "b": [1, 2], "m": [1, 2], "c": [3], "d": [4], "e": [], "": []}
    assert found == expected


@pytest.mark.parametrize("text", ["one", "2-1", "1-", "0-500", ""])
def test_ids_that_cannot_be_are_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["broker", "drain", text]) == REFUSED
    assert "argument ID" in capsys.readouterr().err


def test_an_unknown_broker_is_refused(ask: Callable[..., Any]) -> None:
    code, said = ask("broker", "describe", "9")

    assert code == REFUSED
    assert "there is no broker 9 in this cluster; see 'ottla broker list'" in said


def test_the_quorum_is_shown_with_its_voters_and_observers(ask: Callable[..., Any]) -> None:
    code, found = ask("quorum", "status")

    assert code == 0
    assert found["leader_id"] in (101, 102, 103)
    assert [voter["id"] for voter in found["voters"]] == [101, 102, 103]
    assert sorted(observer["id"] for observer in found["observers"]) == [1, 2]
    assert all(voter["address"] and voter["directory_id"] for voter in found["voters"])
