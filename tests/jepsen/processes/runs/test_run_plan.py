"""The plan of a run."""

import argparse
import shlex
from typing import Any

import pytest

from ottla.cli.lab import jepsen, jepsen_plan
from ottla.cli.verbs import declare
from ottla.jepsen.processes.runs.run_plan import RunPlan
from ottla.model.errors import ConfigError

PLANS = [
    RunPlan(workloads=("queue",)),
    RunPlan(workloads=("queue", "offsets"), nemeses=("kill", "pause"), seconds=45, seed=7),
    RunPlan(
        workloads=("metadata",),
        clients=("ottla",),
        seconds=0.25,
        interval_s=3,
        threads=4,
        controllers=1,
        brokers=5,
        flush=True,
        plain=True,
        planted="duplicates-appended",
        nemeses=("kill",),
        ops_per_s_min=12.5,
        faults_min=0,
    ),
    RunPlan(workloads=("queue",), bootstrap="broker:9092"),
    RunPlan(workloads=("queue",), secure=True),
]


@pytest.mark.parametrize("plan", PLANS, ids=RunPlan.command)
def test_its_command_does_the_same_again(plan: RunPlan) -> None:
    parser = argparse.ArgumentParser()
    declare(parser, jepsen)

    program, name, *words = shlex.split(plan.command())
    arguments = parser.parse_args(words)

    assert (program, name) == ("ottla", "jepsen")
    workloads, nemeses = (
        jepsen_plan.names_of(arguments.workload),
        jepsen_plan.names_of(arguments.nemesis),
    )
    assert jepsen_plan.plan_of(arguments, workloads, nemeses) == plan


@pytest.mark.parametrize("plan", PLANS, ids=RunPlan.command)
def test_it_is_read_as_it_was_written(plan: RunPlan) -> None:
    assert RunPlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"workloads": ()}, "--workload"),
        ({"nemeses": ("kill", "kill")}, "--nemesis"),
        ({"clients": ("telnet",)}, "--clients"),
        ({"seconds": 0.0}, "--for"),
        ({"threads": 1}, "--threads"),
        ({"bootstrap": "b:1", "nemeses": ("kill",)}, "needs a cluster that the run starts itself"),
        ({"bootstrap": "b:1", "planted": "duplicates-appended"}, "--planted"),
        ({"bootstrap": "b:1", "secure": True}, "--secure"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        RunPlan(**{"workloads": ("queue",), **changes})


def test_half_of_the_faults_that_the_time_has_room_for_must_be_injected() -> None:
    minute = RunPlan(workloads=("queue",), nemeses=("kill",), seconds=180, interval_s=10)

    assert minute.fault_count_min == 4
    assert RunPlan(workloads=("queue",), nemeses=("kill",), seconds=1).fault_count_min == 1
    assert RunPlan(workloads=("queue",)).fault_count_min == 0


def test_clients_share_the_threads() -> None:
    plan = RunPlan(workloads=("queue",), threads=5)

    assert [plan.client_of(thread) for thread in range(5)].count("ottla") == 3


def test_a_planted_run_is_kept_apart() -> None:
    plan = RunPlan(workloads=("queue",), nemeses=("kill", "pause"), planted="anybody-elected")

    assert plan.test_of("queue") == "queue-kill+pause-planted-anybody-elected"


def test_a_secure_run_is_kept_apart() -> None:
    plan = RunPlan(workloads=("queue",), nemeses=("kill",), secure=True)

    assert plan.test_of("queue") == "queue-kill-secure"
