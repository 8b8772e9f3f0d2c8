"""Converts keys, values and headers of records to text, in formats that need no schema. Pure.

A long text is truncated, and the result states this. Templates show control characters and HTML as
escapes.
"""

import base64
import json
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

from ottla.model.limits import MIB
from ottla.model.values import frozen

PREVIEW_CHARS = 400
"""Maximum number of characters of a record's key or value in a list. A hundred records then fit
into 100 KB."""
WHOLE_CHARS = 100_000
"""Maximum number of characters of a key or value on the page of one record. Browsers display longer
texts slowly."""
PARSED_BYTES_MAX = MIB
"""Maximum size, in bytes, of a record's key or value that is parsed as JSON or with a schema."""
INDENTED_DEPTH_MAX = 40
"""Nesting depth of JSON up to which lines are indented. Without this limit, a value of a thousand
nested lists would become a thousand times as long."""
HEX_LINE_BYTES = 16

FORMATS = {
    "auto": "detected",
    "text": "text (UTF-8)",
    "json": "JSON",
    "hex": "hexadecimal",
    "base64": "Base64",
    "int": "integer (big-endian)",
    "double": "floating-point number",
    "uuid": "UUID",
}
"""Formats of keys and values that need no schema, with the names that forms show."""
HIDDEN = "hidden"
NONE = "none"


@frozen(kw_only=True)
class ShownField:
    """A record's key, value or header as templates show it."""

    format: str
    """Format in which the bytes of the field were decoded, "none" for null, or "hidden"."""
    text: str
    """Content of the field as text. Empty for null and hidden fields."""
    size_bytes: int | None
    """Size of the record's key, value or header in bytes. None for null and hidden fields."""
    is_cut: bool = False
    """True if `text` is only the beginning of the field's content."""
    problem: str = ""
    """Reason why the requested format was not used, as a sentence. Empty if it was used."""
    schema: str = ""
    """Name of the schema that decoded the field, such as "Avro, schema 17". Empty for formats
    without a schema."""


NULL_FIELD = ShownField(format=NONE, text="", size_bytes=None)
HIDDEN_FIELD = ShownField(format=HIDDEN, text="", size_bytes=None)


@frozen(kw_only=True)
class DecodedField:
    """A decoded key or value of a record."""

    format: str
    content: object
    """Content of the key or value for filters: dicts, lists and scalars."""
    text: str
    problem: str = ""
    schema: str = ""


class _NotThisFormatError(ValueError):
    """Error if the bytes of a key or value are not in the requested format."""


def decode_plain(data: bytes, format_name: str) -> DecodedField:
    """Decode the bytes of a key or value in a format without a schema. "auto" selects the first
    format that fits: JSON objects and lists, text, or hexadecimal. Bytes that are not in the
    requested format are decoded as with "auto", and `problem` has the reason."""
    decode = _DECODERS.get(format_name)
    if decode is None:
        return _detected(data)
    try:
        return decode(data)
    except _NotThisFormatError as error:
        found = _detected(data)
        return DecodedField(
            format=found.format,
            content=found.content,
            text=found.text,
            problem=f"not {FORMATS[format_name]}: {error}",
        )


def shown(
    decoded: DecodedField, size_bytes: int, *, chars_max: int, is_indented: bool
) -> ShownField:
    """Return a decoded key or value for templates, truncated to `chars_max` characters. JSON is
    indented if `is_indented` is True."""
    text = decoded.text
    if is_indented and decoded.format not in ("text", "hex", "base64"):
        text = indented_json(text, chars_max=chars_max + 1)
    return ShownField(
        format=decoded.format,
        text=text[:chars_max],
        size_bytes=size_bytes,
        is_cut=len(text) > chars_max,
        problem=decoded.problem,
        schema=decoded.schema,
    )


def parse_json(text: str) -> object:
    """Parse JSON with exact numbers: decimals become Decimal. Raises ValueError for every text that
    cannot be parsed, for example because of too deep nesting or numbers of thousands of digits."""
    try:
        return json.loads(text, parse_float=Decimal)
    except (ArithmeticError, RecursionError) as error:
        raise ValueError(str(error) or "the nesting is too deep") from None


def object_text(content: object) -> str:
    """Return a decoded key or value as JSON. Bytes become hexadecimal digits, and other types
    become their text."""
    if isinstance(content, str):
        return content
    return json.dumps(content, ensure_ascii=False, default=_plain)


