"""`ottla log dump|index|snapshot|checkpoint`: files of a log directory shown as they are.

Damage is shown with the rest.  A directory stands for the files in it.  Exit code 0, or 2 when any
file holds bytes that lie.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from ottla.cli.common import add_format_argument
from ottla.cli.logs.log_rows import (
    CHECKPOINT_KINDS,
    INDEX_KINDS,
    KINDS,
    SNAPSHOT_KINDS,
    checked_entries,
    files_of,
    rows_of,
)
from ottla.cli.logs.log_view import VALUE_BYTES_DEFAULT, Form, JsonFiles, show_table
from ottla.cli.logs.read_only import note_if_in_use, open_read_only
from ottla.cli.main import OK, UNHEALTHY
from ottla.model.errors import ConfigError, CorruptDataError
from ottla.model.ids import METADATA_TOPIC
from ottla.model.internal_topics import TRANSACTIONS_TOPIC
from ottla.storage.batch_walk import Problem
from ottla.storage.dump import Entry, Row

KINDS_OF = {
    "dump": KINDS,
    "index": INDEX_KINDS,
    "snapshot": SNAPSHOT_KINDS,
    "checkpoint": CHECKPOINT_KINDS,
}


def configure(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare the verbs that show files."""
    dump = verbs.add_parser("dump", help="show log, index, snapshot and checkpoint files")
    _add_files(dump, "file, or the directory of a log")
    dump.add_argument("--records", action="store_true", help="show the records of each batch too")
    dump.add_argument(
        "--metadata",
        action="store_true",
        help="show records as metadata records (the default for the metadata log)",
    )
    dump.add_argument(
        "--value-bytes",
        type=int,
        metavar="BYTES",
        help="bytes shown of each key and value "
        f"(default: {VALUE_BYTES_DEFAULT} in a table, all in JSON)",
    )
    index = verbs.add_parser("index", help="show indexes, and entries that do not match their log")
    _add_files(index, ".index, .timeindex or .txnindex file, or the directory of a log")
    snapshot = verbs.add_parser("snapshot", help="show the state of a log's producers")
    _add_files(snapshot, ".snapshot or producer-batches file, or the directory of a log")
    checkpoint = verbs.add_parser("checkpoint", help="show checkpoints and identities")
    _add_files(checkpoint, "checkpoint, partition.metadata or meta.properties file, or a directory")


def _add_files(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("files", metavar="FILE", nargs="+", help=text)
    add_format_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show the files; 0 when they are sound, 2 when any of them lies."""
    verb = arguments.log_command
    if verb == "dump" and arguments.value_bytes is not None and arguments.value_bytes < 0:
        raise ConfigError("--value-bytes", f"is {arguments.value_bytes}; it must be 0 or more")
    paths = list(files_of(arguments.files, KINDS_OF[verb], verb))
    note_if_in_use(paths)
    is_json = arguments.format == "json"
    output = JsonFiles() if is_json else None
    damage_count = 0
    for path in paths:
        rows = _readable_rows(arguments, path)
        form = _form(arguments, path)
        shown = show_table if output is None else output.show
        damage_count += shown(str(path), rows, form)
    if output is not None:
        output.end()
    return UNHEALTHY if damage_count else OK


def _form(arguments: argparse.Namespace, path: Path) -> Form:
    if arguments.log_command != "dump":
        return Form()
    limit = arguments.value_bytes
    if limit is None and arguments.format == "table":
        limit = VALUE_BYTES_DEFAULT
    is_metadata = arguments.metadata or path.resolve().parent.name == f"{METADATA_TOPIC}-0"
    topic = path.resolve().parent.name.rpartition("-")[0]
    return Form(
        is_metadata=is_metadata,
        is_transactions=topic == TRANSACTIONS_TOPIC,
        value_bytes_max=limit,
    )


def _readable_rows(arguments: argparse.Namespace, path: Path) -> Iterator[Row | Entry]:
    """Yield a file's rows; where the disk fails, that is the last one."""
    try:
        yield from _rows(arguments, path)
    except OSError as error:
        yield Problem(0, f"it cannot be read: {error.strerror}")


def _rows(arguments: argparse.Namespace, path: Path) -> Iterator[Row | Entry]:
    with open_read_only(path) as file:
        if arguments.log_command == "index":
            yield from checked_entries(path, file)
            return
        is_with_records = arguments.log_command == "dump" and (
            arguments.records or arguments.metadata
        )
        try:
            yield from rows_of(path, file, is_with_records=is_with_records)
        except CorruptDataError as error:
            yield Problem(0, error.where)
