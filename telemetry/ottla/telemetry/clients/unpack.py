"""Decompression of the payload of a client's push, up to a maximum size. Pure.

For snappy, Java uses xerial's framing and librdkafka a single raw block. For lz4, both clients use
frames. A payload uses at most a few times `bytes_max` of memory, regardless of the size in its
header.
"""

from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.limits import MIB
from ottla.wire.compression import UnpacksToTooMuchError, codec_of, decompress

UNPACKED_BYTES_MAX = 16 * MIB
"""Maximum decompressed size of a push in bytes. With a lower maximum, clients with a large number
of metrics are refused. With a higher maximum, a few hostile clients could exhaust the memory of the
broker."""


def unpack(
    payload: bytes | memoryview, codec: int, *, bytes_max: int = UNPACKED_BYTES_MAX
) -> bytes:
    """Decompress and return the payload of a client's push. `codec` is Kafka's number of the
    compression type.

    Raises RefusedError with TELEMETRY_TOO_LARGE if the result is larger than `bytes_max`,
    INVALID_RECORD if the payload is damaged, or UNSUPPORTED_COMPRESSION_TYPE if the codec is
    unknown.
    """
    try:
        known = codec_of(codec)
    except CorruptDataError:
        raise RefusedError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE) from None
    try:
        return decompress(known, payload, bytes_max)
    except UnpacksToTooMuchError as error:
        raise RefusedError(ErrorCode.TELEMETRY_TOO_LARGE, str(error)) from None
    except CorruptDataError as error:
        raise RefusedError(ErrorCode.INVALID_RECORD, str(error)) from None
