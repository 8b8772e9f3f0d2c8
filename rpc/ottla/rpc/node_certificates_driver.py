"""The certificate of this node and the CAs it trusts, as gRPC takes them, with every new file.

Read at the start (ConfigError names the setting) and again when the files have changed: looked for
at each handshake of a server, and once a second at most while a client makes calls.  A file that
cannot be taken leaves what was read before, and is reported once.  gRPC brings its own TLS
(BoringSSL) and takes plain PEM: what it cannot honour of the settings is refused.
"""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Lock

import grpc

from ottla.model.errors import ConfigError
from ottla.model.log_events import event
from ottla.model.settings import tls
from ottla.model.settings.tls import TlsConfig
from ottla.model.tls.changed_files_driver import ChangedFiles
from ottla.model.tls.context_driver import TlsMaterial, read_material, server_context

_LOGGER = logging.getLogger(__name__)


class NodeCertificates:
    """The source of a process's certificates; its methods may be called on any thread."""

    def __init__(self, config: TlsConfig, *, now_s: Callable[[], float] = time.monotonic) -> None:
        """Read the certificates.  Raises ConfigError where gRPC cannot take them."""
        check_for_grpc(config)
        self._config = config
        self._lock = Lock()
        self._files = ChangedFiles(config.files, now_s=now_s)
        self.material = self._read()
        for warning in self.material.warnings(datetime.now(UTC)):
            _LOGGER.warning("%s", warning)
        self.version = 0
        """Rises with each change that was taken."""

    @property
    def config(self) -> TlsConfig:
        """The settings."""
        return self._config

    def look(self, *, is_due: bool = False) -> int:
        """Take changed files; return the version of what holds now.

        Files are looked at once a second at most, or now where that `is_due`.
        """
        with self._lock:
            if self._files.look(is_due=is_due):
                self._take()
            return self.version

    def server_configuration(self) -> grpc.ServerCertificateConfiguration:
        """Return what a server shows and trusts."""
        key, chain, trusted = self._pem()
        return grpc.ssl_server_certificate_configuration([(key, chain)], trusted)

    def server_credentials(self) -> grpc.ServerCredentials:
        """Return credentials of a server that asks every caller for a certificate."""
        served = self.version

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            # Called for each handshake, on a thread of gRPC; the other side may have a new
            # certificate already, of an authority that only the newest file here trusts.
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
        """Return credentials of a client."""
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
                "the certificates of this node changed and cannot be taken, so those of before "
                "hold: %s",
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
        """Read what the settings name, and try it; ConfigError where it cannot be used."""
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
    """Refuse what gRPC cannot honour.  Raises ConfigError."""
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
