"""Hashes all keys of a batch at once, by the murmur2 function of the client's partitioner, in
numpy.

All keys are hashed in parallel, one word of each key per step. Pure. Invariant:
SameAsThePartitioner (checked by a property test).
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla.client.produce.partitioner import MULTIPLIER, SEED, murmur2

LONG_BYTES = 256
"""Length in bytes above which a record's key is hashed separately. Otherwise a few long keys would
cause many steps with almost no data."""
WORD_BYTES = 4
SIGN = np.uint32(0x7FFFFFFF)
M = np.uint32(MULTIPLIER)
TAIL_MASKS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], dtype=np.uint32)
"""Bit mask of the last word of a record's key, by the key's length modulo four."""


def key_hashes(keys: pa.BinaryArray) -> npt.NDArray[np.uint32]:
    """Return the murmur2 hash of each record's key, with the sign bit cleared.

    The hash modulo the partition count is the key's partition. The result for a null key is
    meaningless.
    """
    count = len(keys)
    _valid, offset_bytes, data = keys.buffers()
    if not count or data is None:
        return np.full(count, murmur2(b"") & 0x7FFFFFFF, dtype=np.uint32)
    offsets = np.frombuffer(offset_bytes, dtype=np.int32)[keys.offset : keys.offset + count + 1]
    begins, lengths = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    padded = bytes(data) + bytes(WORD_BYTES)
    # A view of all words, one starting at each byte.
    words = np.ndarray(len(padded) - WORD_BYTES + 1, dtype="<u4", buffer=padded, strides=(1,))
    is_long = lengths > LONG_BYTES
    hashes = _side_by_side(words, begins, np.where(is_long, 0, lengths))
    for row in np.flatnonzero(is_long):
        hashes[row] = murmur2(padded[begins[row] : begins[row] + lengths[row]])
    return hashes & SIGN


def _side_by_side(
    words: npt.NDArray[np.uint32], begins: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint32]:
    order = np.argsort(-lengths, kind="stable")
    begins, lengths = begins[order], lengths[order]
    hashes = np.uint32(SEED) ^ lengths.astype(np.uint32)
    whole = lengths // WORD_BYTES
    for number in range(int(whole[0])):
        active = int(np.searchsorted(-whole, -number))
        word = words[begins[:active] + number * WORD_BYTES] * M
        hashes[:active] = hashes[:active] * M ^ (word ^ word >> np.uint32(24)) * M
    rest = lengths % WORD_BYTES
    tail = words[begins + whole * WORD_BYTES] & TAIL_MASKS[rest]
    hashes = np.where(rest > 0, (hashes ^ tail) * M, hashes)
    hashes = (hashes ^ hashes >> np.uint32(13)) * M
    hashes ^= hashes >> np.uint32(15)
    found = np.empty_like(hashes)
    found[order] = hashes
    return found
