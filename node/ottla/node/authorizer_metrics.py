"""Metrics of a node's authorizer, with the names of Kafka's StandardAuthorizer. Pure.

Kafka counts each authorization of each request. In Ottla, each connection caches allowed operations
until an ACL changes. Therefore, `allowed` and `request` count only the authorizations that were not
cached. Denials are not cached, so each denial is counted.
"""

from collections.abc import Callable, Iterator

from ottla.metadata.acl_table import AclTable
from ottla.metadata.standard_authorizer import StandardAuthorizer
from ottla.model.quotas.rates import RateBetweenLooks
from ottla.model.settings.security.authorizer import AUTHORIZER_CLASS
from ottla.telemetry.metrics.instruments import Family, MetricKind
from ottla.telemetry.metrics.kafka_names import prometheus_name

PLUGINS = "kafka.server:type=plugins,attribute="
LABELS = ("config", "class", "role")
SPAN_MS = 60_000
"""Window in ms of the rates of authorizations, as in Kafka. A rate covers between half a window and
a whole window."""
PER_MINUTE = 60

TEXTS = {
    "authorization-allowed-rate-per-minute": (
        "Authorizations per minute that the authorizer allowed, lately. A connection caches what "
        "it was allowed until an ACL changes."
    ),
    "authorization-denied-rate-per-minute": (
        "Authorizations per minute that the authorizer denied, lately."
    ),
    "authorization-request-rate-per-minute": (
        "Authorizations per minute that the authorizer decided, lately."
    ),
}


class AuthorizerMetrics:
    """Metrics of one node's authorizer. A node without an authorizer has no such metrics."""

    def __init__(
        self,
        role: str,
        authorizer: StandardAuthorizer | None,
        acls: Callable[[], AclTable],
        now_ms: Callable[[], int],
    ) -> None:
        """Create the metrics of one node's authorizer.

        `role` is broker or controller. `acls` returns the ACLs in force. `now_ms` is a monotonic
        clock in milliseconds.
        """
        self._labels = (AUTHORIZER_CLASS, StandardAuthorizer.__name__, role)
        self._authorizer = authorizer
        self._acls = acls
        self._now_ms = now_ms
        self._rates = [RateBetweenLooks(span_ms=SPAN_MS, begun_ms=now_ms()) for _ in TEXTS]

    def families(self) -> Iterator[Family]:
        """Yield metrics of the rates of authorizations, and of the number of ACLs."""
        authorizer, now_ms = self._authorizer, self._now_ms()
        counts = [0, 0, 0]
        if authorizer is not None:
            allowed, denied = authorizer.allowed_count, authorizer.denied_count
            counts = [allowed, denied, allowed + denied]
        for (attribute, text), rate, count in zip(TEXTS.items(), self._rates, counts, strict=True):
            yield self._family(attribute, text, rate.per_second(count, now_ms) * PER_MINUTE)
        yield self._family("acls-total-count", "Access control entries.", len(self._acls()))

    def _family(self, attribute: str, text: str, value: float) -> Family:
        samples = [] if self._authorizer is None else [(self._labels, value)]
        name = prometheus_name(f"{PLUGINS}{attribute}")
        return Family(name, MetricKind.GAUGE, text, LABELS, samples)
