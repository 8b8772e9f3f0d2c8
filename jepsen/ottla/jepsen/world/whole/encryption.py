"""TLS of one run: who has which certificate, and what must never be said about it.

The invariant EncryptionHolds: apart from strangers no client's handshake fails, no record is taken
for a forgery by either end, and no broker hangs up on a client.  What breaks, ends or is cut off in
the network shows as an end of the connection, never as a failure of TLS.
"""

from collections import Counter
from collections.abc import Callable

from ottla.broker.network.listener import HandshakeFailedError
from ottla.client.network.tls import HUNG_UP, TlsDialer, TlsError, TlsStream
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.rare import Rare
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.whole.authority import WorldAuthority, WorldCertificate, generation_of
from ottla.model.errors import ProtocolError
from ottla.model.seams import ByteStream
from ottla.model.settings.tls import (
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

INVARIANT = "EncryptionHolds"
ENCRYPTED_LISTENER = "SSL"
STRANGER = "stranger"
"""The host from which those come whom no broker is to serve."""

JUDGE = "judge"
"""The host from which the run itself asks."""

SHARE = 4
"""One run out of this number has encrypted listeners, of subjects that are not about them."""


def encryption_chance(chance: Chance, *, is_demanded: bool) -> Chance | None:
    """Return what a run's TLS is drawn from; None where it has none.

    It is a stream of its own, so that the choices of runs without TLS stay what they were.
    """
    found = chance.stream("tls")
    return found if found.below(SHARE) == 0 or is_demanded else None


class Encryption:
    """Certificates and settings of one run, and what went wrong with TLS in it."""

    def __init__(self, chance: Chance, rare: Rare, on_broken: Callable[[str, str], None]) -> None:
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
        """Return the settings of a broker's listeners, as its file has them."""
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
        """Return one of a broker's certificates."""
        return self._authority.issue(host, [host], generation=generation)

    def certificates(self, host: str) -> "OfferedCertificates":
        """Return what a broker was offered."""
        return self._certificates.setdefault(host, OfferedCertificates())

    @staticmethod
    def dynamic_settings(certificate: WorldCertificate) -> dict[str, str]:
        """Return the settings that give a running broker another certificate."""
        prefix = f"listener.name.{ENCRYPTED_LISTENER.lower()}."
        return {prefix + CERTIFICATE_CHAIN: certificate.chain, prefix + KEY: certificate.key}

    def dialer(self, host: str) -> TlsDialer:
        """Return how a client of the run connects."""
        return WatchedDialer(
            self._client(self._authority, self._authority, host), host, self.break_
        )

    def stranger_dialer(self) -> TlsDialer:
        """Return how a stranger connects of whom nothing is wrong but what it does then."""
        return TlsDialer(self._client(self._authority, self._authority, STRANGER))

    def misled_dialer(self) -> TlsDialer:
        """Return how a client connects that trusts another CA than the brokers'."""
        return TlsDialer(self._client(self._authority, self._other_authority, STRANGER))

    def forged_dialer(self) -> TlsDialer:
        """Return how a client connects whose certificate is of a CA that no broker trusts."""
        return TlsDialer(self._client(self._other_authority, self._authority, STRANGER))

    def expired_dialer(self) -> TlsDialer:
        """Return how a client connects whose certificate has expired."""
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

    # ---- what servers and clients see

    def on_handshake(self, host: str) -> None:
        """Note that a client and a broker came to terms."""
        self.counts["handshakes"] += 1
        if host not in (JUDGE, STRANGER):
            self.counts["handshakes under load"] += 1

    def on_overdue(self) -> None:
        """Note that a broker ended a handshake by its deadline."""
        self._rare.sometimes("a handshake takes too long")

    def on_refused(self, host: str, error: HandshakeFailedError) -> None:
        """Note that a broker refused a client."""
        self.counts["handshakes refused"] += 1
        if host == STRANGER:
            self._rare.sometimes("a stranger is refused")
        else:
            self.break_(f"a broker refused {host}: {error.where}")

    def on_bad_input(self, host: str, error: ProtocolError) -> None:
        """Note that a broker took what a client sent for nonsense."""
        if host != STRANGER:
            self.break_(f"a broker did not understand {host}: {error.where}")

    def on_hung_up(self, host: str, why: str) -> None:
        """Note that a broker hung up on a client that was there."""
        if host != STRANGER:
            self.break_(f"a broker hung up on {host}: {why}")

    def break_(self, detail: str) -> None:
        """Note what must not be; the first is the run's verdict."""
        self._on_broken(INVARIANT, detail)


class OfferedCertificates:
    """Which of its certificates a broker may show, by what was acknowledged."""

    def __init__(self) -> None:
        self._offered = self._acknowledged = 1
        self._maybe: set[int] = set()
        """Those without an answer: they may be taken up at any later time."""

    def offer(self) -> int:
        """Return the next one's number."""
        self._offered += 1
        self._maybe.add(self._offered)
        return self._offered

    def acknowledge(self, number: int) -> None:
        """Note that the broker has taken it up."""
        self._maybe.discard(number)
        self._acknowledged = number

    def check(self, host: str, shown: int) -> None:
        """Raise Violation where a broker shows another one."""
        if shown != self._acknowledged and shown not in self._maybe:
            raise Violation(
                "NewCertificateServed",
                f"{host} shows its certificate {shown}, and {self._acknowledged} was acknowledged",
            )


class WatchedDialer(TlsDialer):
    """Encrypts, and notes failures that no network explains."""

    def __init__(self, config: TlsConfig, host: str, on_failure: Callable[[str], None]) -> None:
        super().__init__(config)
        self._host = host
        self._on_failure = on_failure

    def over(self, stream: ByteStream, host: str) -> TlsStream:
        """Return an encrypted stream that tells of its failures."""
        found = WatchedStream(stream, self.context, host)
        found.on_failure = lambda said: self._on_failure(f"{self._host} to {host}: {said}")
        return found


class WatchedStream(TlsStream):
    """An encrypted stream whose failures are noted."""

    __slots__ = ("on_failure",)
    on_failure: Callable[[str], None]

    @property
    def generation(self) -> int:
        """Which of its certificates the server has shown."""
        shown = self._tls.getpeercert(binary_form=True)
        assert shown is not None
        return generation_of(shown)

    def sealed(self, data: bytes) -> bytes:
        """Return the record of data, which is not sent."""
        self._tls.write(data)
        return self._sent.read()

    async def shake_hands(self) -> None:
        """Come to terms with the server."""
        try:
            await super().shake_hands()
        except TlsError as error:
            if error.sentence != HUNG_UP:
                self.on_failure(error.sentence)
            raise

    async def send_all(self, data: bytes | bytearray | memoryview, /) -> None:
        """Send all of it."""
        try:
            await super().send_all(data)
        except TlsError as error:
            self.on_failure(error.sentence)
            raise

    async def receive_into(self, room: memoryview, /) -> int:
        """Fill room with what has come."""
        try:
            return await super().receive_into(room)
        except TlsError as error:
            self.on_failure(error.sentence)
            raise
