"""Prints records in the requested format. The available formats are kcat's."""

import argparse
import re
import sys
from typing import Any

from ottla.client.fetch.position_reads import ReadPosition
from ottla.client.fetch.record_batch import ConsumerRecord
from ottla.model.visible_text import visible, visible_json
from ottla.wire.batch import TimestampType

ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\\\": "\\"}


class Printer:
    """Printer of records in the format that the command line requests."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.count = 0
        self._is_json: bool = arguments.json
        self._is_seen = sys.stdout.isatty()
        """True if the output is a terminal, where control characters in records must be escaped."""
        text = arguments.format_string
        if text is None:
            delimiter = arguments.key_delimiter
            text = "%s\\n" if delimiter is None else f"%k{delimiter}%s\\n"
        self._tokens: list[str] = re.findall(r"%[a-zA-Z%]|\\[ntr\\]|[^%\\]+|.", text)
        self._is_plain = self._tokens == ["%s", "\\n"] and not self._is_seen
        """True if the requested format consists of each record's value on a separate line,
        unescaped."""

    def show(self, position: ReadPosition, record: ConsumerRecord) -> None:
        """Print one record. `position` is its topic, partition and offset."""
        self.count += 1
        out = sys.stdout.buffer
        if self._is_json:
            out.write(self.json(position, record).encode() + b"\n")
            return
        if self._is_plain:
            out.write((record.value or b"") + b"\n")
            return
        for token in self._tokens:
            part = self._part(token, position, record)
            if self._is_seen:
                part = visible(part.decode(errors="backslashreplace"), keeps_layout=True).encode()
            out.write(part)

    def _part(self, token: str, position: ReadPosition, record: ConsumerRecord) -> bytes:
        match token:
            case "%s":
                return record.value or b""
            case "%k":
                return record.key or b""
            case "%S" | "%K":
                content = record.value if token == "%S" else record.key
                return b"-1" if content is None else b"%d" % len(content)
            case "%h":
                return b",".join(
                    name.encode() + b"=" + (value if value is not None else b"NULL")
                    for name, value in record.headers
                )
            case "%t":
                return position.topic.encode()
            case "%p" | "%o" | "%T":
                numbers = {
                    "%p": position.partition,
                    "%o": record.offset,
                    "%T": record.timestamp_ms,
                }
                return b"%d" % numbers[token]
            case "%%":
                return b"%"
            case _:
                return ESCAPES.get(token, token).encode()

    def json(self, position: ReadPosition, record: ConsumerRecord) -> str:
        """Return a record in kcat's JSON form, without spaces. Headers are included only if the
        record has headers."""
        is_create_time = record.timestamp_type is TimestampType.CREATE_TIME
        fields: dict[str, Any] = {
            "topic": position.topic,
            "partition": position.partition,
            "offset": record.offset,
            "tstype": "create" if is_create_time else "logappend",
            "ts": record.timestamp_ms,
            "broker": position.leader,
        }
        if record.headers:
            fields["headers"] = [
                text for name, value in record.headers for text in (name, _text(value))
            ]
        fields["key"] = _text(record.key)
        fields["payload"] = _text(record.value)
        return visible_json(fields, separators=(",", ":"))


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode(errors="replace")
