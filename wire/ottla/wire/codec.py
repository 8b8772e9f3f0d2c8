"""Decoding and encoding of messages. Each version of a message has one function for decoding and
one for encoding, which are compiled at first use.

In the compiled wheel some messages have a codec that was compiled ahead of time, which runs first.
If it raises an exception, the message is processed by these functions instead (`native_codec`).

`decode` raises ProtocolError if the bytes are not this message; it raises no other exception.
Encoding raises ProtocolError if a field that must not be dropped is set, but the version lacks it.
The peer chose the version, so only its connection is affected. Encoding raises AssertionError for
values that no version permits: null in a field that is not nullable, a number out of range, text
above 32 KiB in an old version.

Record bytes are never copied. Decoded records are a memoryview that keeps the frame alive; encoded
records are chunks of their own.
"""

import struct
import sys
from collections.abc import Callable
from importlib import import_module
from io import BytesIO
from typing import Any, TypeAlias, TypeVar

from ottla.model.compiled import installed_form
from ottla.model.errors import ProtocolError
from ottla.wire import codec_runtime, schema
from ottla.wire.codec_types import ZERO_UUID, Chunk, Message, Records, Struct
from ottla.wire.codec_writers.codec_decoder import COST_FREE_BYTES, COST_PER_BYTE, decoder_source
from ottla.wire.codec_writers.codec_encoder import encoder_source
from ottla.wire.codec_writers.codec_source import FunctionSource
from ottla.wire.native_codec import ABSENT, UNUSUAL, NativeCodec

M = TypeVar("M", bound=Message)

_Decoder: TypeAlias = Callable[["bytes | memoryview", int, int, int, memoryview], tuple[Any, int]]
_Encoder: TypeAlias = Callable[[Any, "list[bytes] | _ByteList", list[tuple[int, Records]]], None]

SMALL_BYTES_MAX = 4096
"""Size in bytes of the largest message that the codec copies before decoding. Access to bytes takes
half as long as access to a view.

A larger value copies records without benefit; a smaller value decodes small requests more slowly.
"""

_decoders: dict[tuple[type[Message], int], _Decoder] = {}
_small_decoders: dict[tuple[type[Message], int], _Decoder] = {}
"""Compiled decode functions for small messages, which read bytes instead of views, by message class
and version."""
_encoders: dict[tuple[type[Message], int], _Encoder] = {}
_natives: dict[type[Message], NativeCodec] = {}
_may_be_native = installed_form() == "compiled"


def decode(message: type[M], version: int, data: bytes | memoryview, at: int = 0) -> M:
    """Decode and return the message that fills `data` from position `at` to the end.

    Raises ProtocolError if the bytes are not exactly one such message.
    """
    view = memoryview(data)
    value, end = decode_prefix(message, version, view, at)
    if end != len(view):
        raise ProtocolError(f"{message.__name__} v{version} is followed by {len(view) - end} bytes")
    return value


def decode_prefix(
    message: type[M],
    version: int,
    data: memoryview,
    at: int = 0,
    elements_bytes_max: int | None = None,
) -> tuple[M, int]:
    """Decode and return the message that begins at position `at` of `data`, and the position of its
    end.

    The elements of the message's arrays may use `elements_bytes_max` bytes of memory. The default
    is far above the memory that any regular message uses. Raises ProtocolError if they use more.
    """
    end = len(data)
    if elements_bytes_max is None:
        elements_bytes_max = COST_FREE_BYTES + end * COST_PER_BYTE
    if _may_be_native:
        native = native_codec(message)
        if native is not ABSENT:
            try:
                return native.decode(version, data, at, elements_bytes_max)
            except UNUSUAL:  # the generic functions decide, and name the error
                pass
    is_small = end <= SMALL_BYTES_MAX
    decoders = _small_decoders if is_small else _decoders
    decoder = decoders.get((message, version)) or _compile_decoder(message, version, is_small)
    try:
        if is_small:
            return decoder(data.tobytes(), at, end, elements_bytes_max, data)
        return decoder(data, at, end, elements_bytes_max, data)
    except (IndexError, struct.error):
        raise ProtocolError(f"{message.__name__} v{version} ends too early") from None
    except UnicodeDecodeError:
        raise ProtocolError(f"{message.__name__} v{version} has text that is no UTF-8") from None


def encode(message: Message, version: int, *, is_large: bool = False) -> bytes:
    """Return a message encoded as one piece. Its records must be bytes.

    With `is_large`, the message is encoded in the same way as by `encode_large`.
    """
    chunks = (encode_large if is_large else encode_chunks)(message, version)
    return b"".join(chunks)  # type: ignore[arg-type]  # a slice of a file raises TypeError


