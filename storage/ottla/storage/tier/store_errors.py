"""Conversion of obstore's exceptions into the errors of `store_seam`. Pure.

The exceptions of obstore 0.12 contain the status and the body of a response only in their text. The
conversion therefore searches this text for known parts. Each part contains a space or a `<`, so it
cannot occur in an object's key.
"""

import re
from collections.abc import Sequence

from ottla.model.errors import shortened
from ottla.storage.tier.store_seam import (
    ObjectExistsError,
    ObjectNotFoundError,
    ObjectRangeError,
    StoreError,
    StoreRefusedError,
)

SENTENCE_CHARS_MAX = 300

_STATUS = re.compile(r"status code: (\d{3})\b")
_CODE = re.compile(r"<Code>(\w{1,64})</Code>")
_QUERY = re.compile(r"\?[^\s<]*")
"""Pattern of the query in a URL. The query is removed from messages, because it may contain a
signature."""
NO_BUCKET_MARKS = (
    "<Code>NoSuchBucket</Code>",  # S3, and Google Cloud Storage by its XML API
    "The specified bucket does not exist",  # Google Cloud Storage, JSON
    "<Code>ContainerNotFound</Code>",  # Azure
)
_RANGE_MARKS = ("source: StartTooLarge", "status code: 416")
"""Texts in obstore's errors for a range that begins after the end of an object. The first text is
for local stores, the second for servers."""
_LOCAL_REFUSALS = ("(os error 13)", "(os error 30)")
"""Texts in obstore's errors for the OS errors EACCES and EROFS, which mean that the directory of a
`file:` store is not writable."""
_RETRIABLE_STATUSES = frozenset({404, 408, 409, 412, 425, 429})
"""HTTP statuses from 300 to 499 after which a call may be repeated, because these statuses do not
indicate a wrong setting. An unexpected 404 is included, because a proxy may return it while a
server starts."""


def store_error_of(
    error: Exception, key: str, *, needs_object: bool, secrets: Sequence[str] = ()
) -> StoreError:
    """Convert an exception of obstore to the corresponding StoreError, and return it.

    `needs_object` is True if the call requires an existing object. For any other call, "not found"
    means that the bucket does not exist. `secrets` are texts that the message must not contain.
    """
    text = str(error)
    kind = type(error).__name__
    detail = _detail(text, secrets)
    status = int(found[1]) if (found := _STATUS.search(text)) else 0
    is_missing = isinstance(error, FileNotFoundError)
    if any(mark in text for mark in NO_BUCKET_MARKS) or (is_missing and not needs_object):
        return StoreRefusedError(f"the bucket of the object store does not exist: {detail}")
    if is_missing:
        return ObjectNotFoundError(f"there is no object {key}")
    if kind == "AlreadyExistsError":
        return ObjectExistsError(f"an object {key} already exists")
    if any(mark in text for mark in _RANGE_MARKS):
        return ObjectRangeError(f"object {key} ends before the start of the range")
    if kind in ("PermissionDeniedError", "UnauthenticatedError") or status in (401, 403):
        return StoreRefusedError(f"the object store refuses the credentials: {detail}")
    if any(mark in text for mark in _LOCAL_REFUSALS):
        return StoreRefusedError(f"the directory of the object store is not writable: {detail}")
    if 300 <= status < 500 and status not in _RETRIABLE_STATUSES:
        return StoreRefusedError(f"the object store refuses the request: {detail}")
    return StoreError(f"the object store failed: {detail}")


def _detail(text: str, secrets: Sequence[str]) -> str:
    code = _CODE.search(text)
    first, _, _ = text.partition("\n")
    first, _, _ = first.partition("<")
    first = _QUERY.sub("", first).strip()
    for secret in secrets:
        if secret:
            first = first.replace(secret, "[hidden]")
    first = first.removesuffix(":")
    return shortened(f"{first} ({code[1]})" if code else first, SENTENCE_CHARS_MAX)
