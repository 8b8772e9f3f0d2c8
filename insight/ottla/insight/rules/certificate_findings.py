"""Checks the certificates in a settings file for failures and for expiry. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ottla.model.amounts import moment
from ottla.model.tls.certificate import Certificate
from ottla.model.tls.context_driver import TlsMaterial

RENEW_WITHIN = timedelta(days=30)
"""Remaining validity of a certificate below which its renewal is recommended."""

COLUMNS = ("WHERE", "CERTIFICATE", "NAMES", "VALID-UNTIL", "STATE", "CURE")
OK, WARNING, FAILED = "ok", "warning", "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFinding:
    """Result of checking one certificate: its validity, and its problem if there is one."""

    where: str
    subject: str = "-"
    names: tuple[str, ...] = ()
    valid_until: datetime | None = None
    state: str = OK
    cure: str = ""

    @property
    def row(self) -> tuple[object, ...]:
        """The result of checking the certificate, as a row of a table."""
        until = None
        if self.valid_until is not None:
            until = moment(round(self.valid_until.timestamp() * 1_000))
        return (
            self.where,
            self.subject,
            ", ".join(self.names) or "-",
            until,
            self.state,
            self.cure,
        )


def findings_of(
    where: str, material: TlsMaterial, *, now: datetime, handshake_problem: str | None
) -> Iterator[CertificateFinding]:
    """Yield the results of checking the certificates in one TLS configuration: its own certificate
    first, then the trusted CAs.

    `handshake_problem` is the reason why a client that trusts the same CAs would refuse the
    certificate, or None.
    """
    if material.certificate is not None:
        yield judged(where, material.certificate, now, handshake_problem)
    for one in material.authorities:
        yield judged(f"{where}, trusted", one, now, None)


def judged(
    where: str, certificate: Certificate, now: datetime, handshake_problem: str | None
) -> CertificateFinding:
    """Return the result of checking one certificate. Inputs are its validity at the time `now`, and
    the reason why a client would refuse it."""
    state, cure = OK, ""
    if problem := certificate.problem_at(now):
        state, cure = FAILED, f"it {problem}; renew it"
    elif handshake_problem is not None:
        state, cure = FAILED, handshake_problem
    elif certificate.not_after - now < RENEW_WITHIN:
        days = (certificate.not_after - now).days
        state, cure = WARNING, f"it ends in {days} days; renew it"
    return CertificateFinding(
        where=where,
        subject=certificate.subject,
        names=certificate.names,
        valid_until=certificate.not_after,
        state=state,
        cure=cure,
    )


def is_fit(findings: Sequence[CertificateFinding]) -> bool:
    """Return True if no certificate in the findings has a failure."""
    return all(one.state != FAILED for one in findings)
