"""Checker of an offsets history: each (group, key) is a register of one offset (`registers.py`).

The module is pure. Values: commit and fetch have [group, key, offset | null].
"""

from ottla.jepsen.checkers import registers
from ottla.jepsen.checkers.verdict import Findings, RunFacts, Verdict
from ottla.jepsen.history import History


def check_offsets(history: History, facts: RunFacts) -> Verdict:
    """Return the verdict on a history's commits and fetches of offsets without a group
    membership."""
    findings = Findings("offsets")
    groups: dict[str, registers.RegisterGroup] = {}
    for operation in history.operations("commit", "fetch"):
        group, key, offset = operation.value
        groups.setdefault(group, registers.RegisterGroup()).add(operation, {key: offset})
    registers.check_registers(groups, facts, findings)
    return findings.verdict(facts, allowed=registers.ALLOWED)
