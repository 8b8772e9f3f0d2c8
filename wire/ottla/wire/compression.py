"""Compression and decompression with the five codecs of record batches, with a limit on the
decompressed size.

A batch that claims more than `limit_bytes` is refused before that much memory is allocated, so that
no batch can be a decompression bomb. All invalid input raises CorruptDataError. The exception is a
truncated zstd frame, which may yield a prefix; the batch's CRC and record count reveal that. Output
above the limit raises a subclass, UnpacksToTooMuchError.

Snappy is written in xerial's framing, as by the Java client, and read in that framing or as one raw
block. The libraries are imported at first use, so that a broker that only forwards batches
unchanged never loads them.
"""

import zlib
from enum import IntEnum
from struct import Struct
from typing import Any

from ottla.model.errors import CorruptDataError
from ottla.model.limits import DECOMPRESSED_BATCH_BYTES_MAX, KIB

Buffer = bytes | bytearray | memoryview

CHUNK_BYTES = 64 * KIB
"""Size in bytes of the output of one decompression step. A smaller value needs more calls; a larger
value lets the output exceed the limit by more."""
PIECE_BYTES_MIN = 256
"""Number of input bytes in the first decompression step of a gzip member or lz4 frame. The number
is doubled in each further step.

The libraries copy the input that follows the end of a member. If all input were passed at once,
many short members would have quadratic cost.
"""
XERIAL_HEADER = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
XERIAL_MAGIC = XERIAL_HEADER[:8]
XERIAL_BLOCK_BYTES = 32 * KIB
"""Uncompressed size of a xerial block in bytes, as in snappy-java."""
SNAPPY_RATIO_MAX = 22
"""Largest possible compression ratio of snappy: three bytes can encode at most 64. Data that claims
a larger ratio is rejected before memory is allocated."""
LZ4_MAGIC = b"\x04\x22\x4d\x18"
ZSTD_WINDOW_BYTES_MAX = 1 << 27
"""Maximum window size in bytes of an accepted zstd frame. The header of a frame alone can make the
decompressor allocate this much memory."""
ZSTD_WINDOW_BYTES_MIN = 1 << 23
"""Window size in bytes up to which a zstd frame is always accepted, even above the limit on
decompressed bytes. The format requires every reader to support it."""
ZSTD_UNPACKERS_KEPT_MAX = 2
"""Maximum number of idle zstd decompressors that are kept for reuse. Creating a decompressor costs
three times as much as decompressing a kilobyte.

Each may keep the memory of the smallest window. Decompressors with larger windows are not kept.
"""
GZIP_WBITS = 16 + zlib.MAX_WBITS

_BLOCK_LENGTH = Struct(">i")


class UnpacksToTooMuchError(CorruptDataError):
    """Error of data whose decompressed size exceeds the limit. The data may be valid, a
    decompression bomb or a mistake."""


class Codec(IntEnum):
    """Compression codec of a batch's records, as numbered in bits 0 to 2 of the batch's
    attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def codec_of(number: int) -> Codec:
    """Return the compression codec with this number, as in a batch's attribute bits. Raises
    CorruptDataError if the number is unknown."""
    try:
        return Codec(number)
    except ValueError:
        raise CorruptDataError(f"codec {number} does not exist") from None


LZ4_LEVEL_DEFAULT = 9
"""Level in Kafka's setting `compression.lz4.level` that selects lz4's fast compressor. All other
levels are levels of lz4's high-compression mode."""


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Return `data` compressed by a codec, in the codec's framing. Without `level`, the usual level
    of the codec's library is used."""
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.GZIP:
        packer = zlib.compressobj(-1 if level is None else level, wbits=GZIP_WBITS)
        return packer.compress(data) + packer.flush()
    if codec is Codec.SNAPPY:
        return _compress_xerial(data)
    if codec is Codec.LZ4:
        is_fast = level is None or level == LZ4_LEVEL_DEFAULT
        packed: bytes = _lz4_frame().compress(
            data,
            compression_level=0 if is_fast else level,
            block_linked=False,
            store_size=False,
        )
        return packed
    import zstandard

    return zstandard.ZstdCompressor(3 if level is None else level).compress(bytes(data))


def decompress(
    codec: Codec, data: Buffer, limit_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX
) -> bytes:
    """Return `data` decompressed by a codec. Raises CorruptDataError if `data` is corrupt or its
    decompressed size exceeds `limit_bytes`."""
    if codec is Codec.NONE:
        if len(data) > limit_bytes:
            raise _too_large(codec, limit_bytes)
        return bytes(data)
    if codec is Codec.GZIP:
        return _decompress_gzip(data, limit_bytes)
    if codec is Codec.SNAPPY:
        return _decompress_snappy(memoryview(data), limit_bytes)
    if codec is Codec.LZ4:
        return _decompress_lz4(data, limit_bytes)
    return _decompress_zstd(data, limit_bytes)


def _too_large(codec: Codec, limit_bytes: int) -> UnpacksToTooMuchError:
    return UnpacksToTooMuchError(
        f"{codec.name.lower()} data unpacks to more than {limit_bytes} bytes"
    )


def _damaged(codec: Codec, why: object) -> CorruptDataError:
    return CorruptDataError(f"{codec.name.lower()} data is damaged: {why}")


