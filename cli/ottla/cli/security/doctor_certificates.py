"""`ottla doctor certificates FILE`: checks the certificates in the settings of a node, or in a PEM
file.

For each certificate in the settings, a server with this certificate and a client that trusts the
same CAs perform a TLS handshake in memory. The handshake is repeated for each host name to which
clients connect. The certificates in a PEM file are decoded, and a handshake is performed if the
file contains their key.
"""

import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from ottla.insight.rules.certificate_findings import (
    FAILED,
    CertificateFinding,
    findings_of,
    judged,
)
from ottla.model.errors import ConfigError
from ottla.model.settings.endpoints import ListenAddress, parse_listeners
from ottla.model.settings.security.security_keys import node_listeners, with_protocols
from ottla.model.settings.security.tls import (
    KEYSTORE_LOCATION,
    NONE,
    SSL,
    TLS_PROTOCOLS,
    TRUSTSTORE_LOCATION,
    TlsConfig,
    check_server,
    tls_of_listener,
)
from ottla.model.tls.certificate import certificates_in, pem_blocks, read_certificate
from ottla.model.tls.context_driver import client_context, read_material, server_context
from ottla.node.properties import parse_properties

EVERY_INTERFACE = ("", "0.0.0.0", "::")
AUTHORITY_OPTION = "--ca"
UNTRUSTED = "the trusted CAs do not vouch for it"
ROUNDS_MAX = 10
"""Maximum number of exchanges in a TLS handshake between the test's server and client. A normal
handshake needs two or three."""


def look_at_file(
    path: Path, *, authority: Path | None = None, now: datetime | None = None
) -> list[CertificateFinding]:
    """Return the findings of `ottla doctor certificates` for all certificates in a settings file or
    a PEM file.

    `authority` is a PEM file of the CAs that should have issued the certificate of a PEM file.
    Raises ConfigError if a file cannot be read, or has no certificate.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), f"cannot be read: {error}") from None
    if pem_blocks(text):
        return list(_look_at_pem(path, text, authority, now or datetime.now(UTC)))
    if authority is not None:
        raise ConfigError(AUTHORITY_OPTION, "is for a PEM file; settings name the trusted CAs")
    texts = parse_properties(text)
    encrypted = [one for one in _listeners(texts) if one.protocol in TLS_PROTOCOLS]
    if not encrypted:
        raise ConfigError(
            str(path),
            "has no listener of SSL or SASL_SSL, so there is no certificate to look at; name the "
            "settings file of a node that has one, or a PEM file",
        )
    trusts = [trust for one in encrypted if (trust := _trust_of(texts, one)) is not None]
    return [
        finding
        for listener in encrypted
        for finding in _look_at_listener(texts, listener, trusts, now or datetime.now(UTC))
    ]


def _look_at_pem(
    path: Path, text: str, authority: Path | None, now: datetime
) -> Iterator[CertificateFinding]:
    """Yield the findings about the certificates in a PEM file. The certificate that matches the
    private key in the file is first."""
    try:
        certificates = tuple(map(read_certificate, certificates_in(text)))
    except ValueError as error:
        raise ConfigError(str(path), f"has a certificate that cannot be decoded: {error}") from None
    if not certificates:
        raise ConfigError(str(path), "has no certificate in PEM")
    problem = None
    texts = {KEYSTORE_LOCATION: str(path)}
    if authority is not None:
        texts[TRUSTSTORE_LOCATION] = str(authority)
    has_key = len(pem_blocks(text)) > len(certificates)
    if has_key or authority is not None:
        config = tls_of_listener(texts, "FILE", SSL)
        try:
            problem = handshake_problem(config, None) if config.has_trust else None
            server_context(config)
        except ConfigError as error:
            problem = str(error)
    own, *others = certificates
    yield judged("certificate", own, now, problem)
    for one in others:
        yield judged("also in the file", one, now, None)


def _trust_of(texts: Mapping[str, str], listener: ListenAddress) -> TlsConfig | None:
    """Return the TLS settings of a listener of a node or client, or None if the listener trusts no
    CAs or its settings are invalid."""
    try:
        config = tls_of_listener(texts, listener.name, listener.protocol)
    except ConfigError:
        return None  # reported as a finding
    return config if config.has_trust else None


def _listeners(texts: Mapping[str, str]) -> list[ListenAddress]:
    """Return the distinct listeners in a node's settings, with their advertised addresses if the
    settings have any."""
    is_broker = texts.get("process.roles", "broker").strip() != "controller"
    found = {one.name: one for one in node_listeners(texts, is_broker=is_broker)}
    for key in ("listeners", "advertised.listeners"):
        if texts.get(key, "").strip():
            addresses = with_protocols(texts, parse_listeners(texts[key]))
            found |= {one.name: one for one in addresses}
    return list(found.values())


def _look_at_listener(
    texts: Mapping[str, str],
    listener: ListenAddress,
    trusts: Sequence[TlsConfig],
    now: datetime,
) -> Iterator[CertificateFinding]:
    where = f"listener {listener.name}"
    try:
        config = tls_of_listener(texts, listener.name, listener.protocol)
        check_server(config, listener.name)
        material = read_material(config)
        server_context(config, material)
    except ConfigError as error:
        yield CertificateFinding(where=where, state=FAILED, cure=str(error))
        return
    host = None if listener.host in EVERY_INTERFACE else listener.host
    problem = _trust_problem(config, trusts, host) if config.has_trust else None
    yield from findings_of(where, material, now=now, handshake_problem=problem)


def _trust_problem(config: TlsConfig, trusts: Sequence[TlsConfig], host: str | None) -> str | None:
    """Return the reason why clients refuse a listener's certificate, or None if they accept it.

    A listener may trust only the CA of users. Its own certificate is then checked against the CAs
    of another listener.
    """
    problem = handshake_problem(config, host)
    for trust in trusts:
        if problem is None or not problem.startswith(UNTRUSTED):
            break
        problem = handshake_problem(config, host, trust)
    return problem


def handshake_problem(
    config: TlsConfig, host: str | None, trust: TlsConfig | None = None
) -> str | None:
    """Return the reason why a client refuses the certificate in `config` during a TLS handshake, or
    None if the client accepts it. The client trusts the CAs in `trust`, or by default the CAs of
    the listener itself."""
    server = server_context(config if trust is None else replace(config, client_auth=NONE))
    trusted = config if trust is None else trust
    client = client_context(replace(trusted, client_auth=NONE, checks_names=host is not None))
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(back, there, server_hostname=host),
        server.wrap_bio(there, back, server_side=True),
    ]
    for _ in range(ROUNDS_MAX):
        for end in list(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                if error.verify_code in _HOST_CODES:
                    return f"it is not for {host}, where clients connect; issue it for that name"
                return f"{UNTRUSTED} ({error.verify_message})"
            except ssl.SSLError as error:
                return f"a handshake fails ({error.reason})"
            ends.remove(end)
        if not ends:
            return None
    return "a handshake does not end"


_HOST_CODES = (62, 64)
"""OpenSSL's error codes for a certificate that does not match the host:
X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""
