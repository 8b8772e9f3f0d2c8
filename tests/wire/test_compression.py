"""Codecs agree with the clients' own libraries, and no batch is a bomb."""

import gzip
import tracemalloc
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import cramjam
import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from kafka import codec as kafka_codec

from ottla.model.errors import CorruptDataError
from ottla.model.limits import KIB, MIB
from ottla.wire.compression import Codec, UnpacksToTooMuchError, codec_of, compress, decompress

PACKED = [codec for codec in Codec if codec is not Codec.NONE]
ZSTD_WITHOUT_SIZE = zstandard.ZstdCompressor(write_content_size=False)
KAFKA_PYTHON_DECODERS: dict[Codec, Callable[[bytes], bytes]] = {
    Codec.GZIP: kafka_codec.gzip_decode,
    Codec.SNAPPY: kafka_codec.snappy_decode,
    Codec.LZ4: kafka_codec.lz4_decode,
    Codec.ZSTD: kafka_codec.zstd_decode,
}


@given(st.binary(max_size=2_000), st.sampled_from(list(Codec)), st.integers(1, 60))
def test_what_was_compressed_comes_back(data: bytes, codec: Codec, times: int) -> None:
    data *= times
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", PACKED)
def test_kafka_python_unpacks_what_we_pack(codec: Codec) -> None:
    data = b"some text " * 20_000
    assert KAFKA_PYTHON_DECODERS[codec](compress(codec, data)) == data


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        (Codec.SNAPPY, snappy.compress(b"text " * 100)),
        (Codec.SNAPPY, kafka_codec.snappy_encode(b"text " * 100, xerial_compatible=True)),
        (Codec.LZ4, lz4.frame.compress(b"text " * 100, content_checksum=True)),
        (Codec.LZ4, lz4.frame.compress(b"text " * 50) + lz4.frame.compress(b"text " * 50)),
        (Codec.GZIP, gzip.compress(b"text " * 100, mtime=0)),
        (Codec.GZIP, gzip.compress(b"text " * 50, mtime=0) + gzip.compress(b"text " * 50, mtime=0)),
        (Codec.ZSTD, zstandard.compress(b"text " * 100)),
        (Codec.ZSTD, zstandard.compress(b"text " * 50) + zstandard.compress(b"text " * 50)),
        (Codec.ZSTD, ZSTD_WITHOUT_SIZE.compress(b"text " * 100)),
    ],
)
def test_every_framing_a_client_may_use_is_read(codec: Codec, packed: bytes) -> None:
    assert decompress(codec, packed, 500) == b"text " * 100
    assert decompress(codec, memoryview(packed), 500) == b"text " * 100


def test_snappy_is_written_in_xerial_blocks_as_the_java_client_does() -> None:
    packed = compress(Codec.SNAPPY, b"a" * 100_000)
    assert packed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")


@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_is_refused_before_its_memory_is_taken(codec: Codec) -> None:
    makers: dict[Codec, Callable[[], bytes]] = {
        Codec.GZIP: lambda: gzip.compress(bytes(64 * MIB)),
        Codec.SNAPPY: lambda: bytes(cramjam.snappy.compress_raw(bytes(64 * MIB))),
        Codec.LZ4: lambda: lz4.frame.compress(bytes(64 * MIB)),
        Codec.ZSTD: lambda: zstandard.compress(bytes(64 * MIB)),
    }
    bomb = makers[codec]()
    tracemalloc.start()
    with pytest.raises(CorruptDataError, match="more than 1048576 bytes"):
        decompress(codec, bomb, MIB)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < len(bomb) + 6 * MIB


@pytest.mark.parametrize(
    ("codec", "module", "name"),
    [
        (Codec.GZIP, zlib, "decompressobj"),
        (Codec.LZ4, lz4.frame, "LZ4FrameDecompressor"),
    ],
)
def test_many_short_members_are_not_given_out_again_for_each(
    codec: Codec, module: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library copies the bytes after a member's end: 1 MB of empty members took half a second."""
    given_bytes = 0
    make = getattr(module, name)

    class CountingOutput:
        def __init__(self, **arguments: Any) -> None:
            self.unpacker = make(**arguments)

        def decompress(self, data: bytes, *more: Any, **named: Any) -> Any:
            nonlocal given_bytes
            given_bytes += len(data)
            return self.unpacker.decompress(data, *more, **named)

        def __getattr__(self, attribute: str) -> Any:
            return getattr(self.unpacker, attribute)

    packed = compress(codec, b"") * 10_000
    monkeypatch.setattr(module, name, CountingOutput)
    assert decompress(codec, packed) == b""
    assert given_bytes < 30 * len(packed)


def test_snappy_that_claims_more_than_its_bytes_can_repeat_gets_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cramjam.snappy, "decompress_raw", None)
    with pytest.raises(CorruptDataError, match="3 bytes claim to be 16383"):
        decompress(Codec.SNAPPY, b"\xff\x7f\0")


