"""Reading of requests within limits: paths, queries and forms."""

from collections.abc import Mapping
from contextlib import aclosing
from http import HTTPStatus
from urllib.parse import parse_qsl

from starlette.requests import Request

from ottla.console.http_errors import PageError

FIELDS_MAX = 500
QUERY_BYTES_MAX = 16_384
FORM_BYTES_MAX = 4 * 1024 * 1024
"""Maximum size of a form. A record of 1 MiB, with every byte escaped, has three times as many."""
FORM_TYPE = "application/x-www-form-urlencoded"


def query_of(request: Request) -> Mapping[str, str]:
    """Return the parameters after the question mark. Raises PageError if there are too many."""
    raw: bytes = request.scope["query_string"]
    if len(raw) > QUERY_BYTES_MAX:
        raise PageError(
            HTTPStatus.REQUEST_URI_TOO_LONG, f"the query exceeds {QUERY_BYTES_MAX} bytes"
        )
    return _fields(raw)


async def form_of(request: Request) -> Mapping[str, str]:
    """Read the fields of a posted form. Raises PageError if it is too large or no form."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM_TYPE:
        raise PageError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"a form must be {FORM_TYPE}")
    body = bytearray()
    async with aclosing(request.stream()) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > FORM_BYTES_MAX:
                raise PageError(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the form exceeds {FORM_BYTES_MAX} bytes"
                )
    return _fields(bytes(body))


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
