"""Checks the security of a cluster's listeners: encryption, certificates, authentication. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from ottla.insight.facts.listeners_driver import ListenerFacts
from ottla.insight.rules.certificate_findings import FAILED, OK, RENEW_WITHIN, WARNING
from ottla.model.amounts import moment

COLUMNS = ("ADDRESS", "ENCRYPTION", "CERTIFICATE", "VALID-UNTIL", "LOGIN", "STATE", "CURE")
READABLE_MECHANISMS = ("PLAIN", "OAUTHBEARER")
"""SASL mechanisms that send the password, or a bearer token, in readable form."""


@dataclass(frozen=True, slots=True)
class ListenerFinding:
    """Problems of one listener address, and their remedies."""

    facts: ListenerFacts
    state: str
    cures: tuple[str, ...]

    @property
    def row(self) -> tuple[object, ...]:
        """The listener's problems and remedies as a row of a table."""
        facts, certificate = self.facts, self.facts.certificate
        encryption = f"{facts.tls_version} {facts.cipher}" if facts.tls_version else "none"
        shown, until = "-", "-"
        if certificate is not None:
            names = ", ".join(certificate.names)
            shown = f"{certificate.subject} ({names})" if names else certificate.subject
            until = moment(round(certificate.not_after.timestamp() * 1_000))
        is_silent = facts.problem and not facts.tls_version
        return (
            facts.address,
            "-" if is_silent else encryption,
            shown,
            until,
            facts.login,
            self.state,
            "; ".join(self.cures),
        )

    @property
    def as_json(self) -> Mapping[str, object]:
        """The listener's problems and remedies as the JSON object that the command prints."""
        facts, certificate = self.facts, self.facts.certificate
        return {
            "address": facts.address,
            "tls_version": facts.tls_version or None,
            "cipher": facts.cipher or None,
            "subject": None if certificate is None else certificate.subject,
            "names": [] if certificate is None else list(certificate.names),
            "valid_until": None if certificate is None else certificate.not_after.isoformat(),
            "trusted": None if certificate is None else not facts.trust_problem,
            "mechanisms": list(facts.mechanisms),
            "asks_certificate": facts.asks_certificate,
            "serves_strangers": facts.serves_strangers,
            "state": self.state,
            "cure": "; ".join(self.cures) or None,
        }


def judge(facts: ListenerFacts, now: datetime) -> ListenerFinding:
    """Return the security problems of one listener address, derived from observations of the
    listener."""
    said = [*_failures(facts, now), *_warnings(facts, now)]
    states = {state for state, _ in said}
    state = FAILED if FAILED in states else WARNING if states else OK
    return ListenerFinding(facts, state, tuple(cure for _, cure in said))


def is_fit(findings: Sequence[ListenerFinding]) -> bool:
    """Return True if no listener in the findings has a failure."""
    return all(one.state != FAILED for one in findings)


def _failures(facts: ListenerFacts, now: datetime) -> Iterator[tuple[str, str]]:
    if facts.problem:
        yield FAILED, facts.problem
    problem = facts.certificate.problem_at(now) if facts.certificate is not None else None
    if problem:
        yield FAILED, f"its certificate {problem}; renew it"
    elif facts.trust_problem:
        yield FAILED, facts.trust_problem


def _warnings(facts: ListenerFacts, now: datetime) -> Iterator[tuple[str, str]]:
    if facts.certificate is not None:
        left = facts.certificate.not_after - now
        if not facts.certificate.problem_at(now) and left < RENEW_WITHIN:
            yield WARNING, f"its certificate ends in {left.days} days; renew it"
    readable = [one for one in facts.mechanisms if one in READABLE_MECHANISMS]
    if readable and not facts.tls_version:
        yield (
            WARNING,
            f"{' and '.join(readable)} can be read on the network there; make it SASL_SSL",
        )
    if facts.serves_strangers and facts.tls_version:
        yield (
            WARNING,
            "it serves clients that show neither login nor certificate; set "
            "ssl.client.auth=required, or make it SASL_SSL",
        )
    elif facts.serves_strangers:
        yield (
            WARNING,
            "it serves everyone who reaches it, and others can read along; make it SASL_SSL, or "
            "keep it to the machine or to a network of its own",
        )
