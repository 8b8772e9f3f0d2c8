"""The table of all mutants; each domain's own file adds its rows."""

from importlib import import_module

from ottla.jepsen.world.bugs.mutant import Mutant
from ottla.model.errors import ErrorCode, RefusedError

DOMAINS: tuple[str, ...] = (
    "raft_bugs",
    "forgery_bugs",
    "metadata_log_bugs",
    "voter_bugs",
    "whole_bugs",
    "trouble_bugs",
    "replication_bugs",
    "loss_bugs",
    "controller_bugs",
    "storage_bugs",
    "group_bugs",
    "cleaner_bugs",
    "transaction_bugs",
)
"""Modules of this package that hold a `MUTANTS` row of tuples."""


def mutants() -> tuple[Mutant, ...]:
    """Return every mutant of the bank."""
    found: list[Mutant] = []
    for domain in DOMAINS:
        rows: tuple[Mutant, ...] = import_module(f"ottla.jepsen.world.bugs.{domain}").MUTANTS
        found.extend(rows)
    names = [each.name for each in found]
    assert len(set(names)) == len(names), "two mutants have one name"
    return tuple(found)


def mutant(name: str) -> Mutant:
    """Return the mutant of a name; RefusedError when there is none."""
    for each in mutants():
        if each.name == name:
            return each
    raise RefusedError(ErrorCode.INVALID_REQUEST, f"the bug bank has no {name!r}")
