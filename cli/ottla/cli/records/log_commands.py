"""`ottla log dump`: every file of a log directory, shown as it is, damage included.

A file is known by its name, as Kafka names it; a directory stands for the files in it.  Exit code
0, or 2 when any file holds bytes that lie.
"""

import argparse
import base64
import json
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from ottla.cli.common import add_format_argument, print_json, table
from ottla.cli.terminal import say, say_block
from ottla.model.errors import ConfigError
from ottla.model.ids import METADATA_TOPIC, Offset
from ottla.storage.checkpoint_file import HIGH_WATERMARK_FILE, LOG_START_FILE, RECOVERY_POINT_FILE
from ottla.storage.checkpoint_topics import CHECKPOINT_TOPICS_FILE
from ottla.storage.clean_shutdown import CLEAN_SHUTDOWN_FILE, parse_clean_shutdown
from ottla.storage.dump import (
    BatchRow,
    FieldRow,
    Problem,
    RecordRow,
    Row,
    dump_batches,
    dump_checkpoint,
    dump_checkpoint_topics,
    dump_epochs,
    dump_offset_index,
    dump_partition_metadata,
    dump_producer_batches,
    dump_producer_snapshot,
    dump_time_index,
    dump_transaction_index,
    rows_or_problem,
)
from ottla.storage.files import PRODUCER_BATCHES
from ottla.storage.meta_properties import META_PROPERTIES_FILE, parse_meta_properties, uuid_to_text

OK = 0
DAMAGED = 2
QUORUM_STATE_FILE = "quorum-state"
PASSING_SUFFIXES = (".deleted", ".cleaned", ".swap")
"""What Kafka appends to a segment's files while they come or go."""
CHECKPOINT_FILES = (RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE)
OFFSET_DIGITS = 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of 'ottla log'."""
    commands = parser.add_subparsers(dest="log_command", metavar="COMMAND", required=True)
    dump = commands.add_parser("dump", help="show log, index, snapshot and checkpoint files")
    dump.add_argument("files", metavar="FILE", nargs="+", help="a file, or a log's directory")
    dump.add_argument("--records", action="store_true", help="show the records of each batch too")
    dump.add_argument(
        "--metadata",
        action="store_true",
        help="show records as metadata records (the default for the metadata log)",
    )
    add_format_argument(dump)


def run(arguments: argparse.Namespace) -> int:
    """Show the files; 0 when they are sound, 2 when any of them lies."""
    dumped: list[dict[str, Any]] = []
    is_damaged = False
    for path in _files(arguments.files):
        is_metadata = arguments.metadata or path.resolve().parent.name == f"{METADATA_TOPIC}-0"
        is_with_records = arguments.records or arguments.metadata
        rows = list(rows_of(path, is_with_records=is_with_records))
        is_damaged = is_damaged or any(map(_is_damage, rows))
        if arguments.format == "json":
            shown = [as_json(row, is_metadata=is_metadata) for row in rows]
            dumped.append({"file": str(path), "rows": shown})
        else:
            say(f"{path}")
            say_block("\n".join(lines_of(rows, is_metadata=is_metadata)))
    if arguments.format == "json":
        print_json(dumped)
    return DAMAGED if is_damaged else OK


def _files(names: list[str]) -> Iterator[Path]:
    """Yield the files that were named, and of a directory those that we know."""
    for name in names:
        path = Path(name)
        if path.is_dir():
            yield from (file for file in sorted(path.iterdir()) if is_known(file.name))
        elif not path.exists():
            raise ConfigError(name, "is not there")
        elif not is_known(path.name):
            raise ConfigError(name, "is no file of a log; its name says what it holds")
        else:
            yield path


def is_known(name: str) -> bool:
    """Return whether a name tells what the file holds."""
    return _kind(name) != ""


def _kind(name: str) -> str:
    """Return the suffix or the name that tells a file's format, "" when it tells none."""
    for suffix in PASSING_SUFFIXES:
        name = name.removesuffix(suffix)
    stem, dot, suffix = name.rpartition(".")
    digits = stem.partition("-")[0]
    if dot and len(digits) == OFFSET_DIGITS and digits.isdigit():
        if suffix in ("log", "index", "timeindex", "txnindex", "snapshot", "checkpoint"):
            return suffix
    elif name in CHECKPOINT_FILES or name.endswith("-offset-checkpoint"):
        return "offset-checkpoint"
    elif name in (
        "leader-epoch-checkpoint",
        "partition.metadata",
        CHECKPOINT_TOPICS_FILE,
        PRODUCER_BATCHES,
        META_PROPERTIES_FILE,
        CLEAN_SHUTDOWN_FILE,
        QUORUM_STATE_FILE,
    ):
        return name
    return ""


def rows_of(path: Path, *, is_with_records: bool) -> Iterator[Row]:
    """Yield the rows of one file."""
    data = path.read_bytes()
    kind = _kind(path.name)
    if kind in ("log", "checkpoint"):
        return dump_batches(data, is_with_records=is_with_records)
    if kind == "txnindex":
        return dump_transaction_index(data)
    if kind in ("index", "timeindex", "snapshot"):
        offset = Offset(int(path.name[:OFFSET_DIGITS]))
        if kind == "index":
            return dump_offset_index(data, offset)
        if kind == "timeindex":
            return dump_time_index(data, offset)
        return rows_or_problem(lambda: dump_producer_snapshot(data, offset))
    dumps: dict[str, Callable[[bytes], Iterator[Row]]] = {
        "offset-checkpoint": dump_checkpoint,
        "leader-epoch-checkpoint": dump_epochs,
        "partition.metadata": dump_partition_metadata,
        CHECKPOINT_TOPICS_FILE: dump_checkpoint_topics,
        PRODUCER_BATCHES: dump_producer_batches,
        META_PROPERTIES_FILE: _dump_meta_properties,
        CLEAN_SHUTDOWN_FILE: _dump_clean_shutdown,
        QUORUM_STATE_FILE: _dump_quorum_state,
    }
    return rows_or_problem(lambda: dumps[kind](data))