def test_a_zstd_frame_takes_no_window_beyond_what_it_may_unpack_to() -> None:
    wide = zstandard.ZstdCompressionParameters(window_log=27, write_content_size=0)
    packed = zstandard.ZstdCompressor(compression_params=wide).compressobj()
    data = packed.compress(bytes(1_000)) + packed.flush()

    assert decompress(Codec.ZSTD, data, 128 * MIB) == bytes(1_000)
    with pytest.raises(UnpacksToTooMuchError):
        decompress(Codec.ZSTD, data, 16 * MIB)


def test_an_oversized_result_is_distinguished_from_damage() -> None:
    for codec in PACKED:
        packed = compress(codec, bytes(1 * MIB))
        with pytest.raises(UnpacksToTooMuchError):
            decompress(codec, packed, 1 * MIB - 1)
        with pytest.raises(CorruptDataError) as caught:
            decompress(codec, b"\x00" + packed[1:], 1 * MIB)
        assert not isinstance(caught.value, UnpacksToTooMuchError)


def test_many_xerial_blocks_share_one_limit() -> None:
    packed = compress(Codec.SNAPPY, bytes(MIB))
    with pytest.raises(CorruptDataError):
        decompress(Codec.SNAPPY, packed, MIB - 1)
    assert decompress(Codec.SNAPPY, packed, MIB) == bytes(MIB)


@pytest.mark.parametrize("codec", list(Codec))
def test_the_limit_itself_is_allowed_and_one_byte_more_is_not(codec: Codec) -> None:
    packed = compress(codec, b"x" * 1_000)
    assert len(decompress(codec, packed, 1_000)) == 1_000
    with pytest.raises(CorruptDataError):
        decompress(codec, packed, 999)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_data_cut_anywhere_is_corrupt(codec: Codec) -> None:
    packed = compress(codec, bytes(range(256)) * 4)
    for kept in range(1, len(packed)):
        if codec is Codec.SNAPPY and kept == 16:
            continue  # xerial's header alone is a stream of no blocks
        with pytest.raises(CorruptDataError):
            decompress(codec, packed[:kept], MIB)


def test_what_zstd_unpacks_does_not_depend_on_what_went_before() -> None:
    """Unpackers are used again: not after damage, a bomb or a cut."""
    sound = ZSTD_WITHOUT_SIZE.compress(b"text " * 100)
    bomb = zstandard.compress(bytes(MIB))
    for _ in range(3):
        assert decompress(Codec.ZSTD, sound, KIB) == b"text " * 100
        for bad in (sound[:20] + bytes(5) + sound[25:], b"no zstd at all", bomb):
            with pytest.raises(CorruptDataError):
                decompress(Codec.ZSTD, bad, KIB)


def test_two_threads_unpack_at_once() -> None:
    packed = [zstandard.compress(bytes([number]) * 100_000) for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda data: decompress(Codec.ZSTD, data, MIB), packed * 20))
    assert found == [bytes([number]) * 100_000 for number in range(8)] * 20


def test_cut_zstd_gives_a_prefix_or_our_error() -> None:
    data = bytes(range(256)) * 4
    packed = compress(Codec.ZSTD, data)
    for kept in range(1, len(packed)):
        with suppress(CorruptDataError):
            assert data.startswith(decompress(Codec.ZSTD, packed[:kept], MIB))


@given(st.binary(max_size=300), st.sampled_from(PACKED))
def test_random_bytes_give_only_our_error(data: bytes, codec: Codec) -> None:
    with suppress(CorruptDataError):
        assert len(decompress(codec, data, MIB)) <= MIB


@given(st.binary(min_size=50, max_size=300), st.sampled_from(PACKED), st.data())
def test_flipped_bits_give_only_our_error(data: bytes, codec: Codec, draws: st.DataObject) -> None:
    packed = bytearray(compress(codec, data * 20))
    at = draws.draw(st.integers(0, len(packed) - 1))
    packed[at] ^= 1 << draws.draw(st.integers(0, 7))
    with suppress(CorruptDataError):
        assert len(decompress(codec, packed, MIB)) <= MIB


def test_a_codec_that_does_not_exist_is_corrupt() -> None:
    with pytest.raises(CorruptDataError):
        codec_of(5)
