"""Reads certificates and keys, and creates the `ssl.SSLContext` of a server or a client.

Each file is read only once, and OpenSSL loads the bytes that were read. If a file is replaced in
the meantime, the certificate of one version is therefore never used with the key of another. If a
file or a text is unusable, a ConfigError names the setting, the problem and the remedy. The error
never contains keys or passwords.
"""

import os
import ssl
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from datetime import datetime
from tempfile import TemporaryDirectory

from ottla.model.errors import ConfigError
from ottla.model.limits import MIB
from ottla.model.settings.security.tls import (
    CERTIFICATE_CHAIN,
    CIPHER_SUITES,
    KEY,
    KEY_PASSWORD,
    KEY_TO_PEM,
    KEYSTORE_LOCATION,
    NONE,
    REQUIRED,
    TLS_1_2,
    TRUST_TO_PEM,
    TRUSTED_CERTIFICATES,
    TRUSTSTORE_LOCATION,
    TlsConfig,
)
from ottla.model.tls.certificate import (
    CERTIFICATE_LABELS,
    Certificate,
    certificates_in,
    pem_blocks,
    read_certificate,
)
from ottla.model.values import frozen

PEM_BYTES_MAX = 4 * MIB
"""Maximum size in bytes of a PEM file. A bundle of all public CA certificates has about 200 KiB."""

JKS_MAGIC = b"\xfe\xed\xfe\xed"
DER_SEQUENCE = b"\x30\x82"
"""First bytes of a file in DER, such as a PKCS12 key store."""

PARTIAL_CHAIN = ssl.VerifyFlags(0x80000)
"""OpenSSL's flag X509_V_FLAG_PARTIAL_CHAIN: verification may end at any trusted certificate, not
only at a root CA, as in Java."""

VERSION_OF = {TLS_1_2: ssl.TLSVersion.TLSv1_2}
HANDSHAKE_STEPS_MAX = 4
"""Maximum number of steps that client and server together need to complete a handshake."""

READABLE_BY_ALL = stat.S_IROTH | stat.S_IWOTH


@frozen
class TlsMaterial:
    """The certificates and the key of one end of a TLS connection, as read from files or
    settings."""

    chain: str = ""
    """The certificate of this end, followed by the intermediate certificates up to the CA, as PEM.
    Empty if there is no certificate."""
    key: str = field(default="", repr=False)
    """The private key of this end's certificate, as PEM."""
    trusted: str = ""
    """The certificates of the trusted CAs, as PEM. If empty, the CAs of the operating system are
    trusted."""
    certificate: Certificate | None = None
    """Decoded certificate of this end, or None if this end has no certificate."""
    authorities: tuple[Certificate, ...] = ()
    """Decoded certificates of the trusted CAs."""

    def warnings(self, now: datetime) -> list[str]:
        """Return one sentence for each certificate that is not valid at the time `now`."""
        found = []
        if self.certificate is not None and (problem := self.certificate.problem_at(now)):
            found.append(f"the own certificate, {self.certificate.subject}, {problem}; renew it")
        for one in self.authorities:
            if problem := one.problem_at(now):
                found.append(f"the trusted certificate {one.subject} {problem}; renew or remove it")
        return found


def read_material(config: TlsConfig) -> TlsMaterial:
    """Read the certificates and the key of one end of a connection. Raises ConfigError if they are
    unusable."""
    chain = key = trusted = ""
    key_setting, chain_setting = KEY, CERTIFICATE_CHAIN
    if config.certificate_location:
        key_setting = chain_setting = KEYSTORE_LOCATION
        text = _text_of(config, config.certificate_location, KEYSTORE_LOCATION, KEY_TO_PEM)
        chain = _blocks(text, CERTIFICATE_LABELS)
        key = _key_in(text)
        if config.key_location:
            key_setting = KEY
            key = _key_in(_text_of(config, config.key_location, KEY, KEY_TO_PEM))
            _check_mode(config, config.key_location, KEY)
        elif key:
            _check_mode(config, config.certificate_location, KEYSTORE_LOCATION)
    elif config.certificate_chain:
        chain, key = (
            _blocks(config.certificate_chain, CERTIFICATE_LABELS),
            _key_in(config.key or ""),
        )
    if config.has_certificate:
        if not chain:
            raise ConfigError(
                config.spelling(chain_setting), f"{_given(config)} has no certificate in PEM"
            )
        if not key:
            raise ConfigError(
                config.spelling(key_setting),
                f"{_given(config)} has no private key in PEM; append it: cat key.pem >> the file",
            )
    if config.trust_location:
        text = _text_of(config, config.trust_location, TRUSTSTORE_LOCATION, TRUST_TO_PEM)
        trusted = _blocks(text, CERTIFICATE_LABELS)
    elif config.trusted_certificates:
        trusted = _blocks(config.trusted_certificates, CERTIFICATE_LABELS)
    if config.has_trust and not trusted:
        setting = TRUSTSTORE_LOCATION if config.trust_location else TRUSTED_CERTIFICATES
        raise ConfigError(config.spelling(setting), "has no certificate in PEM")
    own = _read(config, chain_setting, chain)
    trust_setting = TRUSTSTORE_LOCATION if config.trust_location else TRUSTED_CERTIFICATES
    return TlsMaterial(
        chain, key, trusted, own[0] if own else None, tuple(_read(config, trust_setting, trusted))
    )


