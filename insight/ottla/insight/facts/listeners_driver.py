"""Checks the encryption, certificates and authentication of listeners by connecting to them as a
client.

The checks connect to each address several times, because each connection answers only one question:
Is it encrypted? Is the certificate accepted? Which SASL mechanisms are offered? Are clients served
without authentication? No credentials are ever sent.
"""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass, replace

import trio

from ottla.client.network.connection import BrokerConnection, ConnectionLostError, open_stream
from ottla.client.network.login import HANDSHAKE_VERSION, LOGIN
from ottla.client.network.tls import TLS, TlsDialer, TlsError, sentence_of
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.settings.security.tls import TlsConfig
from ottla.model.tls.certificate import Certificate, read_certificate
from ottla.wire.messages.metadata_request import MetadataRequest
from ottla.wire.messages.metadata_response import MetadataResponse
from ottla.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from ottla.wire.messages.sasl_handshake_response import SaslHandshakeResponse

TIMEOUT_S = 5.0
"""Maximum seconds that each check of a listener's security takes."""
NO_MECHANISM = "OTTLA-DOCTOR"
"""Name of a SASL mechanism that does not exist. A broker refuses it with a list of its enabled
mechanisms."""
ASKS_CERTIFICATE = "it asks for a client's certificate"
NAMES_MAX = 20
"""Maximum number of SASL mechanisms that are shown for one listener address. The server there may
be any program, and may list any number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerFacts:
    """Observations of one listener address, as a client sees them."""

    address: str
    problem: str = ""
    """Reason why the listener address does not respond as a broker. Empty if it responds as a
    broker."""
    tls_version: str = ""
    """TLS version that the listener negotiated; empty without encryption."""
    cipher: str = ""
    certificate: Certificate | None = None
    trust_problem: str = ""
    """Reason why a client with the given settings refuses the listener's certificate. Empty if the
    client accepts it."""
    mechanisms: tuple[str, ...] = ()
    """SASL mechanisms that the listener offers."""
    asks_certificate: bool = False
    """True if the listener refuses a client without a certificate."""
    serves_strangers: bool = False
    """True if the listener serves a request without a login and without a client certificate."""

    @property
    def login(self) -> str:
        """Authentication that the listener requires of clients, as text."""
        ways = [*self.mechanisms, *(["client certificate"] if self.asks_certificate else [])]
        if ways:
            return ", ".join(ways)
        return "none" if self.serves_strangers else "-"


class _UnverifiedDialer(TlsDialer):
    """TLS client that connects to any server without verifying it, in order to examine its
    certificate. It sends no secret."""

    @property
    def context(self) -> ssl.SSLContext:
        """TLS context that does not verify the server's certificate."""
        context = super().context
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context


async def look_at_listeners(
    addresses: Sequence[tuple[str, int]], config: TlsConfig
) -> list[ListenerFacts]:
    """Check the listener at each address as a client sees it. Returns the observations in the order
    of the addresses.

    `config` has the trusted CAs and the client certificate to present.
    """
    found: dict[int, ListenerFacts] = {}

    async def look(index: int, host: str, port: int) -> None:
        # The login is a context variable of this task: all requests here are made without it.
        LOGIN.set(None)
        TLS.set(None)
        found[index] = await _look_at(host, port, config)

    async with trio.open_nursery() as nursery:
        for index, (host, port) in enumerate(addresses):
            nursery.start_soon(look, index, host, port)
    return [found[index] for index in range(len(addresses))]


async def _look_at(host: str, port: int, config: TlsConfig) -> ListenerFacts:
    facts = ListenerFacts(address=f"{host}:{port}")
    unverified = _UnverifiedDialer(config)
    try:
        facts = await _encryption(facts, host, port, unverified)
    except (OSError, trio.BrokenResourceError, trio.TooSlowError):
        pass  # There is no TLS or no server; the next question shows which.
    else:
        facts = replace(facts, trust_problem=await _trust_problem(host, port, config))
    tls = unverified if facts.tls_version else None
    try:
        return await _logins(facts, host, port, tls, shows_certificate=config.has_certificate)
    except OttlaError as error:
        if ASKS_CERTIFICATE in str(error):
            return replace(facts, asks_certificate=True)
        return replace(facts, problem=str(error))


async def _encryption(
    facts: ListenerFacts, host: str, port: int, dialer: TlsDialer
) -> ListenerFacts:
    """Perform a TLS handshake with a listener, and return the listener's description with the
    observations added. Raises an error if the handshake fails."""
    with trio.fail_after(TIMEOUT_S):
        stream = trio.SSLStream(
            await trio.open_tcp_stream(host, port), dialer.context, server_hostname=host
        )
        try:
            await stream.do_handshake()
            der = stream.getpeercert(binary_form=True)
            name, version, _ = stream.cipher()
            return replace(
                facts,
                tls_version=stream.version() or version,
                cipher=name,
                certificate=read_certificate(der) if der else None,
            )
        except ValueError:
            return replace(facts, tls_version=version, cipher=name)
        finally:
            await trio.aclose_forcefully(stream)


async def _trust_problem(host: str, port: int, config: TlsConfig) -> str:
    """Return the reason why a client with these settings refuses the server's certificate, or an
    empty text if the certificate is accepted."""
    try:
        with trio.fail_after(TIMEOUT_S):
            stream = await trio.open_tcp_stream(host, port)
            try:
                wrapped = trio.SSLStream(stream, TlsDialer(config).context, server_hostname=host)
                await wrapped.do_handshake()
            finally:
                await trio.aclose_forcefully(stream)
    except trio.BrokenResourceError as error:
        cause = error.__cause__
        if isinstance(cause, ssl.SSLError):
            return sentence_of(cause, host)
        return "it hung up within the TLS handshake"
    except (OSError, trio.TooSlowError) as error:
        return f"a second handshake fails: {error}"
    return ""


async def _logins(
    facts: ListenerFacts, host: str, port: int, tls: TlsDialer | None, *, shows_certificate: bool
) -> ListenerFacts:
    """Find out which authentication a listener requires. Returns the listener's description with
    these observations added. Raises OttlaError if no broker responds."""
    connection = await _connect(host, port, tls)
    try:
        with trio.fail_after(TIMEOUT_S):
            answer = await connection.request(
                SaslHandshakeRequest(mechanism=NO_MECHANISM),
                SaslHandshakeResponse,
                HANDSHAKE_VERSION,
            )
    except trio.TooSlowError:
        raise ConnectionLostError(f"{facts.address} did not answer in {TIMEOUT_S:g} s") from None
    finally:
        await connection.aclose()
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        facts = replace(facts, mechanisms=tuple(answer.mechanisms[:NAMES_MAX]))
    is_served = await _is_served(host, port, tls)
    return replace(facts, serves_strangers=is_served and not shows_certificate)


async def _is_served(host: str, port: int, tls: TlsDialer | None) -> bool:
    """Return whether the listener serves a request of a client that has not logged in."""
    connection = await _connect(host, port, tls)
    try:
        with trio.fail_after(TIMEOUT_S):
            await connection.request(MetadataRequest(topics=[]), MetadataResponse)
    except (OttlaError, TlsError, trio.TooSlowError):
        return False
    finally:
        await connection.aclose()
    return True


async def _connect(host: str, port: int, tls: TlsDialer | None) -> BrokerConnection:
    return await open_stream(
        BrokerConnection, host, port, client_id="ottla-doctor", timeout_s=TIMEOUT_S, tls=tls
    )
