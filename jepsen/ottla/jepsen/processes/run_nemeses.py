"""Which nemeses a run has: names to factories, and what this machine cannot do.

`partition` stands for every way of parting nodes, in turns.
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
from ottla.jepsen.processes.run_plan import NO_NEMESIS, RunPlan
from ottla.jepsen.processes.run_status import Say
from ottla.jepsen.processes.run_verdict import RunCourse
from ottla.jepsen.workloads.table import WORKLOADS
from ottla.model.errors import ConfigError

PARTITION = "partition"


def needs_flush(name: str) -> bool:
    """Return whether a nemesis may strike only brokers that flush every message."""
    return any(CLASSES[each].needs_flush for each in expanded([name]) if each != NO_NEMESIS)


async def nemesis_rows() -> list[dict[str, Any]]:
    """Return, for each nemesis, its name, what it does, and why not here (None: it can)."""
    with tempfile.TemporaryDirectory(prefix="ottla-jepsen-") as scratch:
        abilities = await probe(Path(scratch))
    rows = [
        {
            "nemesis": name,
            "what": (kind.__doc__ or "").partition("\n")[0].rstrip("."),
            "not_here": _lacking(name, abilities) or None,
        }
        for name, kind in CLASSES.items()
    ]
    all_kinds = {"nemesis": PARTITION, "what": "Each way of parting nodes, in turns"}
    return [*rows, {**all_kinds, "not_here": None}]


def _lacking(name: str, abilities: Abilities) -> str:
    return "; ".join(
        f"{ability}: {abilities.missing[ability]}"
        for ability in sorted(CLASSES[name].needs)
        if ability not in abilities
    )


def nemesis_names() -> tuple[str, ...]:
    """Return the names of all nemeses, the one that does nothing first."""
    return (NO_NEMESIS, *NEMESES)


def expanded(names: Sequence[str]) -> tuple[str, ...]:
    """Return the nemeses that names stand for, each once."""
    found: dict[str, None] = {}
    for name in names:
        kinds = [each for each in NEMESES if each.startswith(f"{PARTITION}-")]
        found.update(dict.fromkeys(kinds if name == PARTITION else [name]))
    return tuple(found)


def check_names(plan: RunPlan) -> None:
    """Raise ConfigError for a workload or a nemesis that there is not."""
    for option, names, known in (
        ("--workload", plan.workloads, tuple(WORKLOADS)),
        ("--nemesis", expanded(plan.nemeses), nemesis_names()),
    ):
        for name in names:
            if name not in known:
                raise ConfigError(option, f"is {name!r}; it must be of {', '.join(known)}")
    for name in expanded(plan.faults):
        if CLASSES[name].needs_flush and not plan.flush:
            raise ConfigError("--nemesis", f"{name} breaks no promise only with --flush")


def make_nemeses(
    plan: RunPlan, cluster: ProcessCluster | None, facts: RunFacts, course: RunCourse, say: Say
) -> list[Nemesis]:
    """Make the nemeses that this machine can do; say which it cannot, and why."""
    made: list[Nemesis] = []
    for name in expanded(plan.faults):
        assert cluster is not None, "faults are for clusters of our own"
        lacking = _lacking(name, cluster.abilities)
        if lacking:
            course.skipped[name] = lacking
            say(f"SKIPPED: {name} cannot be done on this machine ({lacking})")
        else:
            made.append(NEMESES[name](cluster, Random(f"{plan.seed}/{name}"), facts))
    return made


def say_abilities(cluster: ProcessCluster, say: Say) -> None:
    """Say loudly what is only second best on this machine."""
    for ability, reason in sorted(cluster.abilities.missing.items()):
        say(
            f"this machine has no {ability} ({reason}); what needs them is done another way, or not"
        )
