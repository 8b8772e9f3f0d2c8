"""Reads requests of browsers within limits: paths, queries and forms."""

from collections.abc import Mapping
from contextlib import aclosing
from http import HTTPStatus
from typing import Protocol
from urllib.parse import parse_qsl

import trio
from starlette.requests import Request

from ottla.console.http_errors import PageError

FIELDS_MAX = 500
QUERY_BYTES_MAX = 16_384
FORM_BYTES_MAX = 4 * 1024 * 1024
"""Maximum size of a posted form in bytes. A form with a record of 1 MiB is three times as large if
every byte is escaped."""
FORM_S = 30.0
"""Maximum seconds until a posted form has been received."""
FORM_TYPE = "application/x-www-form-urlencoded"


class OwnOrigins(Protocol):
    """Protocol of the host names by which browsers reach the console."""

    def is_own_origin(self, origin: str, host: str) -> bool:
        """Return whether the value of an `Origin` header names the console itself."""
        ...


def check_site(request: Request, names: OwnOrigins) -> None:
    """Raise PageError if a page of another site sent a form. The headers that browsers set show
    this."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    host = request.headers.get("host", "")
    is_own = origin is None or names.is_own_origin(origin, host)
    if site not in ("same-origin", "none") or not is_own:
        raise PageError(HTTPStatus.FORBIDDEN, "the form was sent by another site")


def query_of(request: Request) -> Mapping[str, str]:
    """Return the query parameters of a request (after the question mark). Raises PageError if the
    request has too many parameters."""
    raw: bytes = request.scope["query_string"]
    if len(raw) > QUERY_BYTES_MAX:
        raise PageError(
            HTTPStatus.REQUEST_URI_TOO_LONG, f"the query exceeds {QUERY_BYTES_MAX} bytes"
        )
    return _fields(raw)


async def form_of(request: Request) -> Mapping[str, str]:
    """Return the fields of a form that a browser posted. Raises PageError if the body is too large
    or not a form."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM_TYPE:
        raise PageError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"a form must be {FORM_TYPE}")
    body = bytearray()
    with trio.move_on_after(FORM_S) as limit:
        await _receive(request, body)
    if limit.cancelled_caught:
        raise PageError(HTTPStatus.REQUEST_TIMEOUT, "the form did not arrive in time")
    return _fields(bytes(body))


async def _receive(request: Request, body: bytearray) -> None:
    async with aclosing(request.stream()) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > FORM_BYTES_MAX:
                raise PageError(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the form exceeds {FORM_BYTES_MAX} bytes"
                )


def _fields(raw: bytes) -> Mapping[str, str]:
    try:
        return dict(
            parse_qsl(
                raw.decode("ascii"),
                keep_blank_values=True,
                max_num_fields=FIELDS_MAX,
                errors="strict",
            )
        )
    except ValueError:
        raise PageError(
            HTTPStatus.BAD_REQUEST,
            f"the fields are not UTF-8 in URL encoding, or more than {FIELDS_MAX}",
        ) from None
