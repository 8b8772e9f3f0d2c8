"""Computes the metrics of logins by listener: Kafka's counters, and the reasons for which tokens
and sessions were refused. Pure.

As in Kafka, a failed TLS handshake counts as a failed authentication. On a listener without SASL, a
successful handshake counts as a successful authentication.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from ottla.broker.metrics.tls_metrics import OUTCOMES, tls_counts
from ottla.node.authentication.authenticators import Authenticators
from ottla.telemetry.metrics.instruments import Family, MetricKind
from ottla.telemetry.metrics.kafka_names import prometheus_name

SOCKETS = "kafka.server:type=socket-server-metrics,attribute="

SUCCESSES = "successful-authentication-total"
FAILURES = "failed-authentication-total"

ATTRIBUTES = {
    SUCCESSES: ("successes", "Successful logins, or TLS handshakes on a listener without logins."),
    "successful-authentication-no-reauth-total": (
        "successes_without_renewal",
        "Logins of clients whose version cannot renew a session (KIP-368).",
    ),
    FAILURES: ("failures", "Logins and TLS handshakes that failed."),
    "successful-reauthentication-total": ("reauthentications", "Sessions that were renewed."),
    "failed-reauthentication-total": (
        "reauthentication_failures",
        "Sessions whose renewal failed.",
    ),
    "expired-connections-killed-count": (
        "expired",
        "Connections closed because their session was not renewed.",
    ),
}
"""For each counter of logins, by its name: the attribute in Kafka's MBean and the description."""


def login_families(
    authenticators: Authenticators, network: Mapping[str, float]
) -> Iterator[Family]:
    """Yield the numbers of logins by outcome as metric families, for each listener with SASL or
    TLS.

    `network` contains the counters of the socket server.
    """
    by_listener: dict[str, Counter[str]] = {}
    for listener, counts in authenticators.counts.items():
        by_listener[listener] = Counter(
            {attribute: getattr(counts, name) for attribute, (name, _) in ATTRIBUTES.items()}
        )
    for listener, handshakes in tls_counts(network).items():
        found = by_listener.setdefault(listener, Counter())
        if listener not in authenticators.counts:
            found[SUCCESSES] += int(handshakes[OUTCOMES["succeeded"]])
        found[FAILURES] += int(handshakes[OUTCOMES["failed"]])
    for attribute, (_, text) in ATTRIBUTES.items():
        yield Family(
            prometheus_name(f"{SOCKETS}{attribute}"),
            MetricKind.COUNTER,
            text,
            ("listener",),
            [((listener,), found[attribute]) for listener, found in by_listener.items()],
        )
    yield Family(
        "ottla_authentication_tokens_refused_total",
        MetricKind.COUNTER,
        "Rejected tokens of OAUTHBEARER, by reason.",
        ("listener", "reason"),
        [
            ((name, fault.value), count)
            for name, mechanism in authenticators.oauth.items()
            for fault, count in mechanism.faults.items()
        ],
    )
    yield Family(
        "ottla_authentication_sessions_revoked_total",
        MetricKind.COUNTER,
        "Connections closed because their user or delegation token was deleted.",
        (),
        (((), authenticators.sessions.ended_count),),
    )
