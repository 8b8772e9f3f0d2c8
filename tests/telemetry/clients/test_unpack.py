"""Compressed pushes are decompressed, and a bomb takes no memory with any codec."""

import gzip
import subprocess
import sys

import cramjam
import lz4.frame
import pytest
import zstandard

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.limits import GIB, MIB
from ottla.telemetry.clients.unpack import UNPACKED_BYTES_MAX, unpack
from ottla.wire.compression import Codec, compress

DATA = b"org.apache.kafka.producer." * 1_000


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        (0, DATA),
        (1, gzip.compress(DATA)),
        (2, bytes(cramjam.snappy.compress_raw(DATA))),  # librdkafka
        (2, compress(Codec.SNAPPY, DATA)),  # Java: xerial's framing
        (3, lz4.frame.compress(DATA)),
        (4, zstandard.compress(DATA)),
    ],
)
def test_every_packing_a_client_uses_is_unpacked(codec: int, packed: bytes) -> None:
    assert unpack(packed, codec) == DATA


@pytest.mark.parametrize("codec", [5, -1, 127])
def test_a_codec_that_does_not_exist_is_unsupported(codec: int) -> None:
    with pytest.raises(RefusedError) as caught:
        unpack(b"x", codec)
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_damage_is_an_invalid_record(codec: int) -> None:
    with pytest.raises(RefusedError) as caught:
        unpack(b"\x00\xff" * 50, codec)
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", list(Codec))
def test_the_bound_itself_is_allowed_and_one_byte_more_is_too_large(codec: Codec) -> None:
    packed = compress(codec, bytes(1_000))
    assert unpack(packed, codec, bytes_max=1_000) == bytes(1_000)
    with pytest.raises(RefusedError) as caught:
        unpack(packed, codec, bytes_max=999)
    assert caught.value.code is ErrorCode.TELEMETRY_TOO_LARGE


REFUSE_IN_A_PROCESS_OF_ITS_OWN = """
import re, sys
from pathlib import Path
from ottla.model.errors import RefusedError
from ottla.telemetry.clients.unpack import unpack
from ottla.wire.compression import Codec, compress

def peak_bytes():
    # Not getrusage's: that begins with what the parent had.
    return int(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

payload = sys.stdin.buffer.read()
codec = int(sys.argv[1])
unpack(compress(Codec(codec), b"warm"), codec)  # its library is loaded
before_bytes = peak_bytes()
try:
    unpack(payload, codec)
except RefusedError as error:
    print(error.code.name, peak_bytes() - before_bytes)
"""


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_payload_of_one_mib_that_unpacks_to_one_gib_is_refused_in_64_mib(codec: Codec) -> None:
    done = subprocess.run(
        [sys.executable, "-c", REFUSE_IN_A_PROCESS_OF_ITS_OWN, str(int(codec))],
        input=bomb(codec),
        capture_output=True,
        check=True,
    )
    error, grown_bytes = done.stdout.split()
    assert error == b"TELEMETRY_TOO_LARGE"
    # The payload is in the process before; what unpacking adds is what counts.
    assert int(grown_bytes) < 64 * MIB
    assert UNPACKED_BYTES_MAX == 16 * MIB


def bomb(codec: Codec) -> bytes:
    """Return about 1 MiB that unpacks to 1 GiB.

    lz4 repeats at most 255 times, so it needs 4 MiB; snappy at most 21 times, so it can only
    announce a false size.
    """
    piece = bytes(16 * MIB)
    if codec is Codec.SNAPPY:
        claim = bytearray()
        left = GIB
        while left > 0x7F:
            claim.append(left & 0x7F | 0x80)
            left >>= 7
        claim.append(left)
        return bytes(claim) + bytes(1 * MIB - len(claim))
    if codec is Codec.GZIP:
        one = gzip.compress(piece)
    elif codec is Codec.LZ4:
        one = lz4.frame.compress(piece, block_size=lz4.frame.BLOCKSIZE_MAX4MB)
    else:
        one = zstandard.compress(piece)
    data = one * (GIB // len(piece))  # frames and members in a row are one payload
    assert len(data) < 5 * MIB
    return data
