"""Logins and handshakes of listeners, under Kafka's names."""

from typing import Any

from ottla.broker.metrics.login_metrics import login_families
from ottla.node.authentication.sasl_session import SaslCounts


class Authenticators:
    """One listener that asks for logins."""

    def __init__(self) -> None:
        self.counts = {"USERS": SaslCounts(successes=5, failures=1, reauthentications=2)}
        self.oauth: dict[str, Any] = {}
        self.sessions = type("Sessions", (), {"ended_count": 0})


def test_handshakes_count_as_kafka_counts_them() -> None:
    authenticators: Any = Authenticators()
    network = {
        "network.connections": 3.0,
        "tls.users.handshakes.succeeded": 9.0,
        "tls.users.handshakes.failed": 3.0,
        "tls.tls.handshakes.succeeded": 7.0,
        "tls.tls.handshakes.failed": 2.0,
    }
    values = {
        family.name.removeprefix("kafka_server_socket_server_metrics_"): dict(
            filter(None, family.samples)
        )
        for family in login_families(authenticators, network)
    }
    # Behind a handshake the client still has to log in.
    assert values["successful_authentication_total"] == {("USERS",): 5, ("TLS",): 7}
    assert values["failed_authentication_total"] == {("USERS",): 1 + 3, ("TLS",): 2}
    assert values["successful_reauthentication_total"] == {("USERS",): 2, ("TLS",): 0}
