"""TLS of one simulated run: the certificates, and the failures that must not happen.

Invariant: EncryptionHolds. Except for clients that must be refused, no client's handshake fails,
neither end rejects a record as forged, and no broker disconnects a client. An error or a cut of the
network appears as an end of the connection, never as a TLS failure.
"""

from collections import Counter
from collections.abc import Callable

from ottla.client.network.tls import HUNG_UP, TlsDialer, TlsError, TlsStream
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.whole.authority import WorldAuthority, WorldCertificate, generation_of
from ottla.model.errors import ProtocolError
from ottla.model.seams import ByteStream
from ottla.model.settings.security.tls import (
    CERTIFICATE_CHAIN,
    KEY,
    NONE,
    REQUESTED,
    REQUIRED,
    TLS_1_2,
    TLS_1_3,
    VERSIONS,
    TlsConfig,
)
from ottla.node.network.listener import HandshakeFailedError

INVARIANT = "EncryptionHolds"
ENCRYPTED_LISTENER = "SSL"
STRANGER = "stranger"
"""Host name of clients that brokers must refuse."""

JUDGE = "judge"
"""Host name from which the simulator itself sends requests to check the cluster."""

SHARE = 4
"""Average number of runs per run with encrypted listeners, for subjects other than TLS."""


def encryption_chance(chance: Chance, *, is_demanded: bool) -> Chance | None:
    """Return the stream of random choices for a run's TLS, or None if the run has no TLS.
    `is_demanded` is True if the run must have TLS.

    The stream is separate, so that runs without TLS keep their random choices.
    """
    found = chance.stream("tls")
    return found if found.below(SHARE) == 0 or is_demanded else None


class Encryption:
    """Certificates and TLS settings of one simulated run, and its TLS failures."""

    def __init__(
        self, chance: Chance, rare: RareStates, on_broken: Callable[[str, str], None]
    ) -> None:
        self._rare = rare
        self._on_broken = on_broken
        self._authority = WorldAuthority("ca")
        self._other_authority = WorldAuthority("other ca")
        self.versions: tuple[str, ...] = chance.pick((VERSIONS, (TLS_1_3,), (TLS_1_2,)))
        self.client_auth = chance.pick((NONE, REQUESTED, REQUIRED))
        self.handshake_cost_ms = chance.pick((1.0, 3.0, 15.0))
        self.split_p = chance.pick((0.05, 0.3, 0.0))
        self.counts: Counter[str] = Counter()
        self._certificates: dict[str, OfferedCertificates] = {}
        self._common = {
            "ssl.truststore.certificates": self._authority.certificate,
            "ssl.enabled.protocols": ",".join(self.versions),
        }

    def broker_settings(self, host: str, port: int) -> dict[str, str]:
        """Return the TLS settings of a broker's listeners, in the form of its configuration
        file."""
        own = self.certificate(host, 1)
        return {
            **self._common,
            "listeners": f"{ENCRYPTED_LISTENER}://{host}:{port}",
            "inter.broker.listener.name": ENCRYPTED_LISTENER,
            "ssl.client.auth": self.client_auth,
            "ssl.keystore.certificate.chain": own.chain,
            "ssl.keystore.key": own.key,
        }

    def certificate(self, host: str, generation: int) -> WorldCertificate:
        """Return the certificate number `generation` of the broker on `host`."""
        return self._authority.issue(host, [host], generation=generation)

    def certificates(self, host: str) -> "OfferedCertificates":
        """Return the record of the certificates that were set for the broker on `host`."""
        return self._certificates.setdefault(host, OfferedCertificates())

    @staticmethod
    def dynamic_settings(certificate: WorldCertificate) -> dict[str, str]:
        """Return the settings that replace the certificate of a running broker by `certificate`."""
        prefix = f"listener.name.{ENCRYPTED_LISTENER.lower()}."
        return {prefix + CERTIFICATE_CHAIN: certificate.chain, prefix + KEY: certificate.key}

    def dialer(self, host: str) -> TlsDialer:
        """Return the TLS dialer of a regular client on `host`."""
        return WatchedDialer(
            self._client(self._authority, self._authority, host), host, self.break_
        )

    def stranger_dialer(self) -> TlsDialer:
        """Return the TLS dialer of a client with a valid certificate that misbehaves after
        connecting."""
        return TlsDialer(self._client(self._authority, self._authority, STRANGER))

    def misled_dialer(self) -> TlsDialer:
        """Return the TLS dialer of a client that does not trust the CA of the brokers'
        certificates, but another CA."""
        return TlsDialer(self._client(self._authority, self._other_authority, STRANGER))

    def forged_dialer(self) -> TlsDialer:
        """Return the TLS dialer of a client with a certificate of a CA that no broker trusts."""
        return TlsDialer(self._client(self._other_authority, self._authority, STRANGER))

    def expired_dialer(self) -> TlsDialer:
        """Return the TLS dialer of a client with an expired certificate."""
        own = self._authority.issue(STRANGER, is_expired=True)
        return TlsDialer(self._client_with(own, self._authority))

    def _client(self, issuer: WorldAuthority, trusted: WorldAuthority, host: str) -> TlsConfig:
        return self._client_with(issuer.issue(host), trusted)

    def _client_with(self, own: WorldCertificate, trusted: WorldAuthority) -> TlsConfig:
        return TlsConfig(
            certificate_chain=own.chain,
            key=own.key,
            trusted_certificates=trusted.certificate,
            versions=self.versions,
        )

    # ---- events at servers and clients

    def on_handshake(self, host: str) -> None:
        """Record a completed TLS handshake of the client on `host`."""
        self.counts["handshakes"] += 1
        if host not in (JUDGE, STRANGER):
            self.counts["handshakes under load"] += 1

    def on_overdue(self) -> None:
        """Record that a broker ended a TLS handshake at its deadline."""
        self._rare.sometimes("a handshake takes too long")

    def on_refused(self, host: str, error: HandshakeFailedError) -> None:
        """Record that a broker refused a TLS client. `error` is the reason."""
        self.counts["handshakes refused"] += 1
        if host == STRANGER:
            self._rare.sometimes("a stranger is refused")
        else:
            self.break_(f"a broker refused {host}: {error.where}")

    def on_bad_input(self, host: str, error: ProtocolError) -> None:
        """Record that a broker received data that it could not parse from the client on `host`."""
        if host != STRANGER:
            self.break_(f"a broker did not understand {host}: {error.where}")

    def on_hung_up(self, host: str, why: str) -> None:
        """Record that a broker disconnected a running client, for the reason `why`."""
        if host != STRANGER:
            self.break_(f"a broker hung up on {host}: {why}")

    def break_(self, detail: str) -> None:
        """Record a violation of EncryptionHolds. The first violation becomes the outcome of the
        run."""
        self._on_broken(INVARIANT, detail)


