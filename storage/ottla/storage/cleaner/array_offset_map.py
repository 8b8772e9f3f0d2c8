"""Offset map of the log cleaner, stored in numpy arrays. Each operation stores or looks up many
keys at once. No I/O.

The capacity equals that of a `SlotTable` in the same amount of memory. A slot is a row of three
numbers: two halves of the key's 128-bit hash, and the key's offset plus one. An empty slot is all
zeros, so fresh memory needs no initialisation.

The hash is multilinear (Lemire and Kaser, "Strongly universal string hashing is fast"). It has four
sums over the key's 32-bit words, and each word is multiplied by a random number that belongs to its
position. Keys that were chosen without knowledge of these numbers collide with a probability of
2^-128. Keys longer than `LONG_BYTES` are hashed one by one with a keyed cryptographic hash.
"""

import hashlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ottla.storage.cleaner.offset_map import (
    DIGEST_BYTES,
    NOT_FOUND,
    key_count_max,
    slot_count_of,
)
from ottla.wire.batch import Buffer

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]

WORD_BYTES = 4
LONG_BYTES = 256
"""Key length in bytes above which record keys are hashed one by one. The vectorised hash takes one
step for each word of the longest key, so it is inefficient if only few keys are long."""
ROW_COUNT = 4
"""Number of 32-bit sums that form the hash of a key, 128 bits in total."""
TAIL_MASKS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF, 0xFFFFFFFF], dtype=np.uint32)
"""Mask for the last 32-bit word of a key, by the number of key bytes in that word."""
JUMP_COUNT = 48
"""Number of probes of the offset map at slots that are derived from the second half of a key's
hash. Later probes are linear, so that a search always reaches an empty slot, even if the map is
nearly full."""
HIGH_HALF = np.uint64(0xFFFFFFFF00000000)
HALF_BITS = np.uint64(32)
ROOMY_FACTOR = 2
"""Number of slots of the offset map per expected key, if the memory permits. Probe sequences are
then short, and compacting a short dirty section uses little of the memory."""


class KeyHashes(NamedTuple):
    """128-bit hashes of several record keys, as two columns: the first and the second half of each
    hash."""

    first: Hashes
    second: Hashes