def indented_json(text: str, *, chars_max: int) -> str:
    """Return JSON with a separate line for each entry, up to about `chars_max` characters. Numbers,
    order and repeated names are unchanged. A text that is not JSON gets additional line ends."""
    out: list[str] = []
    size, depth, is_line_open = 0, 0, False
    for token in _JSON_TOKEN.finditer(text):
        piece = token.group()
        if piece.isspace():
            continue
        if piece in "{[":
            depth += 1
            piece += _line(depth)
        elif piece in "}]":
            depth = max(0, depth - 1)
            piece = (_line(depth) if is_line_open else "") + piece
            if not is_line_open and out:
                out[-1] = out[-1].rstrip()
        elif piece == ",":
            piece += _line(depth)
        elif piece == ":":
            piece += " "
        is_line_open = piece[-1] not in "\n " or token.group() == ":"
        out.append(piece)
        size += len(piece)
        if size > chars_max:
            break
    return "".join(out)


_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}\[\],:]|\s+|[^"{}\[\],:\s]+', re.DOTALL)


def _line(depth: int) -> str:
    return "\n" + "  " * min(depth, INDENTED_DEPTH_MAX)


def hex_dump(data: bytes, *, chars_max: int) -> str:
    """Return bytes as lines of text: offset, sixteen bytes in hexadecimal and their ASCII
    characters, up to about `chars_max` characters."""
    lines: list[str] = []
    size = 0
    for at in range(0, len(data), HEX_LINE_BYTES):
        row = data[at : at + HEX_LINE_BYTES]
        seen = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        lines.append(f"{at:08x}  {row.hex(' '):<{3 * HEX_LINE_BYTES - 1}}  {seen}")
        size += len(lines[-1]) + 1
        if size > chars_max:
            break
    return "\n".join(lines)


def _detected(data: bytes) -> DecodedField:
    if data.lstrip()[:1] in (b"{", b"["):
        try:
            return _json(data)
        except _NotThisFormatError:
            pass
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return _hex(data)
    return (
        _hex(data) if _BINARY.search(text) else DecodedField(format="text", content=text, text=text)
    )


_BINARY = re.compile("[\x00-\x06\x0e-\x1a\x1c-\x1f]")
"""Pattern of control characters that occur in binary data, but rarely in text. Escape sequences of
terminals count as text, and are shown with visible escapes."""


def _text(data: bytes) -> DecodedField:
    text = data.decode(errors="backslashreplace")
    problem = "" if _is_utf8(data) else r"the bytes that are not UTF-8 are shown as \xNN"
    return DecodedField(format="text", content=text, text=text, problem=problem)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _json(data: bytes) -> DecodedField:
    if len(data) > PARSED_BYTES_MAX:
        raise _NotThisFormatError(f"it is larger than {PARSED_BYTES_MAX:,} bytes")
    try:
        text = data.decode()
        return DecodedField(format="json", content=parse_json(text), text=text)
    except ValueError as error:
        raise _NotThisFormatError(str(error)[:200]) from None


def _hex(data: bytes) -> DecodedField:
    text = data[:WHOLE_CHARS].hex(" ")
    return DecodedField(format="hex", content=text, text=text)


def _base64(data: bytes) -> DecodedField:
    text = base64.b64encode(data).decode()
    return DecodedField(format="base64", content=text, text=text)


def _int(data: bytes) -> DecodedField:
    if len(data) not in (1, 2, 4, 8, 16):
        raise _NotThisFormatError(f"it has {len(data):,} bytes, not 1, 2, 4, 8 or 16")
    number = int.from_bytes(data, "big", signed=True)
    return DecodedField(format="int", content=number, text=str(number))


def _double(data: bytes) -> DecodedField:
    if len(data) not in (4, 8):
        raise _NotThisFormatError(f"it has {len(data):,} bytes, not 4 or 8")
    (number,) = struct.unpack(">f" if len(data) == 4 else ">d", data)
    return DecodedField(format="double", content=number, text=repr(number))


def _uuid(data: bytes) -> DecodedField:
    if len(data) != 16:
        raise _NotThisFormatError(f"it has {len(data):,} bytes, not 16")
    text = str(UUID(bytes=data))
    return DecodedField(format="uuid", content=text, text=text)


_DECODERS: dict[str, Callable[[bytes], DecodedField]] = {
    "text": _text,
    "json": _json,
    "hex": _hex,
    "base64": _base64,
    "int": _int,
    "double": _double,
    "uuid": _uuid,
}


def _plain(value: Any) -> str:
    return f"0x{value.hex()}" if isinstance(value, bytes | bytearray) else str(value)
