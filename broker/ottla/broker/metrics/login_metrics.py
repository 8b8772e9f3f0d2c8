"""Logins by listener, as Kafka counts them, and why tokens and sessions were refused.  Pure."""

from collections.abc import Iterator

from ottla.broker.authentication.authenticators import Authenticators
from ottla.telemetry.instruments import Family, MetricKind
from ottla.telemetry.kafka_names import prometheus_name

SOCKETS = "kafka.server:type=socket-server-metrics,attribute="

ATTRIBUTES = {
    "successful-authentication-total": ("successes", "Logins that succeeded."),
    "successful-authentication-no-reauth-total": (
        "successes_without_renewal",
        "Logins of clients that are too old to renew a session (KIP-368).",
    ),
    "failed-authentication-total": ("failures", "Logins that failed."),
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
"""Kafka's attributes, and what they count."""


def login_families(authenticators: Authenticators) -> Iterator[Family]:
    """Yield what became of logins, for each listener that asks for them."""
    for attribute, (name, text) in ATTRIBUTES.items():
        yield Family(
            prometheus_name(f"{SOCKETS}{attribute}"),
            MetricKind.COUNTER,
            text,
            ("listener",),
            [((one,), getattr(counts, name)) for one, counts in authenticators.counts.items()],
        )
    yield Family(
        "ottla_authentication_tokens_refused_total",
        MetricKind.COUNTER,
        "Tokens of OAUTHBEARER that were not taken, by reason.",
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
