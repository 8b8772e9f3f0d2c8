"""Messages to bytes and back: one compiled function a message and version, made at first use.

In the compiled form some messages have a codec that was compiled ahead, which is asked first; what
it leaves, by any exception, is decided by those functions (`native_codec`).

`decode` raises ProtocolError for bytes that are not this message, and nothing else.  Encoding
raises ProtocolError when a field is set that the version cannot carry and that may not be dropped
(the peer chose the version, so only its connection pays), and AssertionError for values that no
version carries: null where none is allowed, a number out of its range, text above 32 KiB in an old
version.  Record bytes are never copied: decoded they are a memoryview that keeps the frame alive,
encoded they leave as chunks of their own.
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
from ottla.wire.codec_decoder import COST_FREE_BYTES, COST_PER_BYTE, decoder_source
from ottla.wire.codec_encoder import encoder_source
from ottla.wire.codec_source import FunctionSource
from ottla.wire.codec_types import ZERO_UUID, Chunk, Message, Records, Struct
from ottla.wire.native_codec import ABSENT, UNUSUAL, NativeCodec

M = TypeVar("M", bound=Message)

_Decoder: TypeAlias = Callable[["bytes | memoryview", int, int, int, memoryview], tuple[Any, int]]
_Encoder: TypeAlias = Callable[[Any, "list[bytes] | _Written", list[tuple[int, Records]]], None]

SMALL_BYTES_MAX = 4096
"""Size of the largest message that is copied to be decoded: reading bytes costs half of reading a
view.  Higher copies records for no gain, lower decodes small requests slower."""

_decoders: dict[tuple[type[Message], int], _Decoder] = {}
_small_decoders: dict[tuple[type[Message], int], _Decoder] = {}
"""Those that take bytes."""
_encoders: dict[tuple[type[Message], int], _Encoder] = {}
_natives: dict[type[Message], NativeCodec] = {}
_may_be_native = installed_form() == "compiled"


def decode(message: type[M], version: int, data: bytes | memoryview, at: int = 0) -> M:
    """Read a message that fills `data` from `at` to its end."""
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
    """Read a message that begins at `at`, and say where it ends.

    The elements of its arrays may take `elements_bytes_max` bytes of memory, by default what no
    honest message comes near.  Raises ProtocolError if they take more.
    """
    end = len(data)
    if elements_bytes_max is None:
        elements_bytes_max = COST_FREE_BYTES + end * COST_PER_BYTE
    if _may_be_native:
        native = native_codec(message)
        if native is not ABSENT:
            try:
                return native.decode(version, data, at, elements_bytes_max)
            except UNUSUAL:  # the functions below decide, and name what is wrong
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
    """Write a message as one piece; its records must be bytes.

    One that `is_large` is written as by `encode_large`.
    """
    chunks = (encode_large if is_large else encode_chunks)(message, version)
    return b"".join(chunks)  # type: ignore[arg-type]  # a slice of a file raises TypeError


def encode_chunks(message: Message, version: int) -> list[Chunk]:
    """Write a message as pieces: bytes of ours, and between them the records as they were given."""
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
    """Write a message as `encode_chunks` does, slower, in hardly more memory than its bytes.

    A part for each write, as `encode_chunks` keeps them, takes about 15 times as much where the
    elements are many and small.
    """
    kind = message.__class__
    if _may_be_native and native_codec(kind) is not ABSENT:
        return encode_chunks(message, version)
    encoder = _encoders.get((kind, version)) or _compile_encoder(kind, version)
    written = _Written()
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
    """Return the codec of a message that was compiled ahead, or ABSENT."""
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


class _Written:
    """What an encoder appends to in place of a list: its length is in bytes."""

    __slots__ = ("append", "buffer")

    def __init__(self) -> None:
        self.buffer = BytesIO()
        self.append = self.buffer.write

    def __len__(self) -> int:
        return self.buffer.tell()


def source(message: type[Message], version: int) -> str:
    """Show the two functions that a version is compiled to, for a person who wonders."""
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
    """Make an object of a native class whose fields are not set."""
    return kind.__new__(kind)


def _run(made: FunctionSource, message: type[Message], function: str) -> Any:
    """Compile a function whose globals are its packers, its message's structs, and the runtime."""
    module = sys.modules[str(vars(message)["__module__"])]
    structs = {name: getattr(module, name) for name in made.schema.structs}
    names = {
        **vars(codec_runtime),
        **structs,
        **made.names,
        message.__name__: message,
        # A native class refuses object.__new__, and its own makes no other.
        "new": Struct.__new__ if message.__new__ is Struct.__new__ else _blank,
        "pack": struct.pack,
        "unpack_from": struct.unpack_from,
        "ZERO_UUID": ZERO_UUID,
    }
    where = f"<{function} {message.__name__} v{made.version}>"
    exec(compile(made.text, where, "exec"), names)
    return names[function]
