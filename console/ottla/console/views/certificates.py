"""Page of certificates. It shows each broker's listener as a client sees it: encryption,
certificate and login, and the problems of the listener."""

from datetime import UTC, datetime

from ottla.client.network.tls import TLS
from ottla.console.absences import CLUSTER_DESCRIBE, Absence, attempt
from ottla.console.page_types import Page, PageRequest, PageView
from ottla.console.sheets import (
    Cell,
    Column,
    NotePart,
    SheetPart,
    TablePart,
    badge,
    code,
    sheet_view,
    text,
    when,
)
from ottla.console.views.security import security_links
from ottla.insight.facts.listeners_driver import look_at_listeners
from ottla.insight.rules.listener_findings import ListenerFinding, judge
from ottla.model.settings.security.tls import TlsConfig

BROKERS_MAX = 50
"""Maximum number of listeners that one page examines. Each examination opens five short
connections."""
CHECK_S = 25.0
TONES = {"ok": "good", "warning": "warning", "failed": "bad"}
COLUMNS = (
    Column(title="Address"),
    Column(title="State"),
    Column(title="Encryption"),
    Column(title="Certificate"),
    Column(title="Names"),
    Column(title="Valid until"),
    Column(title="Login"),
    Column(title="What to do"),
)


async def certificates(request: PageRequest) -> PageView:
    """Return the page that shows the security of the brokers' listeners. The cluster itself reports
    the addresses of the listeners."""
    found = await attempt("brokers", request.admin.describe_cluster(), CLUSTER_DESCRIBE)
    parts: list[SheetPart] = [security_links("Certificates")]
    if isinstance(found, Absence):
        return sheet_view("Certificates", [*parts, found.part(request.user)])
    addresses = [(one.host, one.port) for one in found.brokers[:BROKERS_MAX]]
    dialer = TLS.get()
    config = TlsConfig() if dialer is None else dialer.config
    observed = await attempt(
        "listeners", look_at_listeners(addresses, config), CLUSTER_DESCRIBE, timeout_s=CHECK_S
    )
    if isinstance(observed, Absence):
        return sheet_view("Certificates", [*parts, observed.part(request.user)])
    now = datetime.fromtimestamp(request.now_ms / 1_000, UTC)
    rows = tuple(_row(judge(one, now)) for one in observed)
    parts.append(TablePart(title="Listeners of the brokers", columns=COLUMNS, rows=rows))
    if len(found.brokers) > BROKERS_MAX:
        left = len(found.brokers) - BROKERS_MAX
        parts.append(NotePart(text=f"{left} further brokers are left out."))
    return sheet_view(
        "Certificates",
        parts,
        lead="Each listener is examined as a client would: no password is sent.",
    )


def _row(finding: ListenerFinding) -> tuple[Cell, ...]:
    facts, certificate = finding.facts, finding.facts.certificate
    encryption = f"{facts.tls_version} {facts.cipher}" if facts.tls_version else "none"
    until_ms = None
    if certificate is not None:
        until_ms = round(certificate.not_after.timestamp() * 1_000)
    return (
        code(facts.address),
        badge(finding.state, TONES.get(finding.state, "warning")),
        text(encryption),
        code(None if certificate is None else certificate.subject),
        text(", ".join(certificate.names) if certificate is not None else ""),
        when(until_ms),
        text(facts.login),
        text("; ".join(finding.cures)),
    )


PAGES = (
    Page(
        name="certificates",
        path="/certificates",
        title="Certificates",
        command="ottla doctor listeners",
        view=certificates,
        section="Security",
        key="f",
    ),
)
