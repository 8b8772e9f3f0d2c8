"""Reads the scripts and styles of the console once. Their addresses contain digests of their
content.

A browser may store such a file permanently, because changed content gets a new address.
"""

import gzip
import hashlib
from collections.abc import Mapping
from pathlib import Path

from ottla.model.values import frozen

FOLDER = Path(__file__).parent / "static"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
PREFIX = "/static/"
KEPT = "public, max-age=31536000, immutable"
DIGEST_CHARS = 12


@frozen(kw_only=True)
class StaticFile:
    """Content of a static file (script or style), uncompressed and compressed."""

    content: bytes
    compressed: bytes
    content_type: str
    digest: str

    @property
    def headers(self) -> dict[str, str]:
        """HTTP response headers for the compressed form of the static file."""
        return {
            "content-type": self.content_type,
            "cache-control": KEPT,
            "etag": f'"{self.digest}"',
            "vary": "accept-encoding",
        }


def read_static_files(folder: Path = FOLDER) -> Mapping[str, StaticFile]:
    """Return the scripts and styles that the console serves, by name."""
    return {
        path.name: _read(path)
        for path in sorted(folder.iterdir())
        if path.suffix in TYPES and path.is_file()
    }


def _read(path: Path) -> StaticFile:
    content = path.read_bytes()
    return StaticFile(
        content=content,
        compressed=gzip.compress(content, mtime=0),
        content_type=TYPES[path.suffix],
        digest=hashlib.sha256(content).hexdigest()[:DIGEST_CHARS],
    )
