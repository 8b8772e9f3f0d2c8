"""Small answers of web servers: keys and tokens of identity providers.  Blocking: for a worker.

An answer is bounded in bytes and in time, and no redirect is followed: what was listed is asked,
and nothing else.  Where no TLS is given, what the machine trusts (or SSL_CERT_FILE) is trusted.
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
from ottla.model.settings.oauth import is_file_url, path_of
from ottla.model.settings.tls import TlsConfig
from ottla.model.tls.context_driver import client_context

TIMEOUT_S = 10.0
"""For connecting, and for the answer: a server that gives a byte now and then holds a worker no
longer than both."""

RETRIED_CODES = (408, 425, 429)
"""Answers of the kind "not now"; other codes below 500 say "never"."""

PIECE_BYTES = 65_536
SHOWN_BYTES_MAX = 200


class WebFetchError(Exception):
    """What was asked for could not be had; the text says why and holds no secret."""

    def __init__(self, text: str, *, is_final: bool = False) -> None:
        super().__init__(text)
        self.is_final = is_final
        """Whether the same question would be answered alike."""


class _Times(NamedTuple):
    """How long an answer may take."""

    read_timeout_s: float
    """For each piece of it."""
    deadline: float
    """For all of it, on the monotonic clock."""


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Headers, newurl: str
    ) -> None:
        """Follow none."""
        return


class _TimedInput(RawIOBase):
    """What a server says, until a deadline: also of a head that comes byte by byte."""

    def __init__(self, sock: socket, read_timeout_s: float, deadline: float) -> None:
        super().__init__()
        self._sock = sock
        self._file = sock.makefile("rb", buffering=0)
        self._read_timeout_s = read_timeout_s
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read some bytes.  Raises TimeoutError where none come in time."""
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("it takes too long")
        self._sock.settimeout(min(left_s, self._read_timeout_s))
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


class _TimedAnswer(HTTPResponse):
    """An answer that is read until a deadline."""

    def __init__(
        self, sock: socket, *arguments: Any, read_timeout_s: float, deadline: float, **options: Any
    ) -> None:
        super().__init__(sock, *arguments, **options)
        unbounded, self.fp = self.fp, BufferedReader(_TimedInput(sock, read_timeout_s, deadline))
        unbounded.close()


class _PlainConnection(HTTPConnection):
    """A connection whose answers may take another time than its beginning."""

    def __init__(self, host: str, *, times: "_Times", **options: Any) -> None:
        super().__init__(host, **options)
        self._times = times
        self.response_class: Any = partial(_TimedAnswer, **times._asdict())

    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(self._times.read_timeout_s)


class _EncryptedConnection(_PlainConnection, HTTPSConnection):
    """The same over TLS."""


class _Plain(HTTPHandler):
    def __init__(self, times: _Times) -> None:
        super().__init__()
        self._make: Any = partial(_PlainConnection, times=times)

    def http_open(self, req: Request) -> HTTPResponse:
        return self.do_open(self._make, req)


class _Encrypted(HTTPSHandler):
    def __init__(self, times: _Times, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._make: Any = partial(_EncryptedConnection, times=times, context=context)

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
    """Return what a URL or a file has.  Raises WebFetchError where that cannot be had."""
    try:
        if is_file_url(url):
            with open(path_of(url), "rb") as file:
                return _bounded(file, bytes_max, None)
        deadline = time.monotonic() + connect_timeout_s + read_timeout_s
        # A proxy of the environment is used as by every other program, but not on the way to this
        # machine itself (http://), which is not encrypted.
        proxies = ProxyHandler({} if url.startswith("http:") else None)
        context = ssl.create_default_context() if tls is None else client_context(tls)
        times = _Times(read_timeout_s, deadline)
        opener = build_opener(_NoRedirects, proxies, _Plain(times), _Encrypted(times, context))
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
    except Exception as error:  # http.client has errors of many kinds for answers that are none
        raise WebFetchError(f"{url} gives no answer of HTTP: {type(error).__name__}") from None


def _words(reason: object) -> str:
    """Return why a question failed; the errno of OpenSSL's errors means nothing."""
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
