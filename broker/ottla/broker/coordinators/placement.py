"""Maps a group to the partition of `__consumer_offsets` that stores it.

Pure. A transactional id is mapped to a partition of `__transaction_state` in the same way.
"""

from functools import lru_cache

HASHED_CHARS_MAX = 256
"""Maximum number of characters of an id (such as a group id) whose hash is cached. The limit bounds
the memory that clients can fill with long ids."""

_UINT32 = 1 << 32
_INT32_MIN = -(1 << 31)


def java_hash(text: str) -> int:
    """Return the result of Java's String.hashCode for a text. It is computed over UTF-16 units, as
    a signed 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for at in range(0, len(units), 2):
        code = (31 * code + (units[at] << 8 | units[at + 1])) % _UINT32
    return code - _UINT32 if code >= _UINT32 // 2 else code


def partition_of(group_id: str, partition_count: int) -> int:
    """Return the index of the topic partition that stores a group, as Kafka computes it: abs(hash)
    % count, where abs(MIN_VALUE) is 0."""
    is_kept = len(group_id) <= HASHED_CHARS_MAX
    code = (_kept_hash if is_kept else java_hash)(group_id)
    return 0 if code == _INT32_MIN else abs(code) % partition_count


_kept_hash = lru_cache(maxsize=1_024)(java_hash)
"""Function `java_hash` with a cache of its results. An uncached call reads each character of the
id."""
