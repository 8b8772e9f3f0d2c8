"""Certificates for TLS between a node and its collectors, reloaded when their files change.

The files are read when the node starts. If a file is unusable, a ConfigError names its setting. The
files are read again after changes. While data is being sent, the files are checked for changes at
most once a second. If new files are unusable, the previous certificates stay in use, and the error
is logged once.
"""

import logging
import ssl
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from ottla.model.errors import ConfigError
from ottla.model.settings.telemetry.exporters import OTLP_KEYSTORE, ExporterConfig
from ottla.model.tls.changed_files_driver import ChangedFiles
from ottla.model.tls.context_driver import TlsMaterial, client_context, read_material

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

logger = logging.getLogger("ottla.telemetry")


class CollectorTls:
    """Certificates of a node for TLS connections to collectors. Methods may be called in any
    thread."""

    def __init__(self, config: ExporterConfig) -> None:
        """Read the certificate files that the settings name. Raises ConfigError if they are
        unusable."""
        self._config = config.otlp_tls
        self._lock = Lock()
        self._files = ChangedFiles(self._config.files)
        self._material, self._context = self._read()
        for warning in self._material.warnings(datetime.now(UTC)):
            logger.warning("for collectors: %s", warning)
        self._version = 0

    def look(self) -> int:
        """Reload certificate files that have changed. Checks the files at most once a second.
        Returns the version of the certificates in use, which increases with each reload."""
        with self._lock:
            if self._files.look():
                self._reread()
            return self._version

    @property
    def context(self) -> ssl.SSLContext:
        """SSL context for a new connection to a collector, with the certificates in use."""
        return self._context

    @property
    def material(self) -> TlsMaterial:
        """Certificates and private key for a new connection to a collector."""
        return self._material

    def _reread(self) -> None:
        try:
            material, context = self._read()
        except ConfigError as error:
            logger.error(
                "the new certificates for collectors cannot be used, so the previous ones stay in "
                "use: %s",
                error,
            )
            return
        if material != self._material:
            self._material, self._context = material, context
            self._version += 1
            logger.info("the certificates for collectors were reloaded")

    def _read(self) -> tuple[TlsMaterial, ssl.SSLContext]:
        material = read_material(self._config)
        if "ENCRYPTED" in material.key:
            raise ConfigError(
                OTLP_KEYSTORE,
                "has an encrypted private key; decrypt it with openssl pkey, and keep the file "
                "from other users by its mode",
            )
        return material, client_context(self._config, material)


def system_trust() -> str | None:
    """Return the path of this machine's CA certificates (a file or a directory), or None if OpenSSL
    has no path. The variables SSL_CERT_FILE and SSL_CERT_DIR override the path."""
    paths = ssl.get_default_verify_paths()
    return paths.cafile or paths.capath


def system_certificates() -> bytes | None:
    """Return this machine's CA certificates as PEM text, or None if they are not in a single
    file."""
    path = ssl.get_default_verify_paths().cafile
    return None if path is None else Path(path).read_bytes()


def renewed(tls: CollectorTls, make: Callable[[], "SpanExporter"]) -> "SpanExporter":
    """Return a span exporter that wraps the span exporter created by `make`. If the certificates
    have changed, the wrapper calls `make` again before it exports spans."""
    # The SDK is installed only where spans are sent.
    from opentelemetry.sdk.trace.export import SpanExporter

    class RenewedExporter(SpanExporter):
        def __init__(self) -> None:
            self._version = tls.look()
            self._exporter = make()

        def export(self, spans: "Sequence[ReadableSpan]") -> "SpanExportResult":
            version = tls.look()
            if version != self._version:
                before, self._exporter = self._exporter, make()
                self._version = version
                before.shutdown()
            return self._exporter.export(spans)

        def shutdown(self) -> None:
            self._exporter.shutdown()

        def force_flush(self, timeout_millis: int = 30_000) -> bool:
            return self._exporter.force_flush(timeout_millis)

    return RenewedExporter()