def server_context(config: TlsConfig, material: TlsMaterial | None = None) -> ssl.SSLContext:
    """Create the SSL context of a server. Raises ConfigError if that is impossible.

    The server presents its certificate, and requests its clients' certificates according to
    `client_auth`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    # In TLS 1.2 a client could otherwise request one handshake after another on a connection.
    context.options |= ssl.OP_NO_RENEGOTIATION
    material = read_material(config) if material is None else material
    _fill(context, config, material)
    if config.client_auth != NONE:
        context.verify_mode = (
            ssl.CERT_REQUIRED if config.client_auth == REQUIRED else ssl.CERT_OPTIONAL
        )
    return context


def client_context(config: TlsConfig, material: TlsMaterial | None = None) -> ssl.SSLContext:
    """Create the SSL context of a client. Raises ConfigError if that is impossible.

    The client trusts the CAs of the operating system if no trusted certificates are given. It
    presents a certificate if it has one.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = config.checks_names
    material = read_material(config) if material is None else material
    _fill(context, config, material)
    if not config.has_trust:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


def _fill(context: ssl.SSLContext, config: TlsConfig, material: TlsMaterial) -> None:
    """Set the versions, cipher suites, certificate and trust of a context."""
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.verify_flags |= PARTIAL_CHAIN
    context.minimum_version = VERSION_OF.get(config.versions[0], ssl.TLSVersion.TLSv1_3)
    context.maximum_version = VERSION_OF.get(config.versions[-1], ssl.TLSVersion.TLSv1_3)
    if config.ciphers:
        try:
            context.set_ciphers(config.ciphers)
        except ssl.SSLError:
            raise ConfigError(
                config.spelling(CIPHER_SUITES), "has no suite that this OpenSSL has"
            ) from None
    if material.chain:
        _load_certificate(context, config, material)
    if material.trusted:
        setting = TRUSTSTORE_LOCATION if config.trust_location else TRUSTED_CERTIFICATES
        try:
            context.load_verify_locations(cadata=material.trusted)
        except ssl.SSLError as error:
            raise ConfigError(
                config.spelling(setting), f"has a certificate that cannot be read: {_words(error)}"
            ) from None


def _load_certificate(context: ssl.SSLContext, config: TlsConfig, material: TlsMaterial) -> None:
    """Load this end's own certificate into a context. Raises ConfigError, with the problem, if the
    certificate or its key is unusable."""
    is_encrypted = "ENCRYPTED" in material.key
    key_setting = KEY if config.key_location or config.key else KEYSTORE_LOCATION
    if is_encrypted and not config.key_password:
        raise ConfigError(
            config.spelling(key_setting),
            f"{_given(config)} has an encrypted private key; set {KEY_PASSWORD}",
        )
    # With a password callback OpenSSL never prompts on the terminal.
    password: Callable[[], str] = lambda: config.key_password or ""  # noqa: E731
    try:
        with _memory_file(material.chain + material.key) as path:
            context.load_cert_chain(path, password=password)
    except ssl.SSLError as error:
        if "KEY_VALUES_MISMATCH" in str(error) or "KEY_TYPE_MISMATCH" in str(error):
            raise ConfigError(
                config.spelling(key_setting),
                f"{_given(config)} has a private key that is not its certificate's; the own "
                "certificate must be the first one",
            ) from None
        if is_encrypted:
            raise ConfigError(
                config.spelling(KEY_PASSWORD), "does not open the private key"
            ) from None
        raise ConfigError(
            config.spelling(key_setting), f"{_given(config)} cannot be loaded: {_words(error)}"
        ) from None


