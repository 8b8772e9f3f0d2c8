"""`ottla log verify`: checks whether the files of a log directory or a partition are consistent
with each other.

Each file is read once, in blocks. Each flaw is reported with its file and position. The exit code
is 2 if a file is damaged, otherwise 0. Irregularities that also occur in an undamaged directory are
reported as notes.
"""

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from ottla.cli.common import FORMAT, counted, print_json
from ottla.cli.logs.log_rows import kind_of, rows_of, topic_ids_beside
from ottla.cli.logs.read_only import DirectoryFiles, note_if_in_use, open_read_only
from ottla.cli.main import OK, UNHEALTHY
from ottla.cli.options import option
from ottla.cli.tables import print_table
from ottla.cli.terminal import draw, is_watched, say, wipe
from ottla.cli.verbs import verb
from ottla.model.errors import ConfigError, CorruptDataError
from ottla.model.ids import Offset, TopicPartition
from ottla.storage.directories.checkpoint_file import (
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    parse_checkpoint,
)
from ottla.storage.directories.meta_properties import META_PROPERTIES_FILE
from ottla.storage.disk.directory_names import (
    METADATA_DIRECTORY,
    DirectoryKind,
    parse_directory_name,
)
from ottla.storage.inspection.batch_walk import Problem
from ottla.storage.inspection.dump import dump_checkpoint, rows_or_problem
from ottla.storage.inspection.readable import whole_file
from ottla.storage.inspection.verify import Flaw, PartitionFacts, verify_batches, verify_partition
from ottla.storage.segments.files import LOG, PARTITION_METADATA, offsets_of
from ottla.storage.segments.partition_metadata import decode_partition_metadata

FLAWS_OF_A_FILE_MAX = 20
"""Maximum number of flaws that `ottla log verify` shows for one file. Further flaws of the same
file add little information."""
DRAW_INTERVAL_S = 0.1
BAR_WIDTH = 30
MIB = 1 << 20
CHECKED_KINDS = (DirectoryKind.LOG, DirectoryKind.FUTURE, DirectoryKind.STRAY)


class Bar:
    """The progress line of `ottla log verify`. It is drawn only on a terminal."""

    def __init__(self, what: str, total_bytes: int) -> None:
        self._what = what
        self._drawn_s = 0.0
        self.total_bytes = total_bytes
        self.done_bytes = 0

    def on_read(self, size: int) -> None:
        """Add `size` bytes, which were just read, to the progress of `ottla log verify`."""
        self.done_bytes += size
        now_s = time.monotonic()
        if is_watched() and now_s - self._drawn_s >= DRAW_INTERVAL_S:
            self._drawn_s = now_s
            filled = min(BAR_WIDTH, round(BAR_WIDTH * self.done_bytes / max(1, self.total_bytes)))
            draw(
                f"{self._what} [{'#' * filled}{'.' * (BAR_WIDTH - filled)}] "
                f"{self.done_bytes // MIB:,} of {self.total_bytes // MIB:,} MiB"
            )

    def end(self) -> None:
        """Erase the progress line of `ottla log verify`."""
        if self._drawn_s:
            wipe()


class DirectoryCheckpoints(NamedTuple):
    """Contents of the readable checkpoint files of a log directory."""

    recovery_points: dict[TopicPartition, Offset]
    log_starts: dict[TopicPartition, Offset]
    topic_ids: dict[TopicPartition, UUID] | None

    def expected(self, directory: Path, *, is_live: bool, are_records_read: bool) -> PartitionFacts:
        """Return the values that the files in a partition's directory must match, such as the
        recovery point in the checkpoint files. Lines of the checkpoint files are ignored if they
        belong to another topic id than the directory."""
        kind, partition = parse_directory_name(directory.name)
        recovery_point = log_start = None
        if partition is not None and self._speaks_of(partition, directory):
            recovery_point = self.recovery_points.get(partition)
            log_start = self.log_starts.get(partition)
        return PartitionFacts(
            is_live=is_live,
            is_user_partition=kind in CHECKED_KINDS,
            are_records_read=are_records_read,
            recovery_point=recovery_point,
            log_start_offset=log_start,
        )

    def _speaks_of(self, partition: TopicPartition, directory: Path) -> bool:
        if self.topic_ids is None:
            return True
        with suppress(CorruptDataError, OSError):
            with open_read_only(directory / PARTITION_METADATA) as file:
                topic_id = decode_partition_metadata(whole_file(file))
            return self.topic_ids.get(partition) == topic_id
        return False


