"""Builds the authentication rules of each listener from the settings. Pure.

`Authenticators` provides the dispatcher with a guard for each connection on a SASL listener. The
guard authenticates the client. The users of PLAIN are known from the start. The users of SCRAM are
known once `Authenticators` follows the metadata.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple, Protocol

from ottla.metadata.image import MetadataImage
from ottla.metadata.publisher import Publisher
from ottla.model.errors import ConfigError
from ottla.model.install_hint import install_hint
from ottla.model.seams import Clock, Rng
from ottla.model.security.oauthbearer import OAUTHBEARER
from ottla.model.security.scram import SCRAM_BY_NAME
from ottla.model.settings.security.listener_settings import ListenerSettings
from ottla.model.settings.security.oauth import OAuthRules
from ottla.model.settings.security.sasl import ENABLED_MECHANISMS, PLAIN, SaslConfig, SaslListener
from ottla.node.authentication.jwks import KeySource, algorithms
from ottla.node.authentication.mechanism import SaslMechanism
from ottla.node.authentication.oauth_server import OAuthMechanism
from ottla.node.authentication.plain import PlainMechanism
from ottla.node.authentication.revocations import LiveSessions
from ottla.node.authentication.sasl_session import SaslCounts, SaslRules, SaslSession
from ottla.node.authentication.scram_server import Credentials, ScramMechanism
from ottla.node.authentication.token_credentials import TokenCredentials
from ottla.node.network.dispatch import Peer

RIGHTS_WARNING = (
    "authorizer.class.name is not set: every authenticated user has every right on this cluster"
)
"""Warning that a broker logs at startup if it authenticates users but has no authorizer."""

NODES_WARNING = (
    "what one node says to another, a forwarded request's principal included, is not "
    "authenticated and can be forged by anyone who reaches the controllers' port"
)
"""Warning that a broker logs at startup if it authenticates users but has no TLS certificate for
the traffic between nodes."""

UNSECURED_WARNING = (
    "tokens without a signature are taken on {} (sasl.server.callback.handler.class): anyone "
    "who reaches this listener can be every user; this is for tests alone"
)


class KeyPlan(NamedTuple):
    """Source of the keys that verify the tokens of a listener's clients, and the rules for reading
    this source."""

    source: KeySource
    rules: OAuthRules


class FollowedMetadata(Protocol):
    """Interface of the cluster's metadata that this node follows as a member of the quorum."""

    @property
    def image(self) -> MetadataImage:
        """Current metadata image of the cluster."""
        ...

    def add_publisher(self, publisher: Publisher) -> None:
        """Add a metadata publisher, which is then called with each change of the metadata."""
        ...


class Authenticators:
    """Factory of the guards of connections to SASL listeners. A guard receives a connection's
    frames until its client has authenticated."""

    def __init__(self, settings: ListenerSettings, rng: Rng, clock: Clock) -> None:
        config, token_secret = settings.sasl, settings.tokens.secret
        self._image: Callable[[], MetadataImage] | None = None
        self._rng = rng
        self._clock = clock
        self.sessions = LiveSessions(is_on=config.ends_revoked_sessions)
        """Metadata publisher that ends client sessions whose credential was deleted."""
        self._tokens: TokenCredentials | None = None
        if token_secret is not None:
            self._tokens = TokenCredentials(token_secret, self._known_image, clock.wall_ms)
        self.key_plans: list[KeyPlan] = []
        """Sources of the keys with which the OAUTHBEARER mechanisms verify tokens. `KeyReader`
        reads them."""
        self.oauth: dict[str, OAuthMechanism] = {}
        """OAUTHBEARER mechanisms by listener name. Only listeners with this mechanism have an
        entry."""
        self.counts = {name: SaslCounts() for name in config.listeners}
        self.guards: Mapping[str, Callable[[Peer], SaslSession]] = {
            name: partial(SaslSession, self._rules(name, listener, config))
            for name, listener in config.listeners.items()
        }
        """Factories of guards, by listener name. A guard authenticates the client of one connection
        before its requests are dispatched."""

    def follow(self, metadata: FollowedMetadata) -> None:
        """Start to look up users in `metadata`. Sessions end when their user is later deleted from
        the metadata."""
        self._image = lambda: metadata.image
        metadata.add_publisher(self.sessions)

    @property
    def metrics(self) -> Mapping[str, float]:
        """Return the counters of logins by their names in DescribeNode responses."""
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
        """Yield the warnings about insecure settings to log at broker startup."""
        if self.guards and not has_authorizer:
            yield RIGHTS_WARNING
        if (self.guards or has_authorizer) and not shows_certificate:
            yield NODES_WARNING
        for name, mechanism in self.oauth.items():
            if mechanism.is_unsecured:
                yield UNSECURED_WARNING.format(name)

    def problems(self) -> Iterator[str]:
        """Yield a description of each present problem that prevents clients from logging in."""
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
        """Return the users' credentials for a SCRAM mechanism, or None before the metadata is
        available. `number` identifies the mechanism in the metadata."""
        if self._image is None:
            return None
        return self._image().scram_credentials.get(number, {})


def _check_installed() -> None:
    """Raise ConfigError if the Python packages that verify signatures are not installed."""
    try:
        algorithms()
    except ModuleNotFoundError:
        raise ConfigError(
            ENABLED_MECHANISMS, f"has {OAUTHBEARER}, which needs PyJWT: {install_hint('oauth')}"
        ) from None
