"""Cache of encoded responses, for requests repeated with the same bytes.

Pure. A response is reused only while the state from which it was derived is the same object. The
version, the listener and the local address must also match, because a response may contain them.
The `ClientKey` must match too: with an authorizer, two clients share a response only if the
authorizer makes the same decisions for both. Quotas are charged elsewhere. No cached response
contains a throttle time; the dispatcher inserts it.
"""

from collections.abc import Callable
from sys import getsizeof
from typing import TypeAlias

from ottla.model.limits import KIB, MIB
from ottla.wire.headers import RequestHeader

REQUEST_BYTES_MAX = KIB
"""Maximum size in bytes of a request that is looked up in the cache of responses. Copying such a
request costs less than decoding it."""

ANSWER_BYTES_MAX = 64 * KIB
"""Maximum size of a cached response, in bytes."""

KEPT_BYTES_MAX = 2 * MIB
"""Maximum memory of one API's cached responses and their keys, in bytes. It is divided into two
generations of half the size. Responses that were not requested while the young generation filled up
are dropped. A client that varies its requests, or logs in as many users, can evict the responses of
other clients, but cannot occupy more memory than this."""

ENTRY_BYTES = 640
"""Memory in bytes of one entry of the response cache, without its response and the names in its
key. The memory is used by the tuples, the listener name and address, and the slot in the table.
This constant also limits the number of entries."""

ListenerKey: TypeAlias = tuple[str, str, int]
"""Listener name, local host and local port of a client's connection, as part of a cached response's
key."""

ClientKey: TypeAlias = tuple[int, str, str]
"""Properties of a client on which an authorizer's decisions depend: the version of the ACLs, the
principal and the host."""

ANYONE: ClientKey = (0, "", "")
"""The `ClientKey` of every client if there is no authorizer."""

CacheKey: TypeAlias = tuple[int, ListenerKey, ClientKey, bytes]


class ResponseCache:
    """Cache of encoded responses for one API, by request and client."""

    __slots__ = ("_made_of", "_old", "_old_bytes", "_state", "_young", "_young_bytes")

    def __init__(self, state: Callable[[], object]) -> None:
        """Create an empty cache. `state` returns the immutable object from which all responses of
        this API are derived."""
        self._state = state
        self._made_of: object = None
        self._young: dict[CacheKey, bytes] = {}
        self._old: dict[CacheKey, bytes] = {}
        self._young_bytes = 0
        self._old_bytes = 0

    def key(
        self,
        header: RequestHeader,
        listener_key: ListenerKey,
        frame: memoryview,
        client_key: ClientKey = ANYONE,
    ) -> CacheKey | None:
        """Return the cache key for a request, or None if the request is too large for the cache."""
        if len(frame) - header.body_at > REQUEST_BYTES_MAX:
            return None
        return header.api_version, listener_key, client_key, bytes(frame[header.body_at :])

    def find(self, key: CacheKey) -> bytes | None:
        """Return the cached response body for a key, or None if no valid body is cached."""
        if self._state() is not self._made_of:
            return None
        found = self._young.get(key)
        if found is None and self._old:
            found = self._old.get(key)
            if found is not None:
                self._put(key, found)
        return found

    def keep(self, key: CacheKey, state: object, body: bytes) -> None:
        """Cache the encoded body of a response that was derived from the object `state`."""
        if len(body) > ANSWER_BYTES_MAX or state is not self._state():
            return
        if state is not self._made_of:
            self._made_of = state
            self._young, self._young_bytes = {}, 0
            self._old, self._old_bytes = {}, 0
        self._put(key, body)

    def _put(self, key: CacheKey, body: bytes) -> None:
        """Add a response to the young generation of the cache. Drops the old generation when the
        young one is full."""
        _, principal, host = key[2]
        size = len(key[3]) + len(body) + ENTRY_BYTES
        if principal:
            size += getsizeof(principal) + getsizeof(host)
        if self._young_bytes + size > KEPT_BYTES_MAX // 2:
            self._old, self._old_bytes = self._young, self._young_bytes
            self._young, self._young_bytes = {}, 0
        if key not in self._young:
            self._young_bytes += size
        self._young[key] = body

    @property
    def state(self) -> object:
        """Immutable object from which responses are derived now. Cached responses that were derived
        from another object are not reused."""
        return self._state()

    @property
    def kept_bytes(self) -> int:
        """Estimated memory of the cached responses and their keys, in bytes."""
        return self._young_bytes + self._old_bytes
