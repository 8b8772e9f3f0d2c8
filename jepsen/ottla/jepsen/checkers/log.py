"""Judges a queue history as a set of logs: Jepsen's rules for Kafka, and the house's own.

Pure.  Source of the rules: Jepsen's Kafka workload (its version order and anomalies), and R1 to R8
of the house: real-time order, read your acknowledgement, stable reads, nothing shown too early,
idempotence, whole transactions, and no promise without acks=all.
"""

from ottla.jepsen.checkers import log_order, log_values
from ottla.jepsen.checkers.log_figures import figures
from ottla.jepsen.checkers.log_reading import LogReading
from ottla.jepsen.checkers.verdict import Findings, RunFacts, Verdict
from ottla.jepsen.history import History

ALLOWED = log_order.ALLOWED | log_values.ALLOWED


def check_log(history: History, facts: RunFacts) -> Verdict:
    """Judge what senders and readers of logs were told."""
    findings = Findings("log")
    reading = LogReading.of(history, facts)
    log_values.check_values(reading, findings)
    log_order.check_polls(reading, findings)
    log_order.check_sends(reading, findings)
    findings.figures.update(figures(reading))
    return findings.verdict(facts, allowed=ALLOWED)
