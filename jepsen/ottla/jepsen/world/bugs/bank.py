"""The table of all mutants (deliberate bugs that the simulation must find), collected from the
modules in `DOMAINS`."""

from importlib import import_module

from ottla.jepsen.world.bugs.mutant import Mutant
from ottla.model.errors import ErrorCode, RefusedError

DOMAINS: tuple[str, ...] = (
    "raft_bugs",
    "membership_bugs",
    "stuck_quorum_bugs",
    "forgery_bugs",
    "metadata_log_bugs",
    "voter_bugs",
    "whole_bugs",
    "disk_and_topic_bugs",
    "replication_bugs",
    "loss_bugs",
    "controller_bugs",
    "storage_bugs",
    "group_bugs",
    "share_bugs",
    "cleaner_bugs",
    "transaction_bugs",
    "tier_bugs",
)
"""Names of the modules of this package that have mutants (deliberate bugs). Each has a tuple
`MUTANTS`."""


def mutants() -> tuple[Mutant, ...]:
    """Return the mutants (deliberate bugs) of all modules in `DOMAINS`, in this order. Each has a
    unique name."""
    found: list[Mutant] = []
    for domain in DOMAINS:
        rows: tuple[Mutant, ...] = import_module(f"ottla.jepsen.world.bugs.{domain}").MUTANTS
        found.extend(rows)
    names = [each.name for each in found]
    assert len(set(names)) == len(names), "two mutants have one name"
    return tuple(found)


def mutant(name: str) -> Mutant:
    """Return the mutant (deliberate bug) with this name. Raises RefusedError if no mutant has this
    name."""
    for each in mutants():
        if each.name == name:
            return each
    raise RefusedError(ErrorCode.INVALID_REQUEST, f"the bug bank has no {name!r}")
