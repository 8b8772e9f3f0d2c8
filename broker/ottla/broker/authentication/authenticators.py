"""Which listener asks its clients for what, from the settings.  Pure.

`Authenticators` gives the dispatcher a guard for each connection of a SASL listener.  It knows the
users of PLAIN from the start, those of SCRAM once it follows the metadata.
"""

from collections.abc import Callable, Mapping
from functools import partial

from ottla.broker.authentication.mechanism import SaslMechanism
from ottla.broker.authentication.plain import PlainMechanism
from ottla.broker.authentication.sasl_session import SaslCounts, SaslRules, SaslSession
from ottla.broker.authentication.scram_server import Credentials, ScramMechanism
from ottla.broker.network.dispatch import Peer
from ottla.metadata.image import MetadataImage
from ottla.model.scram import SCRAM_BY_NAME
from ottla.model.seams import Rng
from ottla.model.settings.sasl import PLAIN, SaslConfig, SaslListener

WARNING = (
    "authorisation is not served yet: every authenticated user has every right on this cluster, "
    "and what one node says to another, a forwarded request's principal included, is not "
    "authenticated and can be forged"
)
"""What an operator is told at the start of a broker that has users."""


class Authenticators:
    """The guards of a broker's SASL listeners."""

    def __init__(self, config: SaslConfig, rng: Rng) -> None:
        self._image: Callable[[], MetadataImage] | None = None
        self._rng = rng
        self.counts = {name: SaslCounts() for name in config.listeners}
        self.guards: Mapping[str, Callable[[Peer], SaslSession]] = {
            name: partial(SaslSession, self._rules(name, listener, config))
            for name, listener in config.listeners.items()
        }
        """What makes a guard, by the listener's name."""

    def follow(self, image: Callable[[], MetadataImage]) -> None:
        """Look users up in this image from now on."""
        self._image = image

    @property
    def metrics(self) -> Mapping[str, float]:
        """Plain counts, for DescribeNode."""
        return {
            f"authentication.{name.lower()}.{what}": count
            for name, counts in self.counts.items()
            for what, count in (
                ("succeeded", counts.successes),
                ("failed", counts.failures),
                ("repeated", counts.reauthentications),
                ("expired", counts.expired),
            )
        }

    def _rules(self, name: str, listener: SaslListener, config: SaslConfig) -> SaslRules:
        return SaslRules(
            mechanisms={one: self._mechanism(one, listener) for one in listener.mechanisms},
            failure_delay_ms=config.failure_delay_ms,
            session_ms_max=listener.session_ms_max,
            receive_bytes_max=listener.receive_bytes_max,
            counts=self.counts[name],
        )

    def _mechanism(self, name: str, listener: SaslListener) -> SaslMechanism:
        if name == PLAIN:
            return PlainMechanism(listener.plain_users)
        hashing = SCRAM_BY_NAME[name]
        return ScramMechanism(hashing, partial(self._credentials, hashing.number), self._rng)

    def _credentials(self, number: int) -> Credentials | None:
        """Return the credentials of a SCRAM mechanism; None before the metadata is there."""
        if self._image is None:
            return None
        return self._image().scram_credentials.get(number, {})
