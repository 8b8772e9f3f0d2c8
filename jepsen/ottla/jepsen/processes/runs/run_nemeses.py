"""The nemeses of a run: their names and construction, and the reasons why this machine does not
allow some.

The name `partition` stands for all kinds of network partitions, which then take turns.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from ottla.jepsen.checkers.verdict import RunFacts
from ottla.jepsen.processes.abilities import Abilities, probe
from ottla.jepsen.processes.cluster import ProcessCluster
from ottla.jepsen.processes.nemeses.nemesis import Nemesis
from ottla.jepsen.processes.nemeses.table import CLASSES, NEMESES
from ottla.jepsen.processes.object_store import missing_store
from ottla.jepsen.processes.runs.run_plan import NO_NEMESIS, RunPlan
from ottla.jepsen.processes.runs.run_status import Say
from ottla.jepsen.processes.runs.run_verdict import RunSummary
from ottla.jepsen.workloads.table import WORKLOADS, check_clients
from ottla.model.errors import ConfigError

PARTITION = "partition"


def needs_flush(name: str) -> bool:
    """Return whether a nemesis (kind of fault) may be used only with brokers that flush every
    message."""
    return any(CLASSES[each].needs_flush for each in expanded([name]) if each != NO_NEMESIS)


def needs_store(names: Sequence[str]) -> bool:
    """Return whether a nemesis (kind of fault) damages the object store of tiered topics."""
    return any(CLASSES[each].needs_store for each in expanded(names) if each != NO_NEMESIS)


async def nemesis_rows() -> list[dict[str, Any]]:
    """Return a row for each nemesis: its name, its description, and the reason why this machine
    does not allow it. The reason is None if the machine allows the nemesis."""
    with tempfile.TemporaryDirectory(prefix="ottla-jepsen-") as scratch:
        abilities = await probe(Path(scratch))
    rows = [
        {
            "nemesis": name,
            "what": (kind.__doc__ or "").partition("\n")[0].rstrip("."),
            "not_here": _lacking(name, abilities)
            or (missing_store() if kind.needs_store else None)
            or None,
        }
        for name, kind in CLASSES.items()
    ]
    all_kinds = {"nemesis": PARTITION, "what": "All kinds of network partitions, in turns"}
    return [*rows, {**all_kinds, "not_here": None}]


def _lacking(name: str, abilities: Abilities) -> str:
    return "; ".join(
        f"{ability}: {abilities.missing[ability]}"
        for ability in sorted(CLASSES[name].needs)
        if ability not in abilities
    )


def nemesis_names() -> tuple[str, ...]:
    """Return the names of all nemeses (kinds of faults). The first name stands for a run without
    faults."""
    return (NO_NEMESIS, *NEMESES)


def expanded(names: Sequence[str]) -> tuple[str, ...]:
    """Replace each name of a group of nemeses by the names of its nemeses (kinds of faults). No
    name is repeated."""
    found: dict[str, None] = {}
    for name in names:
        kinds = [each for each in NEMESES if each.startswith(f"{PARTITION}-")]
        found.update(dict.fromkeys(kinds if name == PARTITION else [name]))
    return tuple(found)


def check_names(plan: RunPlan) -> None:
    """Check the names in a run's plan. Raises ConfigError if it names a workload, nemesis or
    client that does not exist, or a client that is not installed."""
    for option, names, known in (
        ("--workload", plan.workloads, tuple(WORKLOADS)),
        ("--nemesis", expanded(plan.nemeses), nemesis_names()),
    ):
        for name in names:
            if name not in known:
                raise ConfigError(option, f"is {name!r}; it must be one of {', '.join(known)}")
    check_clients(plan.workloads, plan.clients)
    for name in expanded(plan.faults):
        if CLASSES[name].needs_flush and not plan.flush:
            raise ConfigError(
                "--nemesis", f"{name} is within the guarantees of Kafka only with --flush"
            )
        reason = missing_store() if CLASSES[name].needs_store else None
        if reason is not None:
            raise ConfigError("--nemesis", f"{name} {reason}")


def make_nemeses(
    plan: RunPlan, cluster: ProcessCluster | None, facts: RunFacts, summary: RunSummary, say: Say
) -> list[Nemesis]:
    """Return the planned nemeses (sources of faults) that this machine allows. Reports every other
    planned nemesis with the reason to `summary` and `say`."""
    made: list[Nemesis] = []
    for name in expanded(plan.faults):
        assert cluster is not None, "faults need a cluster that the run starts itself"
        lacking = _lacking(name, cluster.abilities)
        if lacking:
            summary.skipped[name] = lacking
            say(f"SKIPPED: this machine does not allow {name} ({lacking})")
        else:
            made.append(NEMESES[name](cluster, Random(f"{plan.seed}/{name}"), facts))
    return made


def say_abilities(cluster: ProcessCluster, say: Say) -> None:
    """Report the abilities that this machine lacks by calling `say`. Some faults are then
    approximated or skipped."""
    for ability, reason in sorted(cluster.abilities.missing.items()):
        say(f"this machine has no {ability} ({reason}); their faults are approximated or skipped")
