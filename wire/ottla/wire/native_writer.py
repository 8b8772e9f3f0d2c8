"""Writer of a message's fields, for the modules that `codec_native` writes.

Only the compiled wheel imports this. Unusual values, valid or not, raise one of
`native_codec.UNUSUAL`.
"""

from typing import final
from uuid import UUID

from librt.strings import BytesWriter, write_f64_be, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i64, u8

from ottla.model.limits import INT32_MAX
from ottla.wire.codec_types import Chunk, Records
from ottla.wire.native_codec import UnusualError

LENGTH_BYTES = 4
UINT16_MAX = (1 << 16) - 1
INT16_MAX = (1 << 15) - 1


@final
class MessageWriter:
    """Writer of the fields of one message, with the chunks written so far."""

    def __init__(self, head_bytes: int) -> None:
        self.out = BytesWriter()
        self.records_at: list[tuple[int, Records]] = []
        self.head_bytes: i64 = head_bytes
        self._records_bytes: i64 = 0
        at: i64 = 0
        while at < self.head_bytes:
            self.out.append(0)
            at += 1

    def boolean(self, value: bool) -> None:
        """Write the next field, a boolean of one byte."""
        self.out.append(1 if value else 0)

    def int8(self, value: i64) -> None:
        """Write the next field, a signed one-byte number."""
        if not -128 <= value <= 127:
            raise UnusualError("int8")
        self.out.append(u8(value & 0xFF))

    def int16(self, value: int) -> None:
        """Write the next field, a signed two-byte number."""
        write_i16_be(self.out, value)

    def uint16(self, value: i64) -> None:
        """Write the next field, an unsigned two-byte number."""
        if not 0 <= value <= UINT16_MAX:
            raise UnusualError("uint16")
        self.out.append(u8(value >> 8))
        self.out.append(u8(value & 0xFF))

    def int32(self, value: int) -> None:
        """Write the next field, a signed four-byte number."""
        write_i32_be(self.out, value)

    def int64(self, value: int) -> None:
        """Write the next field, a signed eight-byte number."""
        write_i64_be(self.out, value)

    def float64(self, value: float) -> None:
        """Write the next field, an eight-byte floating-point number."""
        write_f64_be(self.out, value)

    def uuid(self, value: UUID) -> None:
        """Write the next field, a UUID of 16 bytes."""
        self.out.write(value.int.to_bytes(16, "big"))

    def uvarint(self, value: i64) -> None:
        """Write an unsigned varint, such as a compact length or a tag."""
        while value > 0x7F:
            self.out.append(u8(value & 0x7F | 0x80))
            value >>= 7
        self.out.append(u8(value))

    def _size(self, size: i64, is_compact: bool) -> None:
        if is_compact:
            self.uvarint(size + 1)
        else:
            self.int32(size)

    def text(self, value: str, is_compact: bool) -> None:
        """Write the next field, a text. With `is_compact`, its length is written as a varint."""
        data = value.encode()
        if is_compact:
            self.uvarint(len(data) + 1)
        else:
            self.int16(len(data))
        self.out.write(data)

    def nullable_text(self, value: str | None, is_compact: bool, is_nullable: bool) -> None:
        """Write the next field, a text or, if `is_nullable`, null for None."""
        if value is not None:
            self.text(value, is_compact)
        elif not is_nullable:
            raise UnusualError("null")
        elif is_compact:
            self.out.append(0)
        else:
            self.int16(-1)

    def bytes_(self, value: bytes, is_compact: bool) -> None:
        """Write the next field of type bytes. With `is_compact`, its length is written as a
        varint."""
        self._size(len(value), is_compact)
        self.out.write(value)

    def nullable_bytes(self, value: bytes | None, is_compact: bool, is_nullable: bool) -> None:
        """Write the next field of type bytes or, if `is_nullable`, null for None."""
        if value is None:
            self.null(is_compact, is_nullable)
        else:
            self.bytes_(value, is_compact)

    def nullable_records(self, value: Records | None, is_compact: bool, is_nullable: bool) -> None:
        """Write the next field, records, without copying them or, if `is_nullable`, null for
        None."""
        if value is None:
            self.null(is_compact, is_nullable)
            return
        size: i64 = len(value)
        self._size(size, is_compact)
        if size or not is_nullable:
            self.records_at.append((len(self.out), value))
            self._records_bytes += size

    def null(self, is_compact: bool, is_nullable: bool) -> None:
        """Write null as the next field, in place of an array, bytes or records."""
        if not is_nullable:
            raise UnusualError("null")
        self._size(-1, is_compact)

    def count(self, count: i64, is_compact: bool) -> None:
        """Write the number of elements of the array that follows."""
        self._size(count, is_compact)

    def tag(self, number: i64, value: "MessageWriter") -> None:
        """Write a tagged field: its tag, its size, and the bytes that `value` has written."""
        data = value.out.getvalue()
        self.uvarint(number)
        self.uvarint(len(data))
        self.out.write(data)

    def chunks(self, correlation_id: int) -> list[Chunk]:
        """Return the finished message as chunks: encoded bytes, and between them the message's
        records."""
        if self.head_bytes:
            self._write_head(correlation_id)
        data = self.out.getvalue()
        if not self.records_at:
            return [data]
        chunks: list[Chunk] = []
        start = 0
        for place, value in self.records_at:
            chunks.append(data[start:place])
            chunks.append(value)
            start = place
        if start < len(data):
            chunks.append(data[start:])
        return chunks

    def _write_head(self, correlation_id: int) -> None:
        length: i64 = len(self.out) + self._records_bytes - LENGTH_BYTES
        if length > INT32_MAX:
            raise UnusualError("length")
        identity: i64 = correlation_id
        at: i64 = 0
        while at < LENGTH_BYTES:
            shift: i64 = 24 - 8 * at
            self.out[at] = u8(length >> shift & 0xFF)
            self.out[at + LENGTH_BYTES] = u8(identity >> shift & 0xFF)
            at += 1
