"""`ottla log dump|index|snapshot|checkpoint`: shows the contents of files in a log directory.

Damaged bytes are shown among the rows of a file. If a directory is named, all its files of the
requested kind are shown. Exit code 0, or 2 if a file is corrupt.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from ottla.cli.common import FORMAT
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
from ottla.cli.options import Option, option
from ottla.cli.verbs import verb
from ottla.model.errors import ConfigError, CorruptDataError
from ottla.model.ids import METADATA_TOPIC
from ottla.model.internal_topics import TRANSACTIONS_TOPIC
from ottla.storage.inspection.batch_walk import Problem
from ottla.storage.inspection.dump import Entry, Row

KINDS_OF = {
    "dump": KINDS,
    "index": INDEX_KINDS,
    "snapshot": SNAPSHOT_KINDS,
    "checkpoint": CHECKPOINT_KINDS,
}


def run(arguments: argparse.Namespace) -> int:
    """Show the contents of the named files of log directories. Returns 0 if all are undamaged, 2 if
    any is corrupt."""
    verb = arguments.verb
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
    if arguments.verb != "dump":
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
    """Yield the rows of a file in a log directory. If a read fails, the last row is the error."""
    try:
        yield from _rows(arguments, path)
    except OSError as error:
        yield Problem(0, f"it cannot be read: {error.strerror}")


def _rows(arguments: argparse.Namespace, path: Path) -> Iterator[Row | Entry]:
    with open_read_only(path) as file:
        if arguments.verb == "index":
            yield from checked_entries(path, file)
            return
        is_with_records = arguments.verb == "dump" and (arguments.records or arguments.metadata)
        try:
            yield from rows_of(path, file, is_with_records=is_with_records)
        except CorruptDataError as error:
            yield Problem(0, error.where)


def _files(meaning: str) -> tuple[Option, ...]:
    return option("files FILE ...", meaning), FORMAT


VERBS = (
    verb(
        "dump",
        "show log, index, snapshot and checkpoint files",
        run,
        *_files("file, or the directory of a log"),
        option("--records", "show the records of each batch too"),
        option("--metadata", "show records as metadata records (the default for the metadata log)"),
        option(
            "--value-bytes BYTES",
            f"bytes shown of each key and value (default: {VALUE_BYTES_DEFAULT} in a table, "
            "all in JSON)",
            type=int,
        ),
    ),
    verb(
        "index",
        "show indexes, and entries that do not match their log",
        run,
        *_files(".index, .timeindex or .txnindex file, or the directory of a log"),
    ),
    verb(
        "snapshot",
        "show the state of a log's producers",
        run,
        *_files(".snapshot or producer-batches file, or the directory of a log"),
    ),
    verb(
        "checkpoint",
        "show checkpoints and identities",
        run,
        *_files("checkpoint, partition.metadata or meta.properties file, or a directory"),
    ),
)
