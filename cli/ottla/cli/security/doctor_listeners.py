"""`ottla doctor listeners`: what addresses of a cluster let in, seen from outside.

Each address is connected to several times, for a connection is good for one question: whether it
encrypts, whether its certificate is accepted, which logins it offers, whether it serves strangers.
No login is ever sent.
"""

import ssl
from collections.abc import Sequence
from dataclasses import replace

import trio

from ottla.cli.security.listener_findings import ListenerFacts
from ottla.client.network.connection import BrokerConnection, ConnectionLostError, open_stream
from ottla.client.network.login import HANDSHAKE_VERSION, LOGIN
from ottla.client.network.tls import TLS, TlsDialer, TlsError, sentence_of
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.settings.tls import TlsConfig
from ottla.model.tls.certificate import read_certificate
from ottla.wire.messages.metadata_request import MetadataRequest
from ottla.wire.messages.metadata_response import MetadataResponse
from ottla.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from ottla.wire.messages.sasl_handshake_response import SaslHandshakeResponse

TIMEOUT_S = 5.0
"""How long each question may take."""
NO_MECHANISM = "OTTLA-DOCTOR"
"""A mechanism that no broker has: its refusal lists those that there are."""
ASKS_CERTIFICATE = "it asks for a client's certificate"
NAMES_MAX = 20
"""Mechanisms that are shown of what a stranger's program answers."""


class _UnverifiedDialer(TlsDialer):
    """Encrypts with any server, to look at what it shows; nothing secret is sent to it."""

    @property
    def context(self) -> ssl.SSLContext:
        """The context, without any check of the server."""
        context = super().context
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context


async def look_at_listeners(
    addresses: Sequence[tuple[str, int]], config: TlsConfig
) -> list[ListenerFacts]:
    """Return what is seen of each address, in order.

    `config` says who is trusted and which certificate is shown.
    """
    found: dict[int, ListenerFacts] = {}

    async def look(index: int, host: str, port: int) -> None:
        # They belong to this task: what is asked here is asked as a stranger.
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
        pass  # it speaks no TLS, or there is none: the next question tells
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
    """Return the facts with what a handshake shows; raises where there is none."""
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
    """Return why a client with these settings refuses the server, empty if it does not."""
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
    """Return the facts with what is asked of clients; OttlaError where no broker answers."""
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
    """Return whether a request without a login is answered."""
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
