"""Small HTTP requests, for example for the keys and tokens of identity providers. The functions
block, and therefore run in a worker thread.

The size of a response, and the time until it has arrived, are limited. Redirects are refused, so
that only configured servers are contacted. Without TLS settings, the CAs of the operating system
(or SSL_CERT_FILE) are trusted.
"""

import os
import ssl
import time
from collections.abc import Mapping
from email.message import Message as Headers
from functools import partial
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from io import BufferedReader, RawIOBase
from socket import socket
from typing import IO, Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import (
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    ProxyHandler,
    Request,
    build_opener,
)

from ottla.model.errors import ConfigError
from ottla.model.settings.security.oauth import is_file_url, path_of
from ottla.model.settings.security.tls import TlsConfig
from ottla.model.tls.context_driver import client_context

TIMEOUT_S = 10.0
"""Timeout in seconds for connecting, and again for the whole response. A server that sends one byte
at a time therefore blocks a worker thread for at most twice this time."""

RETRIED_CODES = (408, 425, 429)
"""HTTP status codes below 500 that mean a temporary error, so that the request is repeated. Other
codes below 500 are permanent errors."""

PIECE_BYTES = 65_536
SHOWN_BYTES_MAX = 200


class WebFetchError(Exception):
    """Failure of an HTTP request. The message contains the reason, and no secret."""

    def __init__(self, text: str, *, is_final: bool = False) -> None:
        super().__init__(text)
        self.is_final = is_final
        """True if the error is permanent: a retry would fail in the same way."""


class _Times(NamedTuple):
    """Time limits for reading one HTTP response."""

    read_timeout_s: float
    """Timeout of each read, in seconds."""
    deadline: float
    """Deadline of the whole response, in seconds of the monotonic clock."""


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Headers, newurl: str
    ) -> None:
        """Refuse every redirect."""
        return


class _TimedInput(RawIOBase):
    """Raw bytes of an HTTP response, with a deadline that also bounds headers that arrive byte by
    byte."""

    def __init__(self, sock: socket, read_timeout_s: float, deadline: float) -> None:
        super().__init__()
        self._sock = sock
        self._file = sock.makefile("rb", buffering=0)
        self._read_timeout_s = read_timeout_s
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read some bytes, and return their number. Raises TimeoutError if no bytes arrive in
        time."""
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("it takes too long")
        self._sock.settimeout(min(left_s, self._read_timeout_s))
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


class _TimedAnswer(HTTPResponse):
    """An HTTP response whose reading is bounded by a deadline."""

    def __init__(
        self, sock: socket, *arguments: Any, read_timeout_s: float, deadline: float, **options: Any
    ) -> None:
        super().__init__(sock, *arguments, **options)
        unbounded, self.fp = self.fp, BufferedReader(_TimedInput(sock, read_timeout_s, deadline))
        unbounded.close()


class _PlainConnection(HTTPConnection):
    """An HTTP connection with separate timeouts for connecting and for the response."""

    def __init__(self, host: str, *, times: "_Times", **options: Any) -> None:
        super().__init__(host, **options)
        self._times = times
        self.response_class: Any = partial(_TimedAnswer, **times._asdict())

    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(self._times.read_timeout_s)


class _TlsConnection(_PlainConnection, HTTPSConnection):
    """An HTTPS connection with separate timeouts for connecting and for the response."""


class _Plain(HTTPHandler):
    def __init__(self, times: _Times) -> None:
        super().__init__()
        self._make: Any = partial(_PlainConnection, times=times)

    def http_open(self, req: Request) -> HTTPResponse:
        return self.do_open(self._make, req)


class _TlsHandler(HTTPSHandler):
    def __init__(self, times: _Times, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._make: Any = partial(_TlsConnection, times=times, context=context)

    def https_open(self, req: Request) -> HTTPResponse:
        return self.do_open(self._make, req)


def fetch(
    url: str,
    *,
    bytes_max: int,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    tls: TlsConfig | None = None,
    connect_timeout_s: float = TIMEOUT_S,
    read_timeout_s: float = TIMEOUT_S,
) -> bytes:
    """Return the content of a URL or a file. Raises WebFetchError if the content cannot be read."""
    try:
        if is_file_url(url):
            with open(path_of(url), "rb") as file:
                return _bounded(file, bytes_max, None)
        deadline = time.monotonic() + connect_timeout_s + read_timeout_s
        # A proxy in the environment is used as by other programs.  It is not used for http://,
        # which is unencrypted and therefore only for this machine.
        proxies = ProxyHandler({} if url.startswith("http:") else None)
        context = ssl.create_default_context() if tls is None else client_context(tls)
        times = _Times(read_timeout_s, deadline)
        opener = build_opener(_NoRedirects, proxies, _Plain(times), _TlsHandler(times, context))
        asked = Request(url, data=body, headers=dict(headers or {}))
        with opener.open(asked, timeout=connect_timeout_s) as answer:
            return _bounded(answer, bytes_max, deadline)
    except HTTPError as error:
        with error:
            raise WebFetchError(
                f"{url} answers {error.code} {error.reason}",
                is_final=error.code < 500 and error.code not in RETRIED_CODES,
            ) from None
    except ConfigError as error:
        raise WebFetchError(f"{url} cannot be asked: {error}", is_final=True) from None
    except OSError as error:
        reason = getattr(error, "reason", None) or error
        text = _words(reason)
        raise WebFetchError(f"{url} cannot be read: {text.lower()[:SHOWN_BYTES_MAX]}") from None
    except ValueError as error:
        raise WebFetchError(f"{url} cannot be asked: {type(error).__name__}") from None
    except Exception as error:  # http.client raises many kinds of errors for malformed responses
        raise WebFetchError(f"{url} gives no answer of HTTP: {type(error).__name__}") from None


def _words(reason: object) -> str:
    """Return the reason of a failure as text. The errno of OpenSSL's errors is omitted, because it
    is meaningless."""
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {reason.verify_message}"
    if isinstance(reason, ssl.SSLError):
        return (reason.reason or str(reason)).replace("_", " ")
    number = getattr(reason, "errno", None)
    return os.strerror(number) if isinstance(number, int) else str(reason)


def _bounded(source: Any, bytes_max: int, deadline: float | None) -> bytes:
    found = bytearray()
    while piece := source.read1(PIECE_BYTES) if hasattr(source, "read1") else source.read():
        found += piece
        if len(found) > bytes_max:
            raise OSError(f"it is longer than {bytes_max} bytes")
        if deadline is not None and time.monotonic() > deadline:
            raise OSError("it takes too long")
    return bytes(found)
