"""Fuzz target: record batches as clients produce them and logs store them (headers, checks,
records, codecs).

The CRC of a mutated batch is corrected unless the input's first byte forbids it. Otherwise nearly
every input would be refused because of its CRC.
"""

import struct
import zlib
from collections.abc import Iterator
from random import Random

from crc32c import crc32c

from ottla.jepsen.fuzz.target import FuzzTarget
from ottla.model.errors import RefusedError
from ottla.model.ids import Epoch, Offset, ProducerId
from ottla.model.limits import KIB, MIB
from ottla.storage.disk.disk_seam import Chunk
from ottla.storage.log.validate import check_records, checked_header, gather, recoded
from ottla.storage.recovery.recovery import end_marker_of
from ottla.storage.segments.append_info import AppendOrigin
from ottla.storage.segments.log_config import LogConfig
from ottla.wire import legacy
from ottla.wire.batch import (
    CRC_AT,
    CRC_START,
    LENGTH_END,
    batches,
    check_crc,
    header_of,
    parse_header,
)
from ottla.wire.batch_builder import (
    ControlType,
    RecordToBuild,
    build_batch,
    build_control_batch,
    build_end_transaction_marker,
)
from ottla.wire.compression import Codec, compress, decompress
from ottla.wire.records import scan

NOW_MS = 1_700_000_000_000
KEEP_CRC_FLAG = 0x80
"""Flag in the first byte of a fuzzing input. If it is set, the CRCs of the input's batches are not
corrected."""

LIMIT_BYTES = 256 * KIB
"""Maximum size in bytes of an uncompressed batch. It is small, so that inputs often exceed it."""

_LENGTH = struct.Struct(">i")


def with_right_crcs(data: bytes) -> bytes:
    """Return the record batches in `data` with corrected CRCs, up to the first invalid length."""
    fixed = bytearray(data)
    at = 0
    while len(fixed) - at >= CRC_START:
        (length,) = _LENGTH.unpack_from(fixed, at + LENGTH_END - _LENGTH.size)
        end = at + LENGTH_END + length
        if not at + CRC_START <= end <= len(fixed):
            break
        crc = crc32c(bytes(fixed[at + CRC_START : end]))
        fixed[at + CRC_AT : at + CRC_START] = crc.to_bytes(4)
        at = end
    return bytes(fixed)


def example_batches(random: Random) -> Iterator[bytes]:
    """Yield valid record batches of every kind and codec."""
    headers = (("h", b"1"), ("\u00fc", None))
    rows = (
        [RecordToBuild(NOW_MS, b"k", b"v")],
        [RecordToBuild(NOW_MS + i, None if i % 2 else b"k", b"v" * i, headers) for i in range(5)],
        [RecordToBuild(NOW_MS - 1000 * i, b"", None) for i in range(3)],
        [RecordToBuild(NOW_MS, random.randbytes(20), b"z" * 300) for _ in range(4)],
    )
    for records in rows:
        for codec in Codec:
            yield build_batch(records, codec=codec)
        yield build_batch(
            records,
            base_offset=Offset(7),
            leader_epoch=Epoch(3),
            producer_id=ProducerId(9),
            producer_epoch=1,
            base_sequence=0,
            is_transactional=True,
        )
    for kind in (ControlType.COMMIT, ControlType.ABORT):
        yield build_end_transaction_marker(
            kind,
            timestamp_ms=NOW_MS,
            producer_id=ProducerId(9),
            producer_epoch=1,
            coordinator_epoch=Epoch(4),
            base_offset=Offset(20),
        )
    yield build_control_batch([(ControlType.LEADER_CHANGE, bytes(9))], timestamp_ms=NOW_MS)


def _seeds(random: Random) -> Iterator[bytes]:
    found = list(example_batches(random))
    for flags in (0, 1, 2, 3):
        for data in found:
            yield bytes([flags]) + data
    yield bytes([KEEP_CRC_FLAG]) + found[0]
    yield b"\0" + found[0] + found[1]


def _config_of(flags: int) -> LogConfig:
    return LogConfig(
        is_log_append_time=bool(flags & 1),
        is_compacted=bool(flags & 2),
        is_every_record_checked=True,
        codec=Codec(flags >> 2 & 7) if flags >> 2 & 7 in tuple(Codec) else None,
        max_message_bytes=LIMIT_BYTES,
    )