def run(arguments: argparse.Namespace) -> int:
    """`ottla log verify`: check a log directory or a partition. Returns 0 if it is undamaged, 2 if
    anything is damaged."""
    directory = Path(arguments.directory)
    if not directory.is_dir():
        raise ConfigError(str(directory), "is no directory")
    is_partition = _is_partition(directory)
    partitions = [directory] if is_partition else list(_partitions_of(directory))
    if not partitions and not (directory / META_PROPERTIES_FILE).exists():
        raise ConfigError(str(directory), "is neither a log directory nor a partition's")
    is_live = note_if_in_use([directory])
    root = directory.absolute().parent if is_partition else directory
    files = [file for partition in partitions for file in _files_in(partition)]
    bar = Bar("checking", sum(map(_size_of, files)))
    found = VerifyResult()
    checkpoints, flaws = _load_checkpoints(root)
    if not is_partition:
        found.add(flaws)
    for partition in partitions:
        expected = checkpoints.expected(
            partition, is_live=is_live, are_records_read=arguments.records
        )
        found.add(_checked(partition, expected, bar, is_partition=is_partition))
    bar.end()
    figures = {"partitions": len(partitions), "files": len(files), "bytes": bar.done_bytes}
    _show(arguments, directory, found, figures)
    return UNHEALTHY if found.damaged_files else OK


def _files_in(partition: Path) -> list[Path]:
    try:
        return [file for file in partition.iterdir() if file.is_file()]
    except OSError:
        return []  # The check itself reports the reason.


