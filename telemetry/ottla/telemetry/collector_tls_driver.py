"""The certificates by which collectors and a node know each other, with every new file.

Read at the start (ConfigError names the setting) and again when the files have changed, which is
looked for once a second at most while something is sent.  Files that cannot be used leave what was
read before, and are reported once.
"""

import logging
import ssl
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from ottla.model.errors import ConfigError
from ottla.model.settings.exporters import OTLP_KEYSTORE, ExporterConfig
from ottla.model.tls.changed_files_driver import ChangedFiles
from ottla.model.tls.context_driver import TlsMaterial, client_context, read_material

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

logger = logging.getLogger("ottla.telemetry")


class CollectorTls:
    """What a node shows collectors, and whom it trusts; its methods may be called on any thread."""

    def __init__(self, config: ExporterConfig) -> None:
        """Read the files; ConfigError where they cannot be used."""
        self._config = config.otlp_tls
        self._lock = Lock()
        self._files = ChangedFiles(self._config.files)
        self._material, self._context = self._read()
        for warning in self._material.warnings(datetime.now(UTC)):
            logger.warning("for collectors: %s", warning)
        self._version = 0

    def look(self) -> int:
        """Read changed files; return the version of what holds now, which rises with each."""
        with self._lock:
            if self._files.look():
                self._reread()
            return self._version

    @property
    def context(self) -> ssl.SSLContext:
        """The context for a connection that is made now."""
        return self._context

    @property
    def material(self) -> TlsMaterial:
        """The certificates and the key for a connection that is made now."""
        return self._material

    def _reread(self) -> None:
        try:
            material, context = self._read()
        except ConfigError as error:
            logger.error(
                "the certificates for collectors changed and cannot be used, so those of before "
                "hold: %s",
                error,
            )
            return
        if material != self._material:
            self._material, self._context = material, context
            self._version += 1
            logger.info("the certificates for collectors were read again")

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
    """Return the file or directory of the CAs that this machine trusts (or SSL_CERT_FILE)."""
    paths = ssl.get_default_verify_paths()
    return paths.cafile or paths.capath


def system_certificates() -> bytes | None:
    """Return the CAs that this machine trusts as PEM; None where they are in no one file."""
    path = ssl.get_default_verify_paths().cafile
    return None if path is None else Path(path).read_bytes()


def renewed(tls: CollectorTls, make: Callable[[], "SpanExporter"]) -> "SpanExporter":
    """Return an exporter of spans that is made again when the certificates have changed."""
    # Only where spans are sent is the SDK there.
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
