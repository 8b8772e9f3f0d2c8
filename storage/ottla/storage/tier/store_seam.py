"""Interface of an object store, which contains the remote segments of tiered storage.

Contract of every implementation, checked by `tests/storage/tier/store_conformance.py`:

- Keys are relative to the prefix of the store's URI, and plain (`is_plain_key`).
- A put is atomic: a reader sees the old object, the new one or none, never a part of it.
- A failed or cancelled call may have had its effect, or may have it later. The only exceptions are
  the errors ObjectExistsError, ObjectNotFoundError and StoreRefusedError.
- A listing is in no particular order, and may be stale: it can lack a new object, and can still
  contain a deleted one. `head` and `get` are never stale.
- Every call may be cancelled. The caller sets the deadline, with a cancel scope of trio.
"""

import re
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import NamedTuple, Protocol

from ottla.model.errors import OttlaError

KEY_BYTES_MAX = 1024
"""Maximum length, in bytes, of a complete key in S3, Google Cloud Storage and Azure. A prefix
together with a key must not be longer."""
_PLAIN_KEY = re.compile(r"[A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+)*")


class StoreError(OttlaError):
    """A call to an object store failed. The message is one sentence, and contains no
    credentials."""

    is_retriable: bool = True
    """True if a repeated call may succeed later, because the store is down, slow or limits the rate
    of requests."""


class ObjectNotFoundError(StoreError):
    """The object store contains no object with this key."""

    is_retriable = False


class ObjectExistsError(StoreError):
    """The object store already contains an object with this key.

    The object may have been stored by the same call: after a lost response, the store's client
    repeats a put. The caller must therefore compare the contents.
    """

    is_retriable = False


class ObjectRangeError(StoreError):
    """The requested range begins at or after the end of the object."""

    is_retriable = False


class StoreRefusedError(StoreError):
    """The object store refuses this node: wrong credentials, no permission, or no such bucket. An
    operator must change a setting or the store."""

    is_retriable = False


class ObjectEntry(NamedTuple):
    """Description of an object in a store: its key, size and modification time."""

    key: str
    size_bytes: int
    modified_ms: int
    """Time, in ms since 1970 by the store's clock, at which the object was last stored."""


class ObjectStore(Protocol):
    """Interface of an object store, limited to the keys with one prefix in one bucket."""

    async def put(self, key: str, content: bytes, *, only_new: bool = False) -> None:
        """Store an object, with one request.

        Raises ObjectExistsError if `only_new` is true and the key is in use.
        """
        ...

    async def put_stream(self, key: str, parts: AsyncIterable[bytes]) -> None:
        """Store an object whose parts are read during the upload, so that a large object is never
        in memory as a whole. If `parts` raises an exception, nothing is stored, and this method
        raises the exception. The caller closes `parts`, which a failed upload leaves unread.

        An upload that ends early can leave invisible parts in S3, which cost money until a
        lifecycle rule of the bucket removes them.
        """
        ...

    async def get(self, key: str, start: int, end: int) -> bytes:
        """Return the bytes `[start, end)` of an object, or fewer bytes if the object ends before
        `end`. The range must not be empty.

        Raises ObjectNotFoundError, and ObjectRangeError if `start` is not within the object.
        """
        ...

    async def head(self, key: str) -> ObjectEntry:
        """Return the key, size and modification time of an object. Raises ObjectNotFoundError if
        there is no such object."""
        ...

    def entries(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectEntry]:
        """Yield the objects whose keys begin with `prefix` and follow `after` in alphabetical
        order.

        `prefix` is empty or ends with a slash. The number of objects is not bounded, so the caller
        must stop at its own limit.
        """
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete the objects with the keys in `keys`. A key without an object is not an error.
        After a failure, any of the objects may have been deleted."""
        ...


def is_plain_key(key: str) -> bool:
    """Return whether a key consists of letters, digits, dots, underscores, hyphens and slashes, and
    has no empty, `.` or `..` segment. Such a key needs no encoding in a URL or a file name."""
    return (
        len(key) <= KEY_BYTES_MAX
        and _PLAIN_KEY.fullmatch(key) is not None
        and not any(part in (".", "..") for part in key.split("/"))
    )


def is_folder_prefix(prefix: str) -> bool:
    """Return whether a prefix is valid for `ObjectStore.entries`: it must be empty, or a plain key
    followed by a slash."""
    return not prefix or (prefix.endswith("/") and is_plain_key(prefix[:-1]))
