"""`ottla table maintain TABLE`: merges small files of exported tables, and removes unused files."""

import argparse
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from ottla.cli.common import FORMAT, counted, number_of, print_json
from ottla.cli.options import option
from ottla.cli.pipelines.export import (
    CATALOG_OPTION,
    DELTA,
    DRAW_S,
    FILE_SIZE,
    ICEBERG,
    check_catalog,
    open_delta,
    open_iceberg,
    require_tables,
)
from ottla.cli.terminal import draw, is_watched, note, say, wipe
from ottla.cli.times import parse_duration
from ottla.cli.verbs import verb
from ottla.model.errors import ConfigError
from ottla.model.limits import MIB

if TYPE_CHECKING:
    from ottla.pipeline.maintenance.maintenance import MaintenanceOptions, MaintenanceResult

KEEP = "7d"
TARGET = "TABLE"


def run(arguments: argparse.Namespace) -> int:
    """`ottla table maintain`: merge the small files of an exported table once and print the result.
    Returns the exit code."""
    require_tables(arguments.table)
    options = maintenance_options(arguments)
    shown = MaintenanceShown(arguments.table)
    start_s = time.monotonic()
    try:
        done = maintained(arguments, options, shown)
    finally:
        shown.end()
    if arguments.format == "json":
        seconds = round(time.monotonic() - start_s, 3)
        print_json({"table": arguments.table, **asdict(done), "seconds": seconds})
        return 0
    size = "" if done.byte_count_after is None else f" into {_mib(done.byte_count_after)}"
    say(
        f"{counted(done.merged_count, 'small file')} into {done.made_count}, "
        f"{done.row_count:,} rows, {_mib(done.byte_count_before)}{size}; "
        f"{counted(done.expired_count, 'snapshot')} expired, "
        f"{counted(done.removed_count, 'unused file')} removed "
        f"({_mib(done.removed_byte_count)})"
    )
    if arguments.dry_run:
        note("nothing was changed (--dry-run)")
    return 0


def maintenance_options(arguments: argparse.Namespace) -> "MaintenanceOptions":
    """Return the options for maintaining an exported table, from the command line's arguments.
    Raises ConfigError if an argument is invalid."""
    from ottla.pipeline.maintenance.maintenance import KEEP_S_MIN, MaintenanceOptions

    target_bytes = number_of(arguments.file_size)
    if target_bytes is None or target_bytes < 1:
        raise ConfigError("--file-size", f"is {arguments.file_size!r}; it must be such as 128Mi")
    keep_s = parse_duration("--keep", arguments.keep)
    if keep_s < KEEP_S_MIN:
        raise ConfigError(
            "--keep", f"is {arguments.keep}; files of a running export may be an hour old"
        )
    return MaintenanceOptions(
        target_bytes=int(target_bytes), keep_s=keep_s, is_rehearsal=arguments.dry_run
    )


def maintained(
    arguments: argparse.Namespace, options: "MaintenanceOptions", shown: "MaintenanceShown"
) -> "MaintenanceResult":
    """Maintain the Iceberg table, Delta table or directory that the command line names: merge small
    files and remove unused ones. Returns the result."""
    target = arguments.table
    if target.startswith(ICEBERG):
        from ottla.pipeline.maintenance.iceberg_maintenance import maintain_iceberg

        with open_iceberg(TARGET, target, arguments) as iceberg:
            return maintain_iceberg(iceberg, options, shown)
    if target.startswith(DELTA):
        from ottla.pipeline.maintenance.delta_maintenance import maintain_delta

        with open_delta(TARGET, target, arguments) as delta:
            return maintain_delta(delta, options, shown)
    from ottla.pipeline.export.parquet_directory import local_directory
    from ottla.pipeline.maintenance.directory_maintenance import maintain_directory

    check_catalog(TARGET, target, arguments)
    return maintain_directory(local_directory(TARGET, target), options, shown)


class MaintenanceShown:
    """Progress line of a table's maintenance, drawn on a terminal."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._is_drawn = is_watched()
        self._drawn_s = 0.0

    def __call__(self, done_bytes: int, total_bytes: int) -> None:
        """Draw the progress of the table's maintenance, at most twice a second."""
        now_s = time.monotonic()
        if not self._is_drawn or now_s - self._drawn_s < DRAW_S:
            return
        self._drawn_s = now_s
        share = done_bytes * 100 // max(total_bytes, 1)
        draw(f"{self._table}  {_mib(done_bytes)} of {_mib(total_bytes)} merged  {share} %")

    def end(self) -> None:
        """Erase the progress line of the table's maintenance."""
        if self._is_drawn:
            wipe()


def _mib(byte_count: int) -> str:
    return f"{byte_count / MIB:,.1f} MiB"


VERBS = (
    verb(
        "maintain",
        "merge small files of an exported table, expire snapshots, remove unused files",
        run,
        option(
            "table DIR|iceberg:CATALOG.TABLE|delta:DIR",
            "table of 'ottla export' or 'ottla pipeline archive --table-format'",
        ),
        option(
            "--file-size SIZE",
            "size of merged files; below half a file is small (default: %(default)s)",
            default=FILE_SIZE,
        ),
        option(
            "--keep DURATION",
            "age at which snapshots, and files that no snapshot has, are removed; at least 1h "
            "(default: %(default)s)",
            default=KEEP,
        ),
        option("--dry-run", "show the changes without making them"),
        CATALOG_OPTION,
        FORMAT,
    ),
)
