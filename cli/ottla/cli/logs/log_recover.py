"""`ottla log recover`: recovers logs without a broker, as a broker does after a crash. It shows a
preview first.

The preview runs the recovery code on a disk that stores every change in memory (`preview_disk`).
Files are written only if the user confirms. Exit code 0, 1 if a process uses the directory, or 2 if
a partition cannot be recovered.
"""

import argparse
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio

from ottla.cli.common import FORMAT, counted, print_json, run_async
from ottla.cli.confirmation import CONFIRMATION, confirm
from ottla.cli.logs.log_verify import DRAW_INTERVAL_S, Bar
from ottla.cli.logs.preview_disk import FileChange, PreviewDisk
from ottla.cli.main import OK, UNHEALTHY
from ottla.cli.options import option
from ottla.cli.tables import ByteCount, print_table
from ottla.cli.terminal import note, say
from ottla.cli.verbs import verb
from ottla.model.errors import ConfigError, OttlaError
from ottla.node.clock_driver import RealClock, RealRng
from ottla.node.process_driver import raise_open_files_limit
from ottla.storage.directories.directory_lock_driver import (
    LOCK_FILE,
    lock_directory,
    unlock_directory,
)
from ottla.storage.directories.log_directory_driver import RecoveryProgress
from ottla.storage.directories.meta_properties import META_PROPERTIES_FILE
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.manager.offline_recovery_driver import OfflineRecovery, recover_offline
from ottla.storage.segments.files import LOG


def run(arguments: argparse.Namespace) -> int:
    """`ottla log recover`: show the changes that a recovery would make. Make them if the user
    confirms. Returns the exit code."""
    directory = Path(os.path.abspath(arguments.directory))
    if not directory.is_dir():
        raise ConfigError(str(directory), "is no directory")
    if not (directory / META_PROPERTIES_FILE).exists():
        raise ConfigError(
            str(directory), "is no log directory; it has no meta.properties (name log.dirs' own)"
        )
    raise_open_files_limit()
    with _held(directory), PreviewDisk() as disk, _quiet():
        foreseen = _recover(disk, directory, arguments, "looking")
        changes = [change for change in disk.changes() if Path(change.path).name != LOCK_FILE]
    if arguments.format == "table":
        _show(directory, foreseen, changes)
    is_done = not foreseen.was_clean and confirm(arguments, "recover the directory?")
    if is_done:
        _recover(RealDisk([str(directory)]), directory, arguments, "recovering")
    if arguments.format == "json":
        print_json(_as_json(directory, foreseen, changes, is_done=is_done))
    elif is_done:
        note("done")
    return UNHEALTHY if foreseen.corrupt else OK


@contextmanager
def _held(directory: Path) -> Iterator[None]:
    """Lock a log directory for the duration of the `with` block, if the directory has a lock file.
    No lock file is created."""
    if not (directory / LOCK_FILE).exists():
        yield
        return
    file = lock_directory(RealDisk(), str(directory), setting="DIR")
    try:
        yield
    finally:
        unlock_directory(file)


@contextmanager
def _quiet() -> Iterator[None]:
    """Disable logging within the `with` block, because log messages would report the previewed
    changes of a recovery as made."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _recover(
    disk: Disk, directory: Path, arguments: argparse.Namespace, what: str
) -> OfflineRecovery:
    found: list[OfflineRecovery] = []

    async def body() -> int:
        async with trio.open_nursery() as nursery:
            failure: OttlaError | OSError | None = None
            try:
                recovered = await recover_offline(
                    disk,
                    RealClock(),
                    RealRng(),
                    str(directory),
                    is_all_checked=arguments.all,
                    on_start=lambda progress: nursery.start_soon(_draw, what, progress),
                )
                found.append(recovered)
            except (OttlaError, OSError) as error:
                failure = error  # raised outside the nursery: no exception group
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return OK

    run_async(body)
    return found[0]


async def _draw(what: str, progress: RecoveryProgress) -> None:
    """Draw the progress of the recovery on the terminal until cancelled."""
    bar = Bar(what, 0)
    try:
        while True:
            await trio.sleep(DRAW_INTERVAL_S)
            bar.total_bytes = progress.bytes_total
            bar.on_read(progress.bytes_done - bar.done_bytes)
    finally:
        bar.end()


def _show(directory: Path, recovery: OfflineRecovery, changes: list[FileChange]) -> None:
    if recovery.was_clean:
        say(f"{directory} was stopped cleanly: a start checks nothing (--all checks every batch)")
        return
    rows = [
        (
            change.action,
            os.path.relpath(change.path, directory),
            _size(change.before_bytes),
            _size(change.after_bytes),
            _effect(change),
        )
        for change in changes
    ]
    if rows:
        print_table(("ACTION", "FILE", "BEFORE", "AFTER", "EFFECT"), rows)
    for partition, why in recovery.corrupt.items():
        say(f"{partition} stays offline: {why}")
    lost_bytes = sum(map(_lost_bytes, changes))
    say(
        f"{counted(len(recovery.end_offsets), 'partition')} recovered, "
        f"{counted(len(recovery.corrupt), 'partition')} offline, "
        f"{lost_bytes:,} bytes of logs cut off"
    )


def _size(size_bytes: int | None) -> ByteCount | None:
    return None if size_bytes is None else ByteCount(size_bytes)


def _lost_bytes(change: FileChange) -> int:
    """Return the number of bytes that a change of the recovery removes from a log."""
    if not change.path.endswith(LOG):
        return 0
    return max(0, (change.before_bytes or 0) - (change.after_bytes or 0))


def _effect(change: FileChange) -> str:
    if change.action == "rename":
        assert change.target is not None
        return f"set aside as {Path(change.target).name}"
    lost_bytes = _lost_bytes(change)
    return f"{lost_bytes:,} bytes of the log are cut off" if lost_bytes else "-"


def _as_json(
    directory: Path, recovery: OfflineRecovery, changes: list[FileChange], *, is_done: bool
) -> dict[str, Any]:
    return {
        "directory": str(directory),
        "was_clean": recovery.was_clean,
        "is_done": is_done,
        "end_offsets": {str(key): offset for key, offset in recovery.end_offsets.items()},
        "offline": {str(key): why for key, why in recovery.corrupt.items()},
        "changes": [
            {**change._asdict(), "path": os.path.relpath(change.path, directory)}
            for change in changes
        ],
    }


RECOVER = verb(
    "recover",
    "show how a start after a crash recovers a log directory, and recover it",
    run,
    option("directory DIR", "log directory that no broker uses"),
    option(
        "--all",
        "verify every batch, and cut off what is damaged with all that follows it (default: "
        "batches above the recovery point)",
    ),
    CONFIRMATION,
    FORMAT,
)