def _decompress_gzip(data: Buffer, limit_bytes: int) -> bytes:
    view = memoryview(data)
    unpacked = bytearray()
    at = 0
    while at < len(view):  # gzip permits several members
        unpacker = zlib.decompressobj(wbits=GZIP_WBITS)
        piece_bytes = PIECE_BYTES_MIN
        while not unpacker.eof:
            piece = view[at : at + piece_bytes]
            if not piece:
                raise _damaged(Codec.GZIP, "it is cut off")
            try:
                unpacked += unpacker.decompress(piece, limit_bytes + 1 - len(unpacked))
            except zlib.error as error:
                raise _damaged(Codec.GZIP, error) from None
            if len(unpacked) > limit_bytes:
                raise _too_large(Codec.GZIP, limit_bytes)
            at += len(piece) - len(unpacker.unused_data)
            piece_bytes = min(2 * piece_bytes, CHUNK_BYTES)
    return bytes(unpacked)


def _compress_xerial(data: Buffer) -> bytes:
    import cramjam

    view = memoryview(data)
    pieces = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        pieces += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(pieces)


def _decompress_snappy(data: memoryview, limit_bytes: int) -> bytes:
    if bytes(data[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _decompress_snappy_block(data, limit_bytes)
    if len(data) < len(XERIAL_HEADER):
        raise _damaged(Codec.SNAPPY, "its xerial header is cut off")
    unpacked = bytearray()
    at = len(XERIAL_HEADER)
    while at < len(data):
        if len(data) - at < _BLOCK_LENGTH.size:
            raise _damaged(Codec.SNAPPY, "a block length is cut off")
        (length,) = _BLOCK_LENGTH.unpack_from(data, at)
        at += _BLOCK_LENGTH.size
        if not 0 < length <= len(data) - at:
            raise _damaged(Codec.SNAPPY, f"block length {length} of {len(data) - at} bytes left")
        unpacked += _decompress_snappy_block(data[at : at + length], limit_bytes - len(unpacked))
        at += length
    return bytes(unpacked)


def _decompress_snappy_block(block: memoryview, limit_bytes: int) -> bytes:
    import cramjam

    try:
        claimed_bytes = cramjam.snappy.decompress_raw_len(block)
        if claimed_bytes > limit_bytes:
            raise _too_large(Codec.SNAPPY, limit_bytes)
        if claimed_bytes > len(block) * SNAPPY_RATIO_MAX:
            raise _damaged(Codec.SNAPPY, f"{len(block)} bytes claim to be {claimed_bytes}")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise _damaged(Codec.SNAPPY, error) from None


def _lz4_frame() -> Any:
    import lz4.frame

    return lz4.frame


def _decompress_lz4(data: Buffer, limit_bytes: int) -> bytes:
    new_unpacker = _lz4_frame().LZ4FrameDecompressor
    view = memoryview(data)
    unpacked = bytearray()
    at = 0
    while at < len(view):
        unpacker = new_unpacker()
        piece_bytes = PIECE_BYTES_MIN
        try:
            while not unpacker.eof:
                room_bytes = limit_bytes + 1 - len(unpacked)
                if room_bytes <= 0:
                    raise _too_large(Codec.LZ4, limit_bytes)
                piece = view[at : at + piece_bytes] if unpacker.needs_input else b""
                at += len(piece)
                taken = unpacker.decompress(piece, max_length=min(room_bytes, CHUNK_BYTES))
                unpacked += taken
                if not taken and not unpacker.eof and unpacker.needs_input and at == len(view):
                    raise _damaged(Codec.LZ4, "it is cut off")
                piece_bytes = min(2 * piece_bytes, CHUNK_BYTES)
        except (RuntimeError, EOFError, ValueError, MemoryError) as error:
            raise _damaged(Codec.LZ4, error) from None
        if len(unpacked) > limit_bytes:
            raise _too_large(Codec.LZ4, limit_bytes)
        at -= len(unpacker.unused_data or b"")
    return bytes(unpacked)


def _decompress_zstd(data: Buffer, limit_bytes: int) -> bytes:
    import zstandard

    unpacked = bytearray()
    window_bytes_max = min(ZSTD_WINDOW_BYTES_MAX, max(ZSTD_WINDOW_BYTES_MIN, limit_bytes))
    unpacker = _take_zstd_unpacker(window_bytes_max)
    try:
        if zstandard.get_frame_parameters(data).window_size > window_bytes_max:
            raise _too_large(Codec.ZSTD, limit_bytes)
        with unpacker.stream_reader(bytes(data), read_across_frames=True) as reader:
            while chunk := reader.read(CHUNK_BYTES):
                unpacked += chunk
                if len(unpacked) > limit_bytes:
                    raise _too_large(Codec.ZSTD, limit_bytes)
    except (zstandard.ZstdError, MemoryError) as error:
        raise _damaged(Codec.ZSTD, error) from None
    if window_bytes_max == ZSTD_WINDOW_BYTES_MIN and len(_kept) < ZSTD_UNPACKERS_KEPT_MAX:
        _kept.append(unpacker)
    return bytes(unpacked)


_kept: list[Any] = []
"""Idle zstd decompressors with the smallest window. Each is used by one thread at a time: a thread
removes the one that it uses, and returns it unless the data was corrupt."""


def _take_zstd_unpacker(window_bytes_max: int) -> Any:
    import zstandard

    if window_bytes_max == ZSTD_WINDOW_BYTES_MIN:
        try:
            return _kept.pop()
        except IndexError:
            pass
    return zstandard.ZstdDecompressor(max_window_size=window_bytes_max)
