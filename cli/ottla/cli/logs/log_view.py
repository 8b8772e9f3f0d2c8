"""Prints rows of log files as tables or as JSON while they are read.

Adjacent rows of one kind form one table of at most `TABLE_ROWS_MAX` rows, so that a file of any
size needs little memory. JSON is one list with one row per line.
"""

import base64
import json
from collections.abc import Iterator
from itertools import groupby, islice
from typing import Any, NamedTuple

from ottla.cli.tables import Moment, header_of, print_table
from ottla.cli.terminal import say, say_block
from ottla.model.amounts import duration, moment
from ottla.model.visible_text import visible_json
from ottla.storage.inspection.batch_walk import BatchRow, Problem
from ottla.storage.inspection.dump import Entry, RecordRow, Row
from ottla.wire.batch import MAGIC

TABLE_ROWS_MAX = 500
"""Maximum number of a log file's rows in one table with aligned columns. With a smaller value, the
heading is repeated more often. With a larger value, more rows are stored in memory before they are
printed."""
VALUE_BYTES_DEFAULT = 200


class Form(NamedTuple):
    """Options for decoding and printing rows of log files."""

    is_metadata: bool = False
    """True to decode the records of a log file as metadata records."""
    is_transactions: bool = False
    """True to decode the records of a log file as records of `__transaction_state`."""
    value_bytes_max: int | None = None
    """Maximum number of bytes of a record's key or value that are shown, or None to show all
    bytes."""


def is_damage(row: Row | Entry) -> bool:
    """Return True if a row of a log file represents corrupt bytes."""
    if isinstance(row, Problem):
        return row.is_damage
    if isinstance(row, Entry):
        return row.problem is not None
    return isinstance(row, BatchRow) and not row.is_crc_valid


# ---- JSON


class JsonFiles:
    """Printer of a JSON list of log files with their rows, line by line."""

    def __init__(self) -> None:
        self._file_count = 0
        say("[")

    def show(self, file: str, rows: Iterator[Row | Entry], form: Form) -> bool:
        """Print the rows of a log file as JSON. Returns True if any row shows damage."""
        if self._file_count:
            say("  ,")
        self._file_count += 1
        say_block(f'  {{"file": {visible_json(file)}, "rows": [')
        damage_count = 0
        line = ""
        for row in rows:
            damage_count += is_damage(row)
            if line:
                say_block(f"{line},")
            line = "    " + visible_json(as_json(row, form))
        if line:
            say_block(line)
        say("  ]}")
        return damage_count > 0

    def end(self) -> None:
        """Print the end of the JSON list of log files."""
        say("]")


HIDDEN = "(hidden)"
"""Text that is shown in place of a secret in a metadata record."""
SCRAM = "user_scram_credential"
SCRAM_SECRETS = {"salt", "stored_key", "server_key"}
"""Fields of a SCRAM credential record that would let a reader guess passwords offline, or
impersonate the server."""


def as_json(row: Row | Entry, form: Form) -> dict[str, Any]:
    """Return a row of a log file as the JSON object that the command prints. Bytes that are not
    UTF-8 become `{"base64": …}`."""
    if isinstance(row, Entry):
        shown = as_json(row.row, form)
        return {"kind": shown.pop("kind"), "at": row.position, **shown, "problem": row.problem}
    fields = {name: _json_value(value, form) for name, value in row._asdict().items()}
    if isinstance(row, RecordRow):
        fields["headers"] = [[name, _json_value(content, form)] for name, content in row.headers]
        if form.is_metadata and row.control is None:
            fields["metadata"] = said = metadata_of(row)
            if hides_secrets(said):
                fields["value"] = HIDDEN
        if form.is_transactions and row.control is None:
            fields["transaction"] = transaction_of(row)
    return {"kind": type(row).__name__.removesuffix("Row").lower(), **fields}


def _json_value(value: object, form: Form) -> object:
    if not isinstance(value, bytes):
        return value
    limit = form.value_bytes_max
    if limit is not None and len(value) > limit:
        return {"base64": base64.b64encode(value[:limit]).decode(), "bytes": len(value)}
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def metadata_of(row: RecordRow) -> dict[str, Any]:
    """Return a metadata record in a log file, decoded for display."""
    from google.protobuf.json_format import MessageToDict

    from ottla.metadata.records import decode_record
    from ottla.model.errors import CorruptDataError, NewerReleaseError
    from ottla.model.settings.security.dynamic_tls import is_secret_key

    if row.value is None:
        return {"problem": "it has no value"}
    try:
        said: dict[str, Any] = MessageToDict(
            decode_record(row.value), preserving_proto_field_name=True
        )
    except (CorruptDataError, NewerReleaseError) as error:
        return {"problem": str(error)}
    if "value" in (config := said.get("config", {})) and is_secret_key(config.get("key", "")):
        config["value"] = HIDDEN
    for key in SCRAM_SECRETS & said.get(SCRAM, {}).keys():
        said[SCRAM][key] = HIDDEN
    return said


def hides_secrets(said: dict[str, Any]) -> bool:
    """Return whether secret values in a decoded metadata record are hidden."""
    return said.get("config", {}).get("value") == HIDDEN or SCRAM in said


def transaction_of(row: RecordRow) -> dict[str, Any]:
    """Return a record of the topic `__transaction_state`, decoded for display."""
    from ottla.broker.transactions.transaction_records import read_state_record
    from ottla.model.errors import CorruptDataError

    try:
        said = read_state_record(row.key, row.value)
    except CorruptDataError as error:
        return {"problem": error.where}
    if said is None:
        return {"problem": "its key is of a later version"}
    transactional_id, facts = said
    if facts is None:
        return {"transactional_id": transactional_id, "forgotten": True}
    return {
        "transactional_id": transactional_id,
        "state": facts.status.title,
        "producer_id": facts.producer_id,
        "previous_producer_id": facts.previous_producer_id,
        "next_producer_id": facts.next_producer_id,
        "producer_epoch": facts.producer_epoch,
        "timeout_ms": facts.timeout_ms,
        "partitions": [str(one) for one in sorted(facts.partitions)],
        "start_ms": facts.start_ms,
        "last_update_ms": facts.last_update_ms,
        "client_version": facts.client_version,
    }


