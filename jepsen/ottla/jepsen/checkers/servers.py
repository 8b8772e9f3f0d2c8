"""Checker of the servers themselves, from the evidence that the test harness collected after the
run.

The module is pure. Source: rule R10 (`checkers/__init__.py`).

- server-error: a server's log has a traceback or a failed assertion.
- unsound-directory: the check of a data directory found an error.

If the directories were not checked, the verdict ignores them, and its figures show that.
"""

from ottla.jepsen.checkers.verdict import Findings, RunFacts, Verdict
from ottla.jepsen.history import History


def check_servers(history: History, facts: RunFacts) -> Verdict:
    """Return the verdict on the servers' logs and directories. The history is not used."""
    findings = Findings("servers")
    for node, line in facts.server_errors:
        findings.add("server-error", f"{node}: {line}")
    for check in facts.directory_checks:
        if not check.is_sound:
            findings.add("unsound-directory", f"{check.node}: {check.detail}")
    findings.figures["directories_checked"] = len(facts.directory_checks)
    return findings.verdict(facts)
