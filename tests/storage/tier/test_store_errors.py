"""Conversion of obstore's exceptions. The texts were recorded from obstore 0.12.1 with moto 5.2
and with a directory; those of Azure and Google follow their references."""

import pytest

from ottla.storage.tier.store_errors import SENTENCE_CHARS_MAX, store_error_of
from ottla.storage.tier.store_seam import (
    ObjectExistsError,
    ObjectNotFoundError,
    ObjectRangeError,
    StoreError,
    StoreRefusedError,
)


class GenericError(Exception):
    """A stand-in for obstore's exception of this name, so that no test needs obstore."""


class AlreadyExistsError(Exception):
    """A stand-in, too."""


class PermissionDeniedError(Exception):
    """A stand-in, too."""


PUT = "Generic S3 error: Error performing PUT http://host/bucket/x/a/b in 3.4ms - "
NO_KEY = (
    "Object at location x/a/b not found: Error performing GET http://host/bucket/x/a/b in 44ms - "
    'Server returned non-2xx status code: 404 Not Found: <?xml version="1.0" encoding="utf-8"?>\n'
    "<Error><Code>NoSuchKey</Code></Error>"
)
NO_BUCKET = NO_KEY.replace("NoSuchKey", "NoSuchBucket")
RANGE = (
    "Generic S3 error: Error performing GET http://host/bucket/x/a/b in 3.4ms - Server returned"
    ' non-2xx status code: 416 Range Not Satisfiable: <?xml version="1.0"?>\n<Error><Code>'
    "InvalidRange</Code></Error>"
)
LOCAL_RANGE = (
    "Generic LocalFileSystem error: Requested range was invalid\n\nDebug source:\nGeneric {\n"
    '    store: "LocalFileSystem",\n    source: InvalidRange {\n        source: StartTooLarge {'
)
DENIED = (
    "Generic LocalFileSystem error: Unable to open file /mnt/x/a#1: Permission denied (os error 13)"
)


def status(code: int, text: str = "") -> GenericError:
    return GenericError(f"{PUT}Server returned non-2xx status code: {code} Some Words: {text}")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FileNotFoundError(NO_KEY), ObjectNotFoundError),
        (FileNotFoundError(NO_BUCKET), StoreRefusedError),
        (GenericError(NO_BUCKET), StoreRefusedError),
        (status(404, "<Error><Code>ContainerNotFound</Code></Error>"), StoreRefusedError),
        (status(404, '{"message": "The specified bucket does not exist."}'), StoreRefusedError),
        (AlreadyExistsError("Object at location a already exists: x"), ObjectExistsError),
        (GenericError(RANGE), ObjectRangeError),
        (GenericError(LOCAL_RANGE), ObjectRangeError),
        (PermissionDeniedError("no"), StoreRefusedError),
        (status(403), StoreRefusedError),
        (status(401), StoreRefusedError),
        (status(400), StoreRefusedError),
        (status(301), StoreRefusedError),
        (GenericError(DENIED), StoreRefusedError),
    ],
)
def test_an_error_that_a_repetition_does_not_help_has_its_kind(
    error: Exception, kind: type[StoreError]
) -> None:
    converted = store_error_of(error, "a/b", needs_object=True)
    assert type(converted) is kind
    assert not converted.is_retriable


def test_a_put_that_finds_nothing_has_no_bucket() -> None:
    # Seen at a server whose response has no body.
    converted = store_error_of(FileNotFoundError(NO_KEY), "a/b", needs_object=False)
    assert isinstance(converted, StoreRefusedError)
    assert "bucket" in str(converted)


@pytest.mark.parametrize(
    "error",
    [
        GenericError(f"{PUT}HTTP error: error sending request"),
        GenericError("Generic LocalFileSystem error: No space left on device (os error 28)"),
        OSError("broken pipe"),
        ConnectionAbortedError("the asyncio loop ended"),
        *map(status, (404, 408, 409, 429, 500, 503)),
    ],
)
def test_any_other_error_may_be_over_later(error: Exception) -> None:
    converted = store_error_of(error, "a/b", needs_object=True)
    assert type(converted) is StoreError
    assert converted.is_retriable


def test_a_name_of_a_topic_is_no_mark_of_an_error() -> None:
    key = "c/NoSuchBucket.ContainerNotFound.416.StartTooLarge-AAAAAAAAAAAAAAAAAAAAAA/0/x.log"
    error = GenericError(f"Error performing PUT http://host/{key} in 3ms - HTTP error: timed out")
    assert type(store_error_of(error, key, needs_object=True)) is StoreError


def test_a_sentence_has_no_credentials_and_no_debugging_text() -> None:
    text = (
        "Error performing GET http://host/c/a?sv=2026&sig=SIGNATURE in 3ms with KEY - Server"
        " returned non-2xx status code: 503 Slow Down: <Error><Code>SlowDown</Code><Signature>"
        "SIGNED</Signature></Error>\n\nDebug source:\nGeneric {"
    )
    sentence = str(store_error_of(GenericError(text), "a", needs_object=True, secrets=("KEY", "")))
    assert sentence == (
        "the object store failed: Error performing GET http://host/c/a in 3ms with [hidden] -"
        " Server returned non-2xx status code: 503 Slow Down (SlowDown)"
    )


def test_a_sentence_is_bounded() -> None:
    sentence = str(store_error_of(GenericError("x" * 100_000), "a", needs_object=True))
    assert len(sentence) < SENTENCE_CHARS_MAX + 100