# ---- tables

BATCH_COLUMNS = (
    "POSITION",
    "OFFSETS",
    "RECORDS",
    "BYTES",
    "EPOCH",
    "CODEC",
    "TIMESTAMPS",
    "PRODUCER",
    "FLAGS",
    "CRC",
)


def show_table(file: str, rows: Iterator[Row | Entry], form: Form) -> bool:
    """Print the rows of a log file as tables. Returns True if any row shows damage."""
    say(file)
    damage_count = row_count = 0
    while chunk := list(islice(rows, TABLE_ROWS_MAX)):
        row_count += len(chunk)
        damage_count += sum(map(is_damage, chunk))
        _show_rows(chunk, form)
    if not row_count:
        say("  empty")
    return damage_count > 0


def _show_rows(rows: list[Row | Entry], form: Form) -> None:
    """Print rows of a log file as tables; adjacent rows of one kind form one table."""
    for kind, group in groupby(rows, type):
        members = list(group)
        if kind is Problem:
            for row in members:
                say(f"  !! at {row[0]}: {row[1]}")
            continue
        columns, cells = cells_of(members, form)
        print_table(columns, cells, indent=6 if kind is RecordRow else 2)


def cells_of(
    rows: list[Row | Entry], form: Form
) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Return the columns and cells of a table, from log file rows of one kind."""
    first = rows[0]
    if isinstance(first, BatchRow):
        return BATCH_COLUMNS, [_batch_cells(row) for row in rows if isinstance(row, BatchRow)]
    if isinstance(first, RecordRow):
        columns: tuple[str, ...] = ("OFFSET", "TIMESTAMP", "KEY", "HEADERS", "VALUE")
        found = [_record_cells(row, form) for row in rows if isinstance(row, RecordRow)]
        return columns, found
    if isinstance(first, Entry):
        columns = ("AT", *_titles(first.row), "FITS")
        entries = [row for row in rows if isinstance(row, Entry)]
        return columns, [
            (row.position, *_cells(row.row, form), row.problem or "ok") for row in entries
        ]
    return _titles(first), [_cells(row, form) for row in rows]


def _titles(row: tuple[object, ...]) -> tuple[str, ...]:
    names: tuple[str, ...] = getattr(row, "_fields", ())
    return tuple(header_of(name.removesuffix("_ms")) for name in names)


def _cells(row: tuple[object, ...], form: Form) -> tuple[object, ...]:
    names: tuple[str, ...] = getattr(row, "_fields", ())
    return tuple(
        Moment(value)
        if name.endswith("_ms") and isinstance(value, int)
        else None
        if value is None
        else _text(value, form)
        for name, value in zip(names, row, strict=True)
    )


def _batch_cells(row: BatchRow) -> tuple[object, ...]:
    flags = [
        name
        for name, is_set in (
            (f"v{row.magic}", row.magic != MAGIC),
            ("transactional", row.is_transactional),
            ("control", row.is_control),
            ("append-time", row.timestamp_type == "LogAppendTime"),
            ("delete-horizon", row.delete_horizon_ms is not None),
        )
        if is_set
    ]
    producer = f"{row.producer_id}/{row.producer_epoch} {row.base_sequence}…{row.last_sequence}"
    return (
        row.position,
        f"{row.base_offset}…{row.last_offset}",
        row.record_count,
        row.size_bytes,
        row.leader_epoch,
        row.codec,
        _times(row),
        producer if row.producer_id >= 0 else "-",
        ",".join(flags) or "-",
        "ok" if row.is_crc_valid else "WRONG",
    )


def _times(row: BatchRow) -> str:
    """Return a text with the first timestamp of a record batch, and the time from the first to the
    last timestamp."""
    base = "-" if row.base_timestamp == -1 else moment(row.base_timestamp)
    span_ms = row.max_timestamp - row.base_timestamp
    if row.max_timestamp < 0 or span_ms == 0:
        return base
    return f"{base} +{duration(span_ms)}" if span_ms > 0 else f"{base} -{duration(-span_ms)}"


def _record_cells(row: RecordRow, form: Form) -> tuple[object, ...]:
    if row.control is not None:
        value = row.control
    elif form.is_metadata:
        value = json.dumps(metadata_of(row), ensure_ascii=False)
    elif form.is_transactions:
        value = json.dumps(transaction_of(row), ensure_ascii=False)
    else:
        value = _text(row.value, form)
    headers = " ".join(f"{name}={_text(content, form)}" for name, content in row.headers)
    key = "-" if row.control is not None else _text(row.key, form)
    return row.offset, Moment(row.timestamp_ms), key, headers or "-", value


def _text(value: object, form: Form) -> Any:
    """Return bytes of a record as text, or in hexadecimal if they are not UTF-8."""
    if isinstance(value, int | str):
        return value
    if value is None:
        return "null"
    if not isinstance(value, bytes):
        return str(value)
    limit = form.value_bytes_max
    if limit is None or len(value) <= limit:
        return _readable(value)
    return f"{_readable(value[:limit])}… ({len(value)} bytes)"


def _readable(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        # The text was cut within its last character, but is still shown as text.
        is_cut = error.reason == "unexpected end of data"
        text = value[: error.start].decode() if is_cut and error.start else "\0"
    return text if text.isprintable() else "0x" + value.hex()
