"""The offset map of a log compaction: the largest offset of each key, at 24 bytes a slot.

The map is a hash table with open addressing. It stores the 16-byte digest of a key and its offset,
but never the key. Invariants:
- BoundedMemory: the table is the only memory used, and only slots that are written are touched.
- SameCapacity: in every implementation, the same memory and load factor have room for the same
  number of keys.

Two keys with the same digest would count as one key, and the last record of the older one would be
lost. Therefore the digest has 128 bits and is keyed with a seed that no client can predict. MD5,
which is Kafka's choice, exists for tests that compare with Kafka's table.
"""

import hashlib
from collections.abc import Callable
from struct import Struct
from typing import Protocol

from ottla.model.errors import CorruptDataError

DIGEST_BYTES = 16
SLOT_BYTES = 24
"""Size in bytes of one slot of the offset map: a 16-byte digest of the key and the offset as
int64."""
EMPTY = bytes(SLOT_BYTES)
HASH_PROBE_COUNT = DIGEST_BYTES - 3
"""Number of probes of the offset map that use the key's digest. Each probe reads four consecutive
bytes of the digest, starting one byte after the previous probe. Later probes are linear."""
NOT_FOUND = -1

_OFFSET = Struct(">q")


class OffsetMap(Protocol):
    """Interface of the map from keys to offsets, which both passes of a log compaction use."""

    @property
    def count(self) -> int:
        """Number of record keys in the map."""
        ...

    @property
    def count_max(self) -> int:
        """Maximum number of record keys in the map."""
        ...

    def put(self, key: bytes, offset: int) -> None:
        """Set the offset of a record key. Does nothing if the map already has a larger offset for
        the key. The map must have room for one more key."""
        ...

    def offset_of(self, key: bytes) -> int:
        """Return the offset stored for a record key, or `NOT_FOUND` if the map lacks the key."""
        ...


def slot_count_of(memory_bytes: int) -> int:
    """Return the number of slots of an offset map that fit into `memory_bytes`."""
    return memory_bytes // SLOT_BYTES


def key_count_max(memory_bytes: int, load_factor: float) -> int:
    """Return the number of keys for which an offset map has room.

    At least one slot remains empty, which ends the search for a missing key. Raises
    CorruptDataError if not even one key fits, because compacting a log with such a map would never
    end.
    """
    slots = slot_count_of(memory_bytes)
    count = min(int(slots * load_factor), slots - 1)
    if count < 1:
        raise CorruptDataError(f"an offset map of {memory_bytes} bytes takes no key")
    return count


def keyed_digest(seed: int) -> Callable[[bytes], bytes]:
    """Return a digest function for record keys whose results cannot be predicted without `seed`."""
    key = seed.to_bytes(DIGEST_BYTES, "big")
    return lambda data: hashlib.blake2b(data, digest_size=DIGEST_BYTES, key=key).digest()


def md5_digest(data: bytes) -> bytes:
    """Return the MD5 digest of a record key. Kafka's offset map uses this digest."""
    return hashlib.md5(data, usedforsecurity=False).digest()


class SlotTable:
    """The offset map of a compaction in plain Python: one block of memory, in which a key is
    searched slot by slot."""

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
        """Set the offset of a record key. Does nothing if the map already has a larger offset for
        the key."""
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
        """Return the offset stored for a record key, or `NOT_FOUND` if the map lacks the key."""
        at = self._find(self._digest(key))
        if self._slots[at : at + SLOT_BYTES] == EMPTY:
            return NOT_FOUND
        return int(_OFFSET.unpack_from(self._slots, at + DIGEST_BYTES)[0])

    def _find(self, digest: bytes) -> int:
        """Return the position in bytes of the slot with a key's digest. If the table lacks the key,
        return the position of the empty slot for it."""
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
