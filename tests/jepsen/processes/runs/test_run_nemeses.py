"""Which nemeses a run has."""

from functools import partial
from random import Random
from types import SimpleNamespace
from typing import cast

import pytest

from ottla.jepsen.checkers.verdict import RunFacts
from ottla.jepsen.processes.abilities import Abilities, Ability
from ottla.jepsen.processes.cluster import ProcessCluster
from ottla.jepsen.processes.nemeses.stores import StoreServerFault
from ottla.jepsen.processes.nemeses.table import CLASSES, NEMESES
from ottla.jepsen.processes.runs.run_nemeses import (
    check_names,
    expanded,
    make_nemeses,
    needs_flush,
    needs_store,
    nemesis_names,
)
from ottla.jepsen.processes.runs.run_plan import RunPlan
from ottla.jepsen.processes.runs.run_verdict import RunSummary, judge_run
from ottla.model.errors import ConfigError


def _cluster(**missing: str) -> ProcessCluster:
    abilities = Abilities({Ability(name): reason for name, reason in missing.items()})
    return cast(ProcessCluster, SimpleNamespace(abilities=abilities))


def test_partition_stands_for_every_way_of_parting_nodes() -> None:
    kinds = expanded(["kill", "partition", "partition-leader"])

    assert kinds[0] == "kill"
    assert set(kinds[1:]) == {name for name in NEMESES if name.startswith("partition-")}
    assert len(kinds) == len(set(kinds)) >= 8


def test_every_nemesis_tells_what_it_needs_before_there_is_a_cluster() -> None:
    assert set(nemesis_names()) == {"none", *CLASSES}
    assert needs_flush("power-cut-all")
    assert not needs_flush("partition")
    assert not needs_flush("none")


@pytest.mark.parametrize(
    ("workload", "nemesis", "said"),
    [
        ("queue", "gremlins", "--nemesis"),
        ("nothing", "kill", "--workload"),
        ("queue", "power-cut-all", "only with --flush"),
    ],
)
def test_a_plan_that_names_what_there_is_not_is_refused(
    workload: str, nemesis: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        check_names(RunPlan(workloads=(workload,), nemeses=(nemesis,)))


def test_a_store_nemesis_needs_a_server_which_the_refusal_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert needs_store(["kill", "store"])
    assert not needs_store(["none", "mixer"])
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match="needs gofakes3 on PATH; install it with: go install"):
        check_names(RunPlan(workloads=("queue",), nemeses=("store",)))


async def test_a_store_is_hurt_in_every_way_and_healed_after_each() -> None:
    done: list[str] = []

    async def start() -> None:
        done.append("start")

    store = SimpleNamespace(
        start=start,
        count_copied_segments=lambda: len(done),
        **{name: partial(done.append, name) for name in ("kill", "pause", "slow_down", "resume")},
    )
    cluster = cast(ProcessCluster, SimpleNamespace(store=store))
    nemesis = StoreServerFault(cluster, Random(1), RunFacts())
    assert await nemesis.heal() == {}
    for _ in range(3):
        assert (await nemesis.inject())["copied_segments"] == len(done)
        healed = await nemesis.heal()
        assert done[-2:] == ["resume", "start"]
        assert healed["copied_segments"] == len(done)
    assert set(done[::3]) == {"kill", "pause", "slow_down"}
    assert nemesis.count == 3


def test_what_a_machine_cannot_do_is_said_and_leaves_the_run_unknown() -> None:
    plan = RunPlan(workloads=("queue",), nemeses=("kill", "power-cut"))
    course = RunSummary(seconds=60.0, operation_count=60_000, faults={"kill": 3}, is_read=True)
    said: list[str] = []
    cluster = _cluster(images="only root may mount")

    made = make_nemeses(plan, cluster, RunFacts(), course, said.append)

    assert [nemesis.name for nemesis in made] == ["kill"]
    assert len(said) == 1
    assert said[0].startswith("SKIPPED: this machine does not allow power-cut")
    assert "only root may mount" in said[0]
    assert judge_run(plan, course).valid == "unknown"
