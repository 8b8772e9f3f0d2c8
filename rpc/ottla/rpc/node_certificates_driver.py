"""TLS certificates of this node in gRPC's form, reloaded when their files change.

The files are read at the start; if they are unusable, a ConfigError names the setting. They are
read again after changes. A server checks for changes at each handshake. A client checks at most
once per second, while it makes calls. If new files are unusable, the previous certificates stay in
use, and the error is logged once.

gRPC has its own TLS library (BoringSSL) and accepts plain PEM. Settings that gRPC does not support
are refused.
"""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Lock

import grpc

from ottla.model.errors import ConfigError
from ottla.model.log_events import event
from ottla.model.settings.security import tls
from ottla.model.settings.security.tls import TlsConfig
from ottla.model.tls.changed_files_driver import ChangedFiles
from ottla.model.tls.context_driver import TlsMaterial, read_material, server_context

_LOGGER = logging.getLogger(__name__)


class NodeCertificates:
    """The TLS certificates that a process uses for gRPC. All methods are thread-safe."""

    def __init__(self, config: TlsConfig, *, now_s: Callable[[], float] = time.monotonic) -> None:
        """Read the certificate files that the settings name. Raises ConfigError if gRPC cannot use
        them."""
        check_for_grpc(config)
        self._config = config
        self._lock = Lock()
        self._files = ChangedFiles(config.files, now_s=now_s)
        self.material = self._read()
        for warning in self.material.warnings(datetime.now(UTC)):
            _LOGGER.warning("%s", warning)
        self.version = 0
        """Version of the certificates in use. It increases each time that changed files are
        accepted."""

    @property
    def config(self) -> TlsConfig:
        """The TLS settings that name the certificate files."""
        return self._config

    def look(self, *, is_due: bool = False) -> int:
        """Reload certificate files that have changed. Returns the version of the certificates in
        use.

        Files are checked at most once per second. If `is_due` is True, they are checked at once.
        """
        with self._lock:
            if self._files.look(is_due=is_due):
                self._take()
            return self.version

    def server_configuration(self) -> grpc.ServerCertificateConfiguration:
        """Return gRPC's server configuration: the certificate, its key and the trusted CAs."""
        key, chain, trusted = self._pem()
        return grpc.ssl_server_certificate_configuration([(key, chain)], trusted)

    def server_credentials(self) -> grpc.ServerCredentials:
        """Return the gRPC credentials of a server that requires a certificate from every caller."""
        served = self.version

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            # Called for each handshake, in a thread of gRPC.  The peer may already have a new
            # certificate, whose CA is only in the latest files.
            nonlocal served
            version = self.look(is_due=True)
            if version == served:
                return None
            served = version
            return self.server_configuration()

        return grpc.dynamic_ssl_server_credentials(
            self.server_configuration(),
            fetch,  # type: ignore[arg-type]  # grpc takes None as "unchanged", its types do not
            True,
        )

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Return the TLS credentials for outgoing gRPC connections."""
        key, chain, trusted = self._pem()
        return grpc.ssl_channel_credentials(trusted, key, chain)

    def _pem(self) -> tuple[bytes, bytes, bytes]:
        material = self.material
        return material.key.encode(), material.chain.encode(), material.trusted.encode()

    def _take(self) -> None:
        try:
            material = self._read()
        except ConfigError as error:
            _LOGGER.error(
                "the new certificates of this node cannot be used, so the previous ones stay in "
                "use: %s",
                error,
                extra=event("certificate.refused"),
            )
            return
        if material != self.material:
            self.material = material
            self.version += 1
            _LOGGER.info(
                "the certificates for other nodes were read again",
                extra=event("certificate.loaded", files=", ".join(self._config.files)),
            )

    def _read(self) -> TlsMaterial:
        """Read and check the certificate files that the settings name, and return their contents.
        Raises ConfigError if the files cannot be used."""
        material = read_material(self._config)
        if "ENCRYPTED" in material.key:
            raise ConfigError(
                self._config.spelling(tls.KEYSTORE_LOCATION),
                "has an encrypted private key, which gRPC does not read; decrypt it with openssl "
                "pkey, and keep the file from other users by its mode",
            )
        server_context(self._config, material)
        return material


def check_for_grpc(config: TlsConfig) -> None:
    """Raise ConfigError for a TLS setting that gRPC does not support."""
    spelling = config.spelling
    if config.key_password is not None:
        raise ConfigError(
            spelling(tls.KEY_PASSWORD),
            "is set, and gRPC between nodes reads no encrypted key; give the listener of "
            "controllers one that is not encrypted",
        )
    if tls.CIPHER_SUITES in config.spellings:
        raise ConfigError(
            spelling(tls.CIPHER_SUITES),
            "is set, and gRPC between nodes chooses suites by itself; set it for other listeners",
        )
    if config.versions != tls.VERSIONS:
        raise ConfigError(
            spelling(tls.ENABLED_PROTOCOLS),
            "leaves a version out, and gRPC between nodes speaks both, TLSv1.2 and TLSv1.3; set "
            "both for the listener of controllers",
        )
    if not config.checks_names:
        raise ConfigError(
            spelling(tls.ENDPOINT_IDENTIFICATION),
            "is empty, and gRPC between nodes always checks names; set https for the listener of "
            "controllers",
        )
    for setting, is_there in (
        (tls.KEYSTORE_LOCATION, config.has_certificate),
        (tls.TRUSTSTORE_LOCATION, config.has_trust),
    ):
        if not is_there:
            raise ConfigError(
                spelling(setting),
                "is not set, and the listener of controllers encrypts: nodes show each other "
                "certificates there",
            )
