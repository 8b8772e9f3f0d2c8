"""Reader of a message's fields, for the modules that `codec_native` writes.

Only the compiled wheel imports this. Unusual bytes, valid or not, raise one of
`native_codec.UNUSUAL`.
"""

from typing import final
from uuid import UUID

from librt.strings import read_f64_be, read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from ottla.wire.codec_runtime import find_uuid, keep_uuid
from ottla.wire.native_codec import UnusualError

WINDOW_BYTES = 4096
"""Number of bytes that the reader copies at once from a message with records. Reading copied bytes
takes a tenth of the time of reading a view.

A larger value copies records without benefit; with a smaller value, more messages need a second
copy.
"""

WHOLE_BYTES_MAX = 1 << 20
"""Size in bytes of the largest message without records that the reader copies as a whole. Larger
messages are read in place."""

ELEMENT_BYTES = 512
"""Minimum number of bytes in the copied window when the reader begins an array element with
records. Fewer bytes suffice only at the end of the frame."""

UUID_BYTES = 16
UVARINT_MAX = (1 << 32) - 1


@final
class MessageReader:
    """Reader of the fields of one encoded message, with its position in the message."""

    def __init__(
        self, view: memoryview, at: i64, elements_bytes_max: i64, has_records: bool
    ) -> None:
        self.view = view
        self.end: i64 = len(view)
        self.left: i64 = elements_bytes_max
        self.base: i64 = 0
        self.at: i64 = at
        if self.end <= WINDOW_BYTES:
            self.data = view.tobytes()
        elif has_records:
            self.base = at
            self.at = 0
            self.data = view[at : at + WINDOW_BYTES].tobytes()
        elif self.end <= WHOLE_BYTES_MAX:
            self.data = view.tobytes()
        else:
            raise UnusualError("large")

    def position(self) -> i64:
        """Return the position of the message's next field in the whole view."""
        return self.base + self.at

    def move_window(self) -> None:
        """Copy further bytes of the message if the copied part ends soon and the message has more
        bytes."""
        if len(self.data) - self.at < ELEMENT_BYTES and self.base + len(self.data) < self.end:
            self.base += self.at
            self.at = 0
            self.data = self.view[self.base : self.base + WINDOW_BYTES].tobytes()

    def boolean(self) -> bool:
        """Read and return the next field, a boolean of one byte."""
        value: i64 = self.data[self.at]
        self.at += 1
        return value != 0

    def int8(self) -> i64:
        """Read and return the next field, a signed one-byte number."""
        value: i64 = self.data[self.at]
        self.at += 1
        return value - 256 if value > 127 else value

    def int16(self) -> i64:
        """Read and return the next field, a signed two-byte number."""
        value = i64(read_i16_be(self.data, self.at))
        self.at += 2
        return value

    def uint16(self) -> i64:
        """Read and return the next field, an unsigned two-byte number."""
        return self.int16() & 0xFFFF

    def int32(self) -> i64:
        """Read and return the next field, a signed four-byte number."""
        value = i64(read_i32_be(self.data, self.at))
        self.at += 4
        return value

    def int64(self) -> i64:
        """Read and return the next field, a signed eight-byte number."""
        value = read_i64_be(self.data, self.at)
        self.at += 8
        return value

    def float64(self) -> float:
        """Read and return the next field, an eight-byte floating-point number."""
        value = read_f64_be(self.data, self.at)
        self.at += 8
        return value

    def uuid(self) -> UUID:
        """Read and return the next field, a UUID of 16 bytes."""
        part = self._part(UUID_BYTES)
        found = find_uuid(part)
        return keep_uuid(part) if found is None else found

    def uvarint(self) -> i64:
        """Read and return an unsigned varint of 32 bits."""
        value: i64 = self.data[self.at]
        self.at += 1
        return value if value < 0x80 else self._more_uvarint(value)

    def _more_uvarint(self, first: i64) -> i64:
        value: i64 = first & 0x7F
        shift: i64 = 7
        while shift <= 28:
            byte: i64 = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > UVARINT_MAX:
                    break
                return value
            shift += 7
        raise UnusualError("varint")

    def _text_size(self, is_compact: bool) -> i64:
        return self.uvarint() - 1 if is_compact else self.int16()

    def _size(self, is_compact: bool) -> i64:
        return self.uvarint() - 1 if is_compact else self.int32()

    def _part(self, size: i64) -> bytes:
        start = self.at
        stop = start + size
        if stop > len(self.data) or size < 0:
            raise UnusualError("length")
        self.at = stop
        return self.data[start:stop]

    def text(self, is_compact: bool) -> str:
        """Read and return the next field, a text. With `is_compact`, its length is a varint."""
        return self._part(self._text_size(is_compact)).decode()

    def nullable_text(self, is_compact: bool, is_nullable: bool) -> str | None:
        """Read and return the next field, a text. Returns None for null, which is read only if
        `is_nullable`."""
        size = self._text_size(is_compact)
        if size < 0 and is_nullable:
            return None
        return self._part(size).decode()

    def bytes_(self, is_compact: bool) -> bytes:
        """Read and return the next field of type bytes. With `is_compact`, its length is a
        varint."""
        return self._part(self._size(is_compact))

    def nullable_bytes(self, is_compact: bool, is_nullable: bool) -> bytes | None:
        """Read and return the next field of type bytes. Returns None for null, which is read only
        if `is_nullable`."""
        size = self._size(is_compact)
        if size < 0 and is_nullable:
            return None
        return self._part(size)

    def nullable_records(self, is_compact: bool, is_nullable: bool) -> memoryview | None:
        """Return the next field, records, as a view of the frame, without copying them. Returns
        None for null."""
        size = self._size(is_compact)
        if size < 0:
            if is_nullable:
                return None
            raise UnusualError("null")
        start = self.base + self.at
        stop = start + size
        if stop > self.end:
            raise UnusualError("length")
        self.at += size
        if self.at > len(self.data):
            self.base = stop
            self.at = 0
            self.data = self.view[stop : stop + WINDOW_BYTES].tobytes()
        return self.view[start:stop]

    def count(self, is_compact: bool, smallest: i64, cost: i64) -> i64:
        """Read and return the number of elements of the array that follows.

        Each element has at least `smallest` encoded bytes and uses `cost` bytes of memory. Raises
        one of `native_codec.UNUSUAL` if the elements would exceed the rest of the message or its
        memory bound.
        """
        return self.nullable_count(is_compact, False, smallest, cost)

    def nullable_count(self, is_compact: bool, is_nullable: bool, smallest: i64, cost: i64) -> i64:
        """Read the number of elements as `count` does. Returns -1 for null, which is read only if
        `is_nullable`."""
        count = self._size(is_compact)
        if count < 0:
            if is_nullable:
                return -1
            raise UnusualError("null")
        self.left -= count * cost
        if self.left < 0 or count * smallest > self.end - self.base - self.at:
            raise UnusualError("count")
        return count

    def end_tags(self) -> None:
        """Read the number of tagged fields of a struct. Raises UnusualError unless the number is
        zero."""
        if self.uvarint() != 0:
            raise UnusualError("tag")

    def tag_end(self) -> i64:
        """Read the size of a tagged field. Returns the position at which the field must end."""
        size = self.uvarint()
        return self.position() + size

    def end_tag(self, stop: i64) -> None:
        """Check that the reader's position is `stop`, the end of a tagged field."""
        if self.position() != stop or stop > self.end:
            raise UnusualError("tag")
