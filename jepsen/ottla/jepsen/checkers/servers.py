"""Judges the servers themselves, by what the harness collected of them.

Pure.  Source: R10.  server-error: a log has a traceback or a broken assertion.  unsound-directory:
the check of a data directory found something.  A run whose directories nobody looked at is not
judged by them, and says so in the figures.
"""

from ottla.jepsen.checkers.verdict import Findings, RunFacts, Verdict
from ottla.jepsen.history import History


def check_servers(history: History, facts: RunFacts) -> Verdict:
    """Judge the servers' logs and directories; the history says nothing of them."""
    findings = Findings("servers")
    for node, line in facts.server_errors:
        findings.add("server-error", f"{node}: {line}")
    for check in facts.directory_checks:
        if not check.is_sound:
            findings.add("unsound-directory", f"{check.node}: {check.detail}")
    findings.figures["directories_checked"] = len(facts.directory_checks)
    return findings.verdict(facts)