def _dump_meta_properties(data: bytes) -> Iterator[FieldRow]:
    properties = parse_meta_properties(data)
    directory_id = properties.directory_id
    yield FieldRow("cluster.id", properties.cluster_id)
    yield FieldRow("node.id", properties.node_id)
    yield FieldRow("directory.id", None if directory_id is None else uuid_to_text(directory_id))


def _dump_clean_shutdown(data: bytes) -> Iterator[FieldRow]:
    yield FieldRow("brokerEpoch", parse_clean_shutdown(data))


def _dump_quorum_state(data: bytes) -> Iterator[FieldRow]:
    from ottla.raft.election_state import decode

    state = decode(data)
    yield FieldRow("leader_epoch", state.epoch)
    yield FieldRow("leader_id", state.leader_id)
    yield FieldRow("voted_id", None if state.voted is None else state.voted.id)
    yield FieldRow(
        "voted_directory_id",
        None if state.voted is None else uuid_to_text(state.voted.directory_id),
    )


def _is_damage(row: Row) -> bool:
    if isinstance(row, Problem):
        return row.is_damage
    return isinstance(row, BatchRow) and not row.is_crc_valid


# ---- JSON


def as_json(row: Row, *, is_metadata: bool) -> dict[str, Any]:
    """Return a row as JSON says it; bytes that are no text stand as `{"base64": …}`."""
    fields = {name: _json_value(value) for name, value in row._asdict().items()}
    if isinstance(row, RecordRow):
        fields["headers"] = [[name, _json_value(content)] for name, content in row.headers]
        if is_metadata and row.control is None:
            fields["metadata"] = metadata_of(row)
    return {"kind": type(row).__name__.removesuffix("Row").lower(), **fields}


def _json_value(value: object) -> object:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def metadata_of(row: RecordRow) -> dict[str, Any]:
    """Return what a record of the metadata log says."""
    from google.protobuf.json_format import MessageToDict

    from ottla.metadata.records import decode_record
    from ottla.model.errors import CorruptDataError

    if row.value is None:
        return {"problem": "it has no value"}
    try:
        said: dict[str, Any] = MessageToDict(
            decode_record(row.value), preserving_proto_field_name=True
        )
    except CorruptDataError as error:
        return {"problem": error.where}
    return said


# ---- tables

BATCH_COLUMNS = (
    "POSITION",
    "OFFSETS",
    "RECORDS",
    "BYTES",
    "EPOCH",
    "CODEC",
    "MAX TIMESTAMP",
    "PRODUCER",
    "FLAGS",
    "CRC",
)


def lines_of(rows: list[Row], *, is_metadata: bool) -> Iterator[str]:
    """Yield the lines for a person: neighbours of one kind are one table."""
    if not rows:
        yield "  empty"
    for kind, group in groupby(rows, type):
        members = list(group)
        if kind is Problem:
            yield from (f"  !! at {row[0]}: {row[1]}" for row in members)
            continue
        if kind is BatchRow:
            columns: tuple[str, ...] = BATCH_COLUMNS
            cells = [_batch_cells(row) for row in members if isinstance(row, BatchRow)]
            indent = "  "
        elif kind is RecordRow:
            columns = ("OFFSET", "TIMESTAMP", "KEY", "HEADERS", "VALUE")
            cells = [
                _record_cells(row, is_metadata=is_metadata)
                for row in members
                if isinstance(row, RecordRow)
            ]
            indent = "      "
        else:
            columns = tuple(name.upper().replace("_", " ") for name in members[0]._fields)
            cells = [tuple(map(_text, row)) for row in members]
            indent = "  "
        yield from (indent + line for line in table(columns, cells).splitlines())


def _batch_cells(row: BatchRow) -> tuple[object, ...]:
    flags = [
        name
        for name, is_set in (
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
        row.max_timestamp,
        producer if row.producer_id >= 0 else "-",
        ",".join(flags) or "-",
        "ok" if row.is_crc_valid else "WRONG",
    )


def _record_cells(row: RecordRow, *, is_metadata: bool) -> tuple[object, ...]:
    if row.control is not None:
        value = row.control
    elif is_metadata:
        value = json.dumps(metadata_of(row), ensure_ascii=False)
    else:
        value = _text(row.value)
    headers = " ".join(f"{name}={_text(content)}" for name, content in row.headers)
    key = "-" if row.control is not None else _text(row.key)
    return row.offset, row.timestamp_ms, key, headers or "-", value


def _text(value: object) -> Any:
    """Return bytes as a person reads them: text, or hexadecimal where it is none."""
    if isinstance(value, int | str):
        return value
    if value is None:
        return "null"
    if not isinstance(value, bytes):
        return str(value)
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return "0x" + value.hex()
    return text if text.isprintable() else "0x" + value.hex()
