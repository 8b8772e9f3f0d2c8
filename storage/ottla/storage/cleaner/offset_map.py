"""The offset map of a cleaning: each key's largest offset, at 24 bytes a slot.

A table of open addressing that holds a key's 16-byte digest and its offset, and never a key.
Invariants: BoundedMemory (the table is all there is, and is touched only where keys fall);
SameCapacity (the same memory and load factor take the same number of keys in every form).

Two keys of one digest would be one key, and the older one's last record would be lost.  So the
digest is 128 bits and keyed with a seed that no client can foresee.  MD5, which is Kafka's choice,
is kept for tests that compare with Kafka's table.
"""

import hashlib
from collections.abc import Callable
from struct import Struct
from typing import Protocol

from ottla.model.errors import CorruptDataError

DIGEST_BYTES = 16
SLOT_BYTES = 24
"""A digest and an int64."""
EMPTY = bytes(SLOT_BYTES)
HASH_PROBE_COUNT = DIGEST_BYTES - 3
"""Probes whose place is read from the digest, at each of its bytes; further ones go on by one."""
NOT_FOUND = -1

_OFFSET = Struct(">q")


class OffsetMap(Protocol):
    """What both passes ask of a map."""

    @property
    def count(self) -> int:
        """Number of keys."""
        ...

    @property
    def count_max(self) -> int:
        """Number of keys that it takes."""
        ...

    def put(self, key: bytes, offset: int) -> None:
        """Set the offset of a key unless its offset is larger; the map must have room for a key."""
        ...

    def offset_of(self, key: bytes) -> int:
        """Return the offset of a key, `NOT_FOUND` if it has none."""
        ...


def slot_count_of(memory_bytes: int) -> int:
    """Return how many slots fit."""
    return memory_bytes // SLOT_BYTES


def key_count_max(memory_bytes: int, load_factor: float) -> int:
    """Return how many keys a map takes.

    One slot at least stays empty, which ends the search for a key that is not there.  Raises
    CorruptDataError if not one key fits, since such a cleaning never ends.
    """
    slots = slot_count_of(memory_bytes)
    count = min(int(slots * load_factor), slots - 1)
    if count < 1:
        raise CorruptDataError(f"an offset map of {memory_bytes} bytes takes no key")
    return count


def keyed_digest(seed: int) -> Callable[[bytes], bytes]:
    """Return a digest that cannot be foreseen without the seed."""
    key = seed.to_bytes(DIGEST_BYTES, "big")
    return lambda data: hashlib.blake2b(data, digest_size=DIGEST_BYTES, key=key).digest()


def md5_digest(data: bytes) -> bytes:
    """Return Kafka's digest."""
    return hashlib.md5(data, usedforsecurity=False).digest()


class SlotTable:
    """The plain map: one block of memory, probed slot by slot."""

    __slots__ = ("_digest", "_slot_count", "_slots", "count", "count_max", "probe_count")

    def __init__(
        self, memory_bytes: int, load_factor: float, digest: Callable[[bytes], bytes]
    ) -> None:
        self.count = 0
        self.count_max = key_count_max(memory_bytes, load_factor)
        self.probe_count = 0
        self._slot_count = slot_count_of(memory_bytes)
        self._slots = bytearray(self._slot_count * SLOT_BYTES)
        self._digest = digest

    def put(self, key: bytes, offset: int) -> None:
        """Set the offset of a key unless its offset is larger."""
        digest = self._digest(key)
        at = self._find(digest)
        slots = self._slots
        if slots[at : at + SLOT_BYTES] == EMPTY:
            assert self.count < self.count_max
            self.count += 1
            slots[at : at + DIGEST_BYTES] = digest
        elif offset < _OFFSET.unpack_from(slots, at + DIGEST_BYTES)[0]:
            return
        _OFFSET.pack_into(slots, at + DIGEST_BYTES, offset)

    def offset_of(self, key: bytes) -> int:
        """Return the offset of a key, `NOT_FOUND` if it has none."""
        at = self._find(self._digest(key))
        if self._slots[at : at + SLOT_BYTES] == EMPTY:
            return NOT_FOUND
        return int(_OFFSET.unpack_from(self._slots, at + DIGEST_BYTES)[0])

    def _find(self, digest: bytes) -> int:
        """Return where a digest is, or the empty slot where it belongs."""
        slots, slot_count = self._slots, self._slot_count
        number = 0
        for attempt in range(HASH_PROBE_COUNT + slot_count):
            if attempt < HASH_PROBE_COUNT:
                number = int.from_bytes(digest[attempt : attempt + 4], "big")
            else:
                number += 1
            at = number % slot_count * SLOT_BYTES
            self.probe_count += 1
            found = slots[at : at + SLOT_BYTES]
            if found == EMPTY or found[:DIGEST_BYTES] == digest:
                return at
        raise AssertionError("a slot of the table is empty")
