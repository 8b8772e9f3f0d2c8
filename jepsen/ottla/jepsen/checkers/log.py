"""Checker of a history of sends and polls as a set of partition logs: Jepsen's rules for Kafka, and
Ottla's own.

The module is pure. Sources: Jepsen's Kafka workload (its version order and anomalies), and Ottla's
rules R1 to R6 and R8 (`checkers/__init__.py`).
"""

from ottla.jepsen.checkers import log_order, log_values
from ottla.jepsen.checkers.log_figures import figures
from ottla.jepsen.checkers.log_reading import LogReading
from ottla.jepsen.checkers.verdict import Findings, RunFacts, Verdict
from ottla.jepsen.history import History

ALLOWED = log_order.ALLOWED | log_values.ALLOWED


def check_log(history: History, facts: RunFacts) -> Verdict:
    """Return the verdict on the sends and polls of a history."""
    findings = Findings("log")
    reading = LogReading.of(history, facts)
    log_values.check_values(reading, findings)
    log_order.check_polls(reading, findings)
    log_order.check_sends(reading, findings)
    findings.figures.update(figures(reading))
    return findings.verdict(facts, allowed=ALLOWED)
