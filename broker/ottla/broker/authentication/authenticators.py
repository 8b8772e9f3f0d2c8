"""Which listener asks its clients for what, from the settings.  Pure.

`Authenticators` gives the dispatcher a guard for each connection of a SASL listener.  It knows the
users of PLAIN from the start, those of SCRAM once it follows the metadata.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple, Protocol

from ottla.broker.authentication.jwks import KeySource, algorithms
from ottla.broker.authentication.mechanism import SaslMechanism
from ottla.broker.authentication.oauth_server import OAuthMechanism
from ottla.broker.authentication.plain import PlainMechanism
from ottla.broker.authentication.revocations import LiveSessions
from ottla.broker.authentication.sasl_session import SaslCounts, SaslRules, SaslSession
from ottla.broker.authentication.scram_server import Credentials, ScramMechanism
from ottla.broker.authentication.token_credentials import TokenCredentials
from ottla.broker.network.dispatch import Peer
from ottla.metadata.image import MetadataImage
from ottla.metadata.publisher import Publisher
from ottla.model.errors import ConfigError
from ottla.model.install_hint import install_hint
from ottla.model.oauthbearer import OAUTHBEARER
from ottla.model.scram import SCRAM_BY_NAME
from ottla.model.seams import Clock, Rng
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.oauth import OAuthRules
from ottla.model.settings.sasl import ENABLED_MECHANISMS, PLAIN, SaslConfig, SaslListener

RIGHTS_WARNING = (
    "authorizer.class.name is not set: every authenticated user has every right on this cluster"
)
"""What an operator is told at the start of a broker that has users, and no rules for them."""

NODES_WARNING = (
    "what one node says to another, a forwarded request's principal included, is not "
    "authenticated and can be forged by anyone who reaches the controllers' port"
)
"""What an operator is told at the start of a broker that has users, but does not show who it is."""

UNSECURED_WARNING = (
    "tokens without a signature are taken on {} (sasl.server.callback.handler.class): anyone "
    "who reaches this listener can be every user; this is for tests alone"
)


class KeyPlan(NamedTuple):
    """The keys of a listener's tokens, and how they are read."""

    source: KeySource
    rules: OAuthRules


class FollowedMetadata(Protocol):
    """What is needed of this node's member of the quorum."""

    @property
    def image(self) -> MetadataImage:
        """The metadata as it is now."""
        ...

    def add_publisher(self, publisher: Publisher) -> None:
        """Tell it of each change."""
        ...


class Authenticators:
    """The guards of a broker's SASL listeners."""

    def __init__(self, settings: BrokerConfig, rng: Rng, clock: Clock) -> None:
        config, token_secret = settings.sasl, settings.tokens.secret
        self._image: Callable[[], MetadataImage] | None = None
        self._rng = rng
        self._clock = clock
        self.sessions = LiveSessions(is_on=config.ends_revoked_sessions)
        """A publisher of the image that ends sessions whose credential is gone."""
        self._tokens: TokenCredentials | None = None
        if token_secret is not None:
            self._tokens = TokenCredentials(token_secret, self._known_image, clock.wall_ms)
        self.key_plans: list[KeyPlan] = []
        """What has to be read for OAUTHBEARER."""
        self.oauth: dict[str, OAuthMechanism] = {}
        """The mechanism that takes tokens, by listener."""
        self.counts = {name: SaslCounts() for name in config.listeners}
        self.guards: Mapping[str, Callable[[Peer], SaslSession]] = {
            name: partial(SaslSession, self._rules(name, listener, config))
            for name, listener in config.listeners.items()
        }
        """What makes a guard, by the listener's name."""

    def follow(self, metadata: FollowedMetadata) -> None:
        """Look users up in this metadata from now on, and end the sessions of those deleted."""
        self._image = lambda: metadata.image
        metadata.add_publisher(self.sessions)

    @property
    def metrics(self) -> Mapping[str, float]:
        """Plain counts, for DescribeNode."""
        faults = {
            f"authentication.{name.lower()}.token.{fault.value}": count
            for name, mechanism in self.oauth.items()
            for fault, count in mechanism.faults.items()
        }
        return faults | {
            f"authentication.{name.lower()}.{what}": count
            for name, counts in self.counts.items()
            for what, count in (
                ("succeeded", counts.successes),
                ("failed", counts.failures),
                ("repeated", counts.reauthentications),
                ("not.repeated", counts.reauthentication_failures),
                ("expired", counts.expired),
            )
        }

    def _rules(self, name: str, listener: SaslListener, config: SaslConfig) -> SaslRules:
        return SaslRules(
            mechanisms={one: self._mechanism(name, one, listener) for one in listener.mechanisms},
            failure_delay_ms=config.failure_delay_ms,
            session_ms_max=listener.session_ms_max,
            receive_bytes_max=listener.receive_bytes_max,
            counts=self.counts[name],
            sessions=self.sessions,
        )

    def warnings(self, *, has_authorizer: bool, shows_certificate: bool) -> Iterator[str]:
        """Yield what an operator is told at the start."""
        if self.guards and not has_authorizer:
            yield RIGHTS_WARNING
        if (self.guards or has_authorizer) and not shows_certificate:
            yield NODES_WARNING
        for name, mechanism in self.oauth.items():
            if mechanism.is_unsecured:
                yield UNSECURED_WARNING.format(name)

    def problems(self) -> Iterator[str]:
        """Yield what keeps clients from logging in, a sentence each."""
        for plan in self.key_plans:
            if plan.source.problem:
                yield plan.source.problem

    def _mechanism(self, listener_name: str, name: str, listener: SaslListener) -> SaslMechanism:
        if name == PLAIN:
            return PlainMechanism(listener.plain_users)
        if name == OAUTHBEARER:
            assert listener.oauth is not None
            found = self.oauth[listener_name] = self._oauth(listener.oauth)
            return found
        hashing = SCRAM_BY_NAME[name]
        credentials = partial(self._credentials, hashing.number)
        return ScramMechanism(hashing, credentials, self._rng, self._tokens)

    def _oauth(self, rules: OAuthRules) -> OAuthMechanism:
        source = None
        if rules.jwks_url is not None:
            _check_installed()
            source = KeySource(rules.jwks_url)
            self.key_plans.append(KeyPlan(source, rules))
        return OAuthMechanism(source, rules.claims, self._clock.wall_ms)

    def _known_image(self) -> MetadataImage | None:
        return None if self._image is None else self._image()

    def _credentials(self, number: int) -> Credentials | None:
        """Return the credentials of a SCRAM mechanism; None before the metadata is there."""
        if self._image is None:
            return None
        return self._image().scram_credentials.get(number, {})


def _check_installed() -> None:
    """Raise ConfigError where the packages are missing that look at signatures."""
    try:
        algorithms()
    except ModuleNotFoundError:
        raise ConfigError(
            ENABLED_MECHANISMS, f"has {OAUTHBEARER}, which needs PyJWT: {install_hint('oauth')}"
        ) from None
