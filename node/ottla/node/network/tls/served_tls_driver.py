"""TLS of one listener: its current certificate, and the users of its clients.

The certificate may be replaced while connections are open; new connections use the new certificate.
As in Kafka, a new certificate must have the subject of the old one, and all of its names. A file
that belongs to another host is therefore refused. `ssl.allow.dn.changes` and
`ssl.allow.san.changes` permit other certificates.
"""

import ssl
from collections.abc import Mapping

from ottla.model.errors import ConfigError
from ottla.model.security.acls import ANONYMOUS_USER
from ottla.model.settings.security.tls import (
    ALLOW_DN_CHANGES,
    ALLOW_SAN_CHANGES,
    KEYSTORE_LOCATION,
    SSL,
    TlsConfig,
)
from ottla.model.tls.certificate import Certificate, subject_of
from ottla.model.tls.context_driver import TlsMaterial, read_material, server_context
from ottla.model.tls.principal_mapping import NAME_LENGTH_MAX
from ottla.node.network.listener import HandshakeCounts, HandshakeFailedError


class ServedTls:
    """TLS settings and certificate of one listener; implements `ListenerTls`."""

    def __init__(self, protocol: str, config: TlsConfig, *, failure_delay_ms: int) -> None:
        """Read the listener's certificate and key. Raises ConfigError if the certificate or the key
        cannot be used."""
        self.counts = HandshakeCounts()
        self.failure_delay_ms = failure_delay_ms
        self._maps_users = protocol == SSL
        self.config = config
        self.material = read_material(config)
        self.context: ssl.SSLContext = server_context(config, self.material)

    @property
    def metrics(self) -> Mapping[str, float]:
        """Return counters of TLS handshakes, and the time when the listener's certificate expires,
        in seconds since 1970."""
        own = self.material.certificate
        return {
            "handshakes.succeeded": self.counts.successes,
            "handshakes.failed": self.counts.failures,
            "certificate.expires.seconds": 0.0 if own is None else own.not_after.timestamp(),
        }

    def user_of(self, certificate: bytes | None) -> str:
        """Return the user to which the listener's mapping rules map a client certificate (DER).

        If the client also logs in with SASL, that login determines the user instead. Raises
        HandshakeFailedError if no mapping rule applies.
        """
        if certificate is None or not self._maps_users:
            return ANONYMOUS_USER
        try:
            subject = subject_of(certificate)
        except ValueError:
            raise HandshakeFailedError("the client's certificate cannot be read") from None
        if len(subject) > NAME_LENGTH_MAX:
            raise HandshakeFailedError(
                f"the client's certificate has a name of {len(subject)} characters, of which "
                f"{NAME_LENGTH_MAX} are read"
            )
        user = self.config.principal_rules.user_of(subject)
        if user is None:
            raise HandshakeFailedError(
                f"no rule of ssl.principal.mapping.rules maps {subject} to a user"
            )
        return user

    def prepared(self, config: TlsConfig) -> "PreparedTls":
        """Read and return a new certificate and key. The current ones remain in use until `take_up`
        is called.

        Raises ConfigError if the new ones cannot be used or may not replace the current ones.
        """
        material = read_material(config)
        if material.certificate is not None and self.material.certificate is not None:
            check_compatible(config, self.material.certificate, material.certificate)
        return PreparedTls(config, material, server_context(config, material))

    def take_up(self, prepared: "PreparedTls") -> None:
        """Use a certificate that `prepared` has returned for the listener's new connections."""
        self.config = prepared.config
        self.material = prepared.material
        self.context = prepared.context


class PreparedTls:
    """TLS certificate that was read and checked, and that new connections can use."""

    __slots__ = ("config", "context", "material")

    def __init__(self, config: TlsConfig, material: TlsMaterial, context: ssl.SSLContext) -> None:
        self.config = config
        self.material = material
        self.context = context


def check_compatible(config: TlsConfig, old: Certificate, new: Certificate) -> None:
    """Raise ConfigError if a TLS certificate may not replace another one, because its subject or
    its names differ."""
    spelling = config.spelling(KEYSTORE_LOCATION)
    if not config.allow_dn_changes and new.subject.lower() != old.subject.lower():
        raise ConfigError(
            spelling,
            f"has a certificate of {new.subject} in place of one of {old.subject}; where that is "
            f"meant, set {ALLOW_DN_CHANGES}=true",
        )
    lost = sorted(set(old.names) - set(new.names))
    if lost and not config.allow_san_changes:
        raise ConfigError(
            spelling,
            f"has a certificate without {', '.join(lost)}, which the one before has; where that is "
            f"meant, set {ALLOW_SAN_CHANGES}=true",
        )
