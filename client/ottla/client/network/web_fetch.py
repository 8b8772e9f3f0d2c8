"""Small answers of web servers: keys and tokens of identity providers.  Blocking: for a worker.

An answer is bounded in bytes and in time, and no redirect is followed: what was listed is asked,
and nothing else.  TLS certificates are those that the machine trusts (or SSL_CERT_FILE).
"""

import os
import time
from collections.abc import Mapping
from email.message import Message as Headers
from typing import IO, Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from ottla.model.settings.oauth import is_file_url, path_of

TIMEOUT_S = 10.0
"""For all of it: a server that gives a byte now and then holds a worker no longer."""

PIECE_BYTES = 65_536
SHOWN_BYTES_MAX = 200


class WebFetchError(Exception):
    """What was asked for could not be had; the text says why and holds no secret."""


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Headers, newurl: str
    ) -> None:
        """Follow none."""
        return


def fetch(
    url: str,
    *,
    bytes_max: int,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> bytes:
    """Return what a URL or a file has.  Raises WebFetchError where that cannot be had."""
    try:
        if is_file_url(url):
            with open(path_of(url), "rb") as file:
                return _bounded(file, bytes_max, None)
        deadline = time.monotonic() + timeout_s
        # A proxy of the environment is used as by every other program, but not on the way to this
        # machine itself (http://), which is not encrypted.
        proxies = ProxyHandler({} if url.startswith("http:") else None)
        opener = build_opener(_NoRedirects, proxies)
        asked = Request(url, data=body, headers=dict(headers or {}))
        with opener.open(asked, timeout=timeout_s) as answer:
            return _bounded(answer, bytes_max, deadline)
    except HTTPError as error:
        with error:
            raise WebFetchError(f"{url} answers {error.code} {error.reason}") from None
    except OSError as error:
        reason = getattr(error, "reason", None) or error
        number = getattr(reason, "errno", None)
        text = os.strerror(number) if isinstance(number, int) else str(reason)
        raise WebFetchError(f"{url} cannot be read: {text.lower()[:SHOWN_BYTES_MAX]}") from None
    except ValueError as error:
        raise WebFetchError(f"{url} cannot be asked: {type(error).__name__}") from None
    except Exception as error:  # http.client has errors of many kinds for answers that are none
        raise WebFetchError(f"{url} gives no answer of HTTP: {type(error).__name__}") from None


def _bounded(source: Any, bytes_max: int, deadline: float | None) -> bytes:
    found = bytearray()
    while piece := source.read1(PIECE_BYTES) if hasattr(source, "read1") else source.read():
        found += piece
        if len(found) > bytes_max:
            raise OSError(f"it is longer than {bytes_max} bytes")
        if deadline is not None and time.monotonic() > deadline:
            raise OSError("it takes too long")
    return bytes(found)