def _size_of(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _is_partition(directory: Path) -> bool:
    name = directory.resolve().name
    if (directory / META_PROPERTIES_FILE).exists():
        return False
    is_named_so = name == METADATA_DIRECTORY or parse_directory_name(name).kind in CHECKED_KINDS
    return is_named_so or bool(offsets_of([each.name for each in directory.iterdir()], LOG))


def _partitions_of(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.iterdir()):
        kind = parse_directory_name(path.name).kind
        if path.is_dir() and (kind in CHECKED_KINDS or path.name == METADATA_DIRECTORY):
            yield path


class VerifyResult:
    """Flaws that `ottla log verify` found in all files. Only the first flaws of each file are
    stored."""

    def __init__(self) -> None:
        self.flaws: list[Flaw] = []
        self.left_out: Counter[str] = Counter()
        self.damaged_files: set[str] = set()
        self._counts: Counter[str] = Counter()

    def add(self, flaws: Iterator[Flaw]) -> None:
        """Add flaws to the result one by one, as the check of a file yields them."""
        for flaw in flaws:
            if flaw.is_damage:
                self.damaged_files.add(flaw.file)
            self._counts[flaw.file] += 1
            if self._counts[flaw.file] <= FLAWS_OF_A_FILE_MAX:
                self.flaws.append(flaw)
            else:
                self.left_out[flaw.file] += 1


def _checked(
    partition: Path, expected: PartitionFacts, bar: Bar, *, is_partition: bool
) -> Iterator[Flaw]:
    """Yield the flaws in a partition's files. File names are relative to the directory that the
    user named."""
    prefix = "" if is_partition else f"{partition.name}/"
    try:
        files = DirectoryFiles(partition, bar.on_read)
    except OSError as error:
        is_damage = not (expected.is_live and isinstance(error, FileNotFoundError))
        yield Flaw(prefix or ".", None, f"it cannot be read: {error.strerror}", is_damage)
        return
    for flaw in verify_partition(files, expected):
        yield flaw._replace(file=prefix + flaw.file)
    if partition.name != METADATA_DIRECTORY:
        return
    for name in files.names:
        if kind_of(name) in ("checkpoint", "quorum-state"):
            for flaw in _checked_small(partition / name, is_live=expected.is_live):
                yield flaw._replace(file=prefix + flaw.file)


def _checked_small(path: Path, *, is_live: bool = False) -> Iterator[Flaw]:
    """Yield the flaws of a file that can be verified without comparing it with other files."""
    try:
        with open_read_only(path) as file:
            if kind_of(path.name) == "checkpoint":
                yield from verify_batches(path.name, file)
                return
            # A damaged file of topic ids is reported once, not again with each checkpoint.
            is_alone = kind_of(path.name) == "offset-checkpoint"
            alone = rows_or_problem(lambda: dump_checkpoint(whole_file(file)))
            for row in alone if is_alone else rows_of(path, file):
                if isinstance(row, Problem):
                    yield Flaw(path.name, None, row.problem, row.is_damage)
    except FileNotFoundError:
        yield Flaw(path.name, None, "it is gone", is_damage=not is_live)
    except OSError as error:
        yield Flaw(path.name, None, f"it cannot be read: {error.strerror}")


def _load_checkpoints(root: Path) -> tuple[DirectoryCheckpoints, Iterator[Flaw]]:
    """Return the contents of the checkpoint files of a log directory, and their flaws."""
    lines: dict[str, dict[TopicPartition, Offset]] = {}
    for name in (RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE):
        with suppress(OSError, CorruptDataError), open_read_only(root / name) as file:
            lines[name] = parse_checkpoint(whole_file(file))
    topic_ids: dict[TopicPartition, UUID] | None = None
    with suppress(OSError, CorruptDataError):
        topic_ids = topic_ids_beside(root / RECOVERY_POINT_FILE)
    return DirectoryCheckpoints(
        lines.get(RECOVERY_POINT_FILE, {}), lines.get(LOG_START_FILE, {}), topic_ids
    ), _directory_flaws(root, lines)


def _directory_flaws(root: Path, lines: dict[str, dict[TopicPartition, Offset]]) -> Iterator[Flaw]:
    if not (root / META_PROPERTIES_FILE).exists():
        yield Flaw(META_PROPERTIES_FILE, None, "it is not there; a start needs it")
    for path in sorted(root.iterdir()):
        if path.is_file() and kind_of(path.name):
            yield from _checked_small(path)
        elif path.is_dir() and parse_directory_name(path.name).kind is DirectoryKind.DELETE:
            yield Flaw(path.name, None, "a deletion that the next start ends", is_damage=False)
    for name, of_partition in lines.items():
        for partition in of_partition:
            if not (root / str(partition)).is_dir():
                yield Flaw(name, None, f"{partition} is not in this directory", is_damage=False)


def _show(
    arguments: argparse.Namespace, directory: Path, found: VerifyResult, figures: dict[str, int]
) -> None:
    if arguments.format == "json":
        flaws = [flaw._asdict() for flaw in found.flaws]
        damaged = sorted(found.damaged_files)
        shown: dict[str, Any] = {"directory": str(directory), **figures}
        left_out = dict(found.left_out)
        print_json({**shown, "damaged_files": damaged, "flaws": flaws, "left_out": left_out})
        return
    rows = [
        (flaw.file, flaw.position, "damage" if flaw.is_damage else "note", flaw.problem)
        for flaw in found.flaws
    ]
    rows += [
        (name, None, "more", f"{counted(count, 'flaw')} of this file are not shown")
        for name, count in found.left_out.items()
    ]
    if rows:
        print_table(("FILE", "POSITION", "KIND", "PROBLEM"), rows)
    say(
        f"{counted(figures['partitions'], 'partition')}, {counted(figures['files'], 'file')}, "
        f"{figures['bytes']:,} bytes read: {counted(len(found.damaged_files), 'damaged file')}"
    )


VERIFY = verb(
    "verify",
    "check every file of a log directory or a partition",
    run,
    option("directory DIR", "log directory, or that of one partition"),
    option("--records", "verify every record too (default: the CRC of each batch)"),
    FORMAT,
)