def _check(data: bytes) -> None:
    flags = data[0] if data else 0
    body = data[1:] if flags & KEEP_CRC_FLAG else with_right_crcs(data[1:])
    _check_append(body, _config_of(flags))
    for at, header in batches(body):
        check_crc(body, at, header)
        end_marker_of(body, at, header)
        for record in scan(body, at, header, LIMIT_BYTES):
            assert header.base_offset <= record.offset <= header.last_offset


def _check_append(body: bytes, config: LogConfig) -> None:
    """Check a batch as a leader does before an append. If the batch is accepted, its stored form
    must be valid."""
    view = memoryview(body)
    for origin in (AppendOrigin.CLIENT, AppendOrigin.COORDINATOR):
        try:
            header = header_of(checked_header(view, origin, config, NOW_MS)[0])
            check_records(view, header, config, now_ms=NOW_MS)
            taken = view if config.codec is None else recoded(view, header, config.codec)
        except RefusedError:
            continue
        chunks: list[Chunk] = []
        gather(
            chunks,
            taken,
            parse_header(taken).size_bytes,
            Offset(100),
            Epoch(5),
            NOW_MS if config.is_log_append_time else -1,
        )
        written = b"".join(chunks)
        ((at, stored),) = batches(written)
        assert check_crc(written, at, stored)
        offsets = [record.offset for record in scan(written, at, stored)]
        assert offsets == list(range(100, 100 + header.record_count))


BATCHES = FuzzTarget(
    name="batches",
    sentence="record batches: headers, checks of a leader, records, all codecs",
    check=_check,
    seeds=_seeds,
    allocation_free_bytes=MIB + 6 * LIMIT_BYTES,  # unpacked, packed again, and its records
)


LEGACY = len(Codec)
"""First byte of a fuzzing input that contains an old message set instead of record batches."""


def _check_codec(data: bytes) -> None:
    number = data[0] % (len(Codec) + 1) if data else 0
    if number == LEGACY:
        _check_legacy(data[1:])
        return
    codec = Codec(number)
    unpacked = decompress(codec, data[1:], LIMIT_BYTES)
    assert len(unpacked) <= LIMIT_BYTES
    if len(unpacked) <= KIB:
        assert decompress(codec, compress(codec, unpacked), LIMIT_BYTES) == unpacked


def _codec_seeds(random: Random) -> Iterator[bytes]:
    texts = (b"", b"a", b"abc" * 400, random.randbytes(500), bytes(LIMIT_BYTES), bytes(3 * KIB))
    for codec in Codec:
        for text in texts:
            packed = compress(codec, text)
            yield bytes([codec]) + packed
            if codec is not Codec.NONE and len(packed) < KIB:
                yield bytes([codec]) + packed * 3
    for data in _legacy_seeds(random):
        yield bytes([LEGACY]) + data


def _check_legacy(data: bytes) -> None:
    for message in legacy.messages(_with_right_legacy_crcs(data), LIMIT_BYTES):
        assert message.magic in legacy.MESSAGE_BYTES_MIN


def _with_right_legacy_crcs(data: bytes) -> bytes:
    fixed = bytearray(data)
    at = 0
    while len(fixed) - at >= legacy.ENTRY_HEADER_BYTES + 4:
        (size,) = _LENGTH.unpack_from(fixed, at + 8)
        start = at + legacy.ENTRY_HEADER_BYTES
        if not 4 <= size <= len(fixed) - start:
            break
        crc = zlib.crc32(bytes(fixed[start + 4 : start + size]))
        fixed[start : start + 4] = crc.to_bytes(4)
        at = start + size
    return bytes(fixed)


def legacy_message(offset: int, magic: int, attributes: int, value: bytes | None) -> bytes:
    """Return one message in an old message format."""
    stamp = struct.pack(">q", NOW_MS) if magic else b""
    packed = b"\xff\xff\xff\xff" if value is None else len(value).to_bytes(4) + value
    body = bytes(4) + bytes([magic, attributes]) + stamp + b"\xff\xff\xff\xff" + packed
    return struct.pack(">qi", offset, len(body)) + body


def _legacy_seeds(random: Random) -> Iterator[bytes]:
    for magic in (0, 1):
        plain = [legacy_message(at, magic, 0, value) for at, value in enumerate((b"v", None))]
        yield b"".join(plain)
        inner = _with_right_legacy_crcs(b"".join(plain))
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
            yield legacy_message(9, magic, codec, compress(codec, inner))


CODECS = FuzzTarget(
    name="codecs",
    sentence="the five decompressors with their size limit, and old message sets (before v2)",
    check=_check_codec,
    seeds=_codec_seeds,
    allocation_free_bytes=MIB + 6 * LIMIT_BYTES,
    input_bytes_max=64 * KIB,
)
