"""A push's payload as its client packed it, unpacked within a bound.

Java packs snappy in xerial's framing and librdkafka as one raw block; lz4 is a frame with both.
No payload takes more memory than a few times `bytes_max`, whatever it claims.
"""

from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.limits import MIB
from ottla.wire.compression import UnpacksToTooMuchError, codec_of, decompress

UNPACKED_BYTES_MAX = 16 * MIB
"""What one push may unpack to.  Lower refuses clients with very many metrics, higher lets a
few hostile ones take the memory of the broker."""


def unpack(
    payload: bytes | memoryview, codec: int, *, bytes_max: int = UNPACKED_BYTES_MAX
) -> bytes:
    """Return what a payload holds, packed by `codec` (Kafka's compression type).

    RefusedError: TELEMETRY_TOO_LARGE when it unpacks to more than `bytes_max`, INVALID_RECORD when
    it is damaged, UNSUPPORTED_COMPRESSION_TYPE when there is no such codec.
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
