"""Which partition a key belongs to, as the Java client decides it: murmur2 of the key's bytes."""

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
MASK = 0xFFFFFFFF


def partition_of(key: bytes, partition_count: int) -> int:
    """Return the partition number of a key among `partition_count`."""
    assert partition_count > 0
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def murmur2(data: bytes) -> int:
    """Return the 32-bit murmur2 hash with Kafka's seed."""
    length = len(data)
    result = (SEED ^ length) & MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * MULTIPLIER & MASK
        word = (word ^ word >> 24) * MULTIPLIER & MASK
        result = (result * MULTIPLIER & MASK) ^ word
    if length > whole:
        result = (result ^ int.from_bytes(data[whole:], "little")) * MULTIPLIER & MASK
    result = (result ^ result >> 13) * MULTIPLIER & MASK
    return result ^ result >> 15