class OfferedCertificates:
    """The certificates that one broker may present, according to the acknowledged changes of its
    settings."""

    def __init__(self) -> None:
        self._offered = self._acknowledged = 1
        self._maybe: set[int] = set()
        """Numbers of the certificates that were set without a response from the broker. They may
        become active at any later time."""

    def offer(self) -> int:
        """Choose another certificate for the broker, and return the number of this certificate.
        From then on the broker may present it."""
        self._offered += 1
        self._maybe.add(self._offered)
        return self._offered

    def acknowledge(self, number: int) -> None:
        """Record that the broker acknowledged the change to the certificate with this number."""
        self._maybe.discard(number)
        self._acknowledged = number

    def check(self, host: str, shown: int) -> None:
        """Raise Violation if a broker presented a certificate, numbered `shown`, that it may not
        present."""
        if shown != self._acknowledged and shown not in self._maybe:
            raise Violation(
                "NewCertificateServed",
                f"{host} shows its certificate {shown}, and {self._acknowledged} was acknowledged",
            )


class WatchedDialer(TlsDialer):
    """Dialer (opener of TLS connections) whose streams record TLS failures that no network fault
    explains."""

    def __init__(self, config: TlsConfig, host: str, on_failure: Callable[[str], None]) -> None:
        super().__init__(config)
        self._host = host
        self._on_failure = on_failure

    def over(self, stream: ByteStream, host: str) -> TlsStream:
        """Return an encrypted stream to `host` over `stream`, which records its TLS failures."""
        found = WatchedStream(stream, self.context, host)
        found.on_failure = lambda said: self._on_failure(f"{self._host} to {host}: {said}")
        return found


class WatchedStream(TlsStream):
    """An encrypted stream that records TLS failures that no network fault explains."""

    __slots__ = ("on_failure",)
    on_failure: Callable[[str], None]

    @property
    def generation(self) -> int:
        """Generation (number) of the certificate that the server presented."""
        shown = self._tls.getpeercert(binary_form=True)
        assert shown is not None
        return generation_of(shown)

    def sealed(self, data: bytes) -> bytes:
        """Return the TLS record that encrypts `data`, without sending it."""
        self._tls.write(data)
        return self._sent.read()

    async def shake_hands(self) -> None:
        """Perform the TLS handshake with the server."""
        try:
            await super().shake_hands()
        except TlsError as error:
            if error.sentence != HUNG_UP:
                self.on_failure(error.sentence)
            raise

    async def send_all(self, data: bytes | bytearray | memoryview, /) -> None:
        """Encrypt and send all data."""
        try:
            await super().send_all(data)
        except TlsError as error:
            self.on_failure(error.sentence)
            raise

    async def receive_into(self, room: memoryview, /) -> int:
        """Receive and decrypt data into a buffer. Returns the number of bytes."""
        try:
            return await super().receive_into(room)
        except TlsError as error:
            self.on_failure(error.sentence)
            raise