@contextmanager
def _memory_file(text: str) -> Iterator[str]:
    """Yield a path from which OpenSSL can read a text that is only in memory.

    On systems other than Linux, it is the path of a temporary file of this user, which is deleted
    at the end.
    """
    if not hasattr(os, "memfd_create"):
        with TemporaryDirectory() as directory:  # only its owner may open it
            path = os.path.join(directory, "pem")
            with open(path, "w", encoding="ascii") as file:
                file.write(text)
            yield path
        return
    fd = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(fd), "w", encoding="ascii") as file:
            file.write(text)
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


def _text_of(config: TlsConfig, path: str, setting: str, conversion: str) -> str:
    """Return the text of a PEM file. Raises ConfigError if the file is unreadable or is a store of
    another format."""
    try:
        with open(path, "rb") as file:
            data = file.read(PEM_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no path"
        raise ConfigError(
            config.spelling(setting), f"is {path}, which cannot be read: {reason}"
        ) from None
    if len(data) > PEM_BYTES_MAX:
        raise ConfigError(config.spelling(setting), f"is {path}, which has more than 4 MiB")
    if data.startswith((JKS_MAGIC, DER_SEQUENCE)):
        raise ConfigError(
            config.spelling(setting),
            f"is {path}, which is not PEM but a key store of Java or OpenSSL; convert it: "
            f"{conversion}",
        )
    return data.decode("latin-1")


def _check_mode(config: TlsConfig, path: str, setting: str) -> None:
    """Raise ConfigError if all users of the machine can read the private key at `path`."""
    if os.stat(path).st_mode & READABLE_BY_ALL:
        raise ConfigError(
            config.spelling(setting),
            f"is {path}, a private key that every user of this machine can read; chmod 640 {path}",
        )


def _blocks(text: str, labels: tuple[str, ...]) -> str:
    return "".join(f"{block}\n" for label, block in pem_blocks(text) if label in labels)


def _key_in(text: str) -> str:
    """Return the first private key in a PEM text, or ""."""
    return next(
        (f"{block}\n" for label, block in pem_blocks(text) if label.endswith("PRIVATE KEY")), ""
    )


def _read(config: TlsConfig, setting: str, chain: str) -> list[Certificate]:
    try:
        return [read_certificate(der) for der in certificates_in(chain)]
    except ValueError as error:
        raise ConfigError(
            config.spelling(setting), f"has a certificate that cannot be read: {error}"
        ) from None


def _given(config: TlsConfig) -> str:
    """Return the last part of an error message about this node's certificate. The name of the
    setting precedes it."""
    path = config.key_location or config.certificate_location
    return f"is {path}, which" if path else "is PEM text that"


def _words(error: ssl.SSLError) -> str:
    """Return OpenSSL's description of an error, without the source line that OpenSSL adds."""
    return (error.reason or "not understood").lower().replace("_", " ")


def check_own_trust(config: TlsConfig, material: TlsMaterial) -> None:
    """Raise ConfigError if this node would reject its own certificate on another node.

    Nodes with the same configuration connect to each other, so they must accept each other's
    certificates. The error states why the connection would fail.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context(replace(config, checks_names=False), material)
    server = server_context(replace(config, client_auth=REQUIRED), material)
    ends = [
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    try:
        for _ in range(HANDSHAKE_STEPS_MAX):
            for end in ends:
                with suppress(ssl.SSLWantReadError):
                    end.do_handshake()
    except ssl.SSLCertVerificationError as error:
        trust = config.spelling(TRUSTSTORE_LOCATION)
        raise ConfigError(
            config.spelling(KEYSTORE_LOCATION),
            f"has a certificate that other nodes of the same settings do not accept "
            f"({error.verify_message}); {trust} must have its CA",
        ) from None
    except ssl.SSLError as error:
        raise ConfigError(
            config.spelling(KEYSTORE_LOCATION),
            f"has a certificate by which nodes cannot connect to each other: {_words(error)}",
        ) from None