class KeyHasher:
    """The keyed hash function for the record keys in one compaction of a log."""

    def __init__(self, seed: int) -> None:
        self._seed = seed.to_bytes(DIGEST_BYTES, "big")
        count = ROW_COUNT * (LONG_BYTES // WORD_BYTES + 2)
        drawn = hashlib.shake_256(self._seed).digest(count * 8)
        self._factors = np.frombuffer(drawn, dtype="<u8").reshape(-1, ROW_COUNT).astype(np.uint64)

    def of_keys(self, data: Buffer, at: Ints, sizes: Ints) -> KeyHashes:
        """Return the hashes of record keys, which start at the positions `at` of `data`. `sizes`
        contains the key lengths in bytes. No key may be null."""
        view = memoryview(data)
        if len(view) < int((at + sizes).max(initial=0)) + WORD_BYTES:
            # The last word of the last key may extend beyond the data.
            view = memoryview(bytes(view) + bytes(WORD_BYTES))
        words = np.ndarray(len(view) - WORD_BYTES + 1, dtype="<u4", buffer=view, strides=(1,))
        factors = self._factors
        size_words = sizes.astype(np.uint64)
        sums = [factors[0, row] + size_words * factors[1, row] for row in range(ROW_COUNT)]
        is_long = sizes > LONG_BYTES
        has_long = bool(is_long.any())
        lengths = np.where(is_long, 0, sizes) if has_long else sizes
        self._add_words(words, at, lengths, sums)
        for one in sums:
            one &= HIGH_HALF
        sums[1] >>= HALF_BITS
        sums[3] >>= HALF_BITS
        hashes = KeyHashes(sums[0] | sums[1], sums[2] | sums[3])
        if has_long:
            for row in np.flatnonzero(is_long).tolist():
                key = view[int(at[row]) : int(at[row] + sizes[row])]
                digest = hashlib.blake2b(key, digest_size=DIGEST_BYTES, key=self._seed).digest()
                hashes.first[row] = int.from_bytes(digest[:8], "big")
                hashes.second[row] = int.from_bytes(digest[8:], "big")
        return hashes

    def _add_words(
        self, words: NDArray[np.uint32], at: Ints, lengths: Ints, sums: list[Hashes]
    ) -> None:
        """Add the words of each key to the key's hash sums, each word multiplied by the random
        factor of its position. A key is skipped once all its words are added."""
        longest = int(lengths.max(initial=0))
        shortest = int(lengths.min(initial=0))
        for number in range((longest + WORD_BYTES - 1) // WORD_BYTES):
            begin = number * WORD_BYTES
            row_factors = self._factors[number + 2]
            if shortest >= begin + WORD_BYTES:
                word = words[at + begin].astype(np.uint64)
                for row in range(ROW_COUNT):
                    sums[row] += word * row_factors[row]
                continue
            rows = np.flatnonzero(lengths > begin)
            left = np.minimum(lengths[rows] - begin, WORD_BYTES)
            word = (words[at[rows] + begin] & TAIL_MASKS[left]).astype(np.uint64)
            for row in range(ROW_COUNT):
                sums[row][rows] += word * row_factors[row]


class ArrayOffsetMap:
    """The offset map for one compaction of a log, as numpy arrays."""

    def __init__(self, memory_bytes: int, load_factor: float, hasher: KeyHasher, most: int) -> None:
        """Create an empty offset map for at most `most` keys, in at most `memory_bytes`."""
        self.count = 0
        self.count_max = key_count_max(memory_bytes, load_factor)
        slot_count = min(slot_count_of(memory_bytes), max(64, ROOMY_FACTOR * most))
        self._slot_count = np.uint64(slot_count)
        self._first = np.zeros(slot_count, dtype=np.uint64)
        self._second = np.zeros(slot_count, dtype=np.uint64)
        self._offset_after = np.zeros(slot_count, dtype=np.int64)
        self._hasher = hasher

    def put(self, key: bytes, offset: int) -> None:
        """Set the offset of a record key. Does nothing if the map already has a larger offset for
        the key."""
        if offset > self.offset_of(key):
            self.put_all(self._hashes_of(key), np.array([offset], dtype=np.int64))

    def offset_of(self, key: bytes) -> int:
        """Return the offset stored for a record key, or `NOT_FOUND` if the map lacks the key."""
        return int(self.offsets_of(self._hashes_of(key))[0])

    def _hashes_of(self, key: bytes) -> KeyHashes:
        sizes = np.array([len(key)], dtype=np.int64)
        return self._hasher.of_keys(key, np.zeros(1, dtype=np.int64), sizes)

    def put_all(self, hashes: KeyHashes, offsets: Ints) -> None:
        """Set the offsets of several record keys, which are identified by their hashes. The offsets
        must ascend, and must not be below any offset in the map.

        The caller ensures that the map has room for all of the keys.
        """
        assert self.count + len(offsets) <= self.count_max
        first, second, offset_after = hashes.first, hashes.second, offsets + 1
        attempt = 0
        slots = self._slots_of(first, second, attempt)
        while len(slots):
            is_empty = self._offset_after[slots] == 0
            if is_empty.any():
                # If several keys compete for one slot, the last one wins, in all columns alike.
                rows = np.flatnonzero(is_empty)
                wanted = slots[rows]
                self._first[wanted] = first[rows]
                self._second[wanted] = second[rows]
                self._offset_after[wanted] = offset_after[rows]
                self.count += int((self._offset_after[wanted] == offset_after[rows]).sum())
            is_same = (self._first[slots] == first) & (self._second[slots] == second)
            # Offsets ascend, and the last assignment to a slot wins.
            self._offset_after[slots[is_same]] = offset_after[is_same]
            if is_same.all():
                return
            rows = np.flatnonzero(~is_same)
            first, second, offset_after = first[rows], second[rows], offset_after[rows]
            attempt += 1
            slots = self._next_slots(slots[rows], first, second, attempt)

    def offsets_of(self, hashes: KeyHashes) -> Ints:
        """Return the offset of each key, which is identified by its hash. The result is `NOT_FOUND`
        for a key that the map lacks."""
        first, second = hashes
        found = np.full(len(first), NOT_FOUND, dtype=np.int64)
        rows: Ints | None = None
        attempt = 0
        slots = self._slots_of(first, second, attempt)
        while len(slots):
            after = self._offset_after[slots]
            is_same = (self._first[slots] == first) & (self._second[slots] == second)
            is_same &= after != 0
            if rows is None:
                np.copyto(found, after - 1, where=is_same)
            else:
                found[rows[is_same]] = after[is_same] - 1
            left = np.flatnonzero(~is_same & (after != 0))
            if not len(left):
                return found
            rows = left if rows is None else rows[left]
            first, second = first[left], second[left]
            attempt += 1
            slots = self._next_slots(slots[left], first, second, attempt)
        return found

    def _slots_of(self, first: Hashes, second: Hashes, attempt: int) -> Ints:
        place = first if attempt == 0 else first + np.uint64(attempt) * (second | np.uint64(1))
        scaled = (place >> HALF_BITS) * self._slot_count
        return (scaled >> HALF_BITS).astype(np.int64)

    def _next_slots(self, slots: Ints, first: Hashes, second: Hashes, attempt: int) -> Ints:
        if attempt < JUMP_COUNT:
            return self._slots_of(first, second, attempt)
        return (slots + 1) % np.int64(self._slot_count)
