"""What a node's authorizer decides, under the names of Kafka's StandardAuthorizer.  Pure.

Kafka counts each question of each request.  Here what a connection was allowed before is not asked
again until an entry changes, so that `allowed` and `request` are of the questions that were asked;
what is denied is asked, and counted, with each request.
"""

from collections.abc import Callable, Iterator

from ottla.metadata.acl_table import AclTable
from ottla.metadata.standard_authorizer import StandardAuthorizer
from ottla.model.rates import RateBetweenLooks
from ottla.model.settings.authorizer import AUTHORIZER_CLASS
from ottla.telemetry.instruments import Family, MetricKind
from ottla.telemetry.kafka_names import prometheus_name

PLUGINS = "kafka.server:type=plugins,attribute="
LABELS = ("config", "class", "role")
SPAN_MS = 60_000
"""What the rates are of, as in Kafka: a minute, and half of one at least."""
PER_MINUTE = 60

TEXTS = {
    "authorization-allowed-rate-per-minute": (
        "Questions a minute that the authorizer answered by yes, lately. What a connection was "
        "allowed before is not asked again until an entry changes."
    ),
    "authorization-denied-rate-per-minute": (
        "Questions a minute that the authorizer answered by no, lately."
    ),
    "authorization-request-rate-per-minute": "Questions a minute to the authorizer, lately.",
}


class AuthorizerMetrics:
    """The numbers of one node's authorizer; none where it has none."""

    def __init__(
        self,
        role: str,
        authorizer: StandardAuthorizer | None,
        acls: Callable[[], AclTable],
        now_ms: Callable[[], int],
    ) -> None:
        """`role` is broker or controller, `acls` has the entries; the clock is monotonic."""
        self._labels = (AUTHORIZER_CLASS, StandardAuthorizer.__name__, role)
        self._authorizer = authorizer
        self._acls = acls
        self._now_ms = now_ms
        self._rates = [RateBetweenLooks(span_ms=SPAN_MS, begun_ms=now_ms()) for _ in TEXTS]

    def families(self) -> Iterator[Family]:
        """Yield how much is decided, and how many entries there are."""
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
