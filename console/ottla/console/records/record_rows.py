"""Converts records to rows for templates and for downloads. Pure.

If the console hides messages, this module removes keys, values and headers.
"""

import base64
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from ottla.client.fetch.record_batch import ConsumerRecord
from ottla.client.registry.framing import RecordPart
from ottla.console.records.record_text import (
    HIDDEN_FIELD,
    NULL_FIELD,
    PREVIEW_CHARS,
    WHOLE_CHARS,
    DecodedField,
    ShownField,
    decode_plain,
    hex_dump,
    shown,
)
from ottla.model.limits import MIB
from ottla.model.values import frozen
from ottla.model.visible_text import visible_json
from ottla.wire.batch import TimestampType

HEADERS_SHOWN = 5
"""Maximum number of a record's headers that a list of records shows."""
HEADERS_MAX = 200
"""Maximum number of headers that the page of one record shows."""
HEADER_CHARS = 200
DOWNLOAD_BYTES_MAX = 64 * MIB


class DecodesFields(Protocol):
    """Protocol of decoders of record keys and values."""

    def decode(
        self, part: RecordPart, data: bytes, headers: Sequence[tuple[str, bytes | None]]
    ) -> DecodedField:
        """Return a decoded record key or value."""
        ...


@frozen(kw_only=True)
class HeaderRow:
    """One header of a record, for templates."""

    name: str
    value: ShownField


@frozen(kw_only=True)
class MessageRow:
    """One record as a row in a list of records."""

    partition: int
    offset: int
    timestamp_ms: int
    is_append_time: bool
    """True if the broker, not the producer, set the record's timestamp."""
    key: ShownField
    value: ShownField
    headers: tuple[HeaderRow, ...]
    header_count: int
    size_bytes: int
    """Size of the record's key, value and headers in bytes."""


@frozen(kw_only=True)
class WholeRecord:
    """One record for the page that shows only this record."""

    row: MessageRow
    key_hex: str
    """Record key as lines of hexadecimal. Empty if there is no key, or if the console hides
    messages."""
    value_hex: str
    is_key_hex_cut: bool
    is_value_hex_cut: bool


def record_row(
    record: ConsumerRecord,
    decoder: DecodesFields,
    *,
    is_hidden: bool,
    chars_max: int = PREVIEW_CHARS,
    header_count_max: int = HEADERS_SHOWN,
    is_indented: bool = False,
) -> MessageRow:
    """Return a record as a row for a list of records."""

    def field(part: RecordPart, data: bytes | None) -> ShownField:
        if is_hidden:
            return HIDDEN_FIELD
        if data is None:
            return NULL_FIELD
        decoded = decoder.decode(part, data, record.headers)
        return shown(decoded, len(data), chars_max=chars_max, is_indented=is_indented)

    size = len(record.key or b"") + len(record.value or b"")
    size += sum(len(name) + len(value or b"") for name, value in record.headers)
    headers = () if is_hidden else record.headers[:header_count_max]
    return MessageRow(
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        is_append_time=record.timestamp_type is TimestampType.LOG_APPEND_TIME,
        key=field("key", record.key),
        value=field("value", record.value),
        headers=tuple(_header(name, value) for name, value in headers),
        header_count=len(record.headers),
        size_bytes=size,
    )


def whole_record(record: ConsumerRecord, decoder: DecodesFields, *, is_hidden: bool) -> WholeRecord:
    """Return a record for its own page, with the key and value in hexadecimal next to the chosen
    format."""
    row = record_row(
        record,
        decoder,
        is_hidden=is_hidden,
        chars_max=WHOLE_CHARS,
        header_count_max=HEADERS_MAX,
        is_indented=True,
    )
    key, value = (b"", b"") if is_hidden else (record.key or b"", record.value or b"")
    key_hex = hex_dump(key, chars_max=WHOLE_CHARS)
    value_hex = hex_dump(value, chars_max=WHOLE_CHARS)
    return WholeRecord(
        row=row,
        key_hex=key_hex,
        value_hex=value_hex,
        is_key_hex_cut=len(key_hex) > WHOLE_CHARS,
        is_value_hex_cut=len(value_hex) > WHOLE_CHARS,
    )


def download_lines(
    topic: str, records: Iterable[ConsumerRecord], decoder: DecodesFields
) -> Iterator[bytes]:
    """Yield records as lines of JSON for a download, up to about DOWNLOAD_BYTES_MAX bytes. Contents
    that are not valid UTF-8 are in a separate field in Base64, so that no byte is lost."""
    size = 0
    for record in records:
        fields: dict[str, Any] = {
            "topic": topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            "headers": [_content({"name": name}, "value", value) for name, value in record.headers],
        }
        _content(fields, "key", record.key)
        _content(fields, "value", record.value)
        for part, data in (("key", record.key), ("value", record.value)):
            if data is not None:
                decoded = decoder.decode(part, data, record.headers)  # type: ignore[arg-type]
                if decoded.schema:
                    fields[f"{part}_decoded"] = decoded.text
                    fields[f"{part}_schema"] = decoded.schema
        line = visible_json(fields).encode("utf-8", "replace") + b"\n"
        yield line
        size += len(line)
        if size > DOWNLOAD_BYTES_MAX:
            return


def _content(fields: dict[str, Any], name: str, data: bytes | None) -> dict[str, Any]:
    """Add the bytes of a record's key, value or header to the fields of a JSON object, and return
    the object."""
    try:
        fields[name] = None if data is None else data.decode()
    except UnicodeDecodeError:
        fields[f"{name}_base64"] = base64.b64encode(data or b"").decode()
    return fields


def _header(name: str, value: bytes | None) -> HeaderRow:
    field = NULL_FIELD
    if value is not None:
        decoded = decode_plain(value[: 4 * HEADER_CHARS], "auto")
        found = shown(decoded, len(value), chars_max=HEADER_CHARS, is_indented=False)
        is_cut = found.is_cut or len(value) > 4 * HEADER_CHARS
        field = ShownField(
            format=found.format, text=found.text, size_bytes=len(value), is_cut=is_cut
        )
    return HeaderRow(name=name[:HEADER_CHARS], value=field)