def encode_chunks(message: Message, version: int) -> list[Chunk]:
    """Return a message encoded as chunks: encoded bytes, and between them the message's records,
    which are not copied."""
    kind = message.__class__
    if _may_be_native:
        native = native_codec(kind)
        if native is not ABSENT:
            try:
                return native.encode(message, version, 0, 0)
            except UNUSUAL:  # as in decode_prefix
                pass
    encoder = _encoders.get((kind, version)) or _compile_encoder(kind, version)
    parts: list[bytes] = []
    records: list[tuple[int, Records]] = []
    try:
        encoder(message, parts, records)
        if not records:
            return [b"".join(parts)]
        chunks: list[Chunk] = []
        start = 0
        for place, value in records:
            chunks += (b"".join(parts[start:place]), value)
            start = place
        if start < len(parts):
            chunks.append(b"".join(parts[start:]))
        return chunks
    except (struct.error, TypeError, AttributeError, ValueError) as wrong:
        raise AssertionError(f"{kind.__name__} v{version} cannot be written: {wrong}") from wrong


def encode_large(message: Message, version: int) -> list[Chunk]:
    """Return the same chunks as `encode_chunks`. The encoding is slower, but needs little more
    memory than the chunks themselves.

    For many small elements, `encode_chunks` uses about 15 times that memory, because it keeps a
    separate object for each write.
    """
    kind = message.__class__
    if _may_be_native and native_codec(kind) is not ABSENT:
        return encode_chunks(message, version)
    encoder = _encoders.get((kind, version)) or _compile_encoder(kind, version)
    written = _ByteList()
    records: list[tuple[int, Records]] = []
    try:
        encoder(message, written, records)
    except (struct.error, TypeError, AttributeError, ValueError) as wrong:
        raise AssertionError(f"{kind.__name__} v{version} cannot be written: {wrong}") from wrong
    data = written.buffer.getvalue()
    if not records:
        return [data]
    chunks: list[Chunk] = []
    start = 0
    for place, value in records:
        chunks += (data[start:place], value)
        start = place
    if start < len(data):
        chunks.append(data[start:])
    return chunks


def native_codec(message: type[Message]) -> NativeCodec:
    """Return the codec of a message class that was compiled ahead of time, or ABSENT if the class
    has no such codec."""
    return _natives.get(message) or _find_native(message)


def _find_native(message: type[Message]) -> NativeCodec:
    name = f"ottla.wire.native.{schema.module_name(message.__name__)}"
    found = ABSENT
    if _may_be_native:
        try:
            found = import_module(name).CODEC
        except ModuleNotFoundError as missing:
            if missing.name is None or not name.startswith(missing.name):
                raise
    _natives[message] = found
    return found


class _ByteList:
    """List-like object that an encode function appends to. It joins all appended bytes, and its
    length is in bytes."""

    __slots__ = ("append", "buffer")

    def __init__(self) -> None:
        self.buffer = BytesIO()
        self.append = self.buffer.write

    def __len__(self) -> int:
        return self.buffer.tell()


def source(message: type[Message], version: int) -> str:
    """Return the source text of the decode and the encode function for one version of a message,
    for debugging."""
    declared = schema.load(message.SCHEMA)[message.__name__]
    both = decoder_source(declared, version), encoder_source(declared, version)
    return "\n\n\n".join(one.text for one in both)


def _compile_decoder(message: type[Message], version: int, is_small: bool) -> _Decoder:
    if version not in message.VERSIONS:
        raise ProtocolError(f"{message.__name__} has no version {version}")
    declared = schema.load(message.SCHEMA)[message.__name__]
    made = decoder_source(declared, version, is_small=is_small)
    decoder: _Decoder = _run(made, message, "decode")
    (_small_decoders if is_small else _decoders)[message, version] = decoder
    return decoder


def _compile_encoder(message: type[Message], version: int) -> _Encoder:
    assert version in message.VERSIONS, f"{message.__name__} has no version {version}"
    made = encoder_source(schema.load(message.SCHEMA)[message.__name__], version)
    encoder: _Encoder = _run(made, message, "encode")
    _encoders[message, version] = encoder
    return encoder


def _blank(kind: type[Struct]) -> Struct:
    """Create and return an object of a message class that is compiled to native code, without
    setting its fields."""
    return kind.__new__(kind)


def _run(made: FunctionSource, message: type[Message], function: str) -> Any:
    """Compile the generated source of a decode or encode function, and return the function. The
    globals of the function are its packers, the structs of its message and the codec's runtime."""
    module = sys.modules[str(vars(message)["__module__"])]
    structs = {name: getattr(module, name) for name in made.schema.structs}
    names = {
        **vars(codec_runtime),
        **structs,
        **made.names,
        message.__name__: message,
        # A native class refuses object.__new__, and its own cannot create other classes.
        "new": Struct.__new__ if message.__new__ is Struct.__new__ else _blank,
        "pack": struct.pack,
        "unpack_from": struct.unpack_from,
        "ZERO_UUID": ZERO_UUID,
    }
    where = f"<{function} {message.__name__} v{made.version}>"
    exec(compile(made.text, where, "exec"), names)
    return names[function]
