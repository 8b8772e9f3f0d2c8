"""Collects the evidence that the nodes of a run left behind: errors in their logs, and checks of
their data directories.

The evidence is collected after all nodes have been shut down. A directory is sound under these
conditions:

- every batch has a correct CRC;
- offsets rise;
- every index entry points at the batch that contains its offset;
- replicas of a partition have the same bytes up to the lower of their high watermarks, and above it
  wherever both have a batch of the same leader epoch (log matching);
- replicas of a compacted log have the same last values.

A batch that a leader wrote alone during its shutdown may differ from the next leader's batch at the
same offset. Such a batch would be truncated after the next startup.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from ottla.jepsen.checkers.compacted import differing_key, is_compacted
from ottla.jepsen.checkers.verdict import DirectoryCheck
from ottla.model.errors import CorruptDataError
from ottla.model.ids import Offset
from ottla.storage.directories.checkpoint_file import HIGH_WATERMARK_FILE, parse_checkpoint
from ottla.storage.inspection.batch_walk import BatchRow, Problem
from ottla.storage.inspection.dump import OffsetIndexRow, dump_batches, dump_offset_index
from ottla.wire.batch import parse_header

ERRORS_KEPT_MAX = 20
"""Maximum number of errors in its log that are kept for each node. Further errors of the same kind
add no information."""

BEGINNINGS = ("Traceback (most recent call last)", "Exception Group Traceback")
BROKEN = re.compile(r"\b(AssertionError|CRITICAL|Fatal Python error|never awaited)\b")
MARGIN = re.compile(r"^\s*\| ")
"""Pattern of the prefix that Python prints before the lines of a stack within an exception
group."""
SUFFIX = re.compile(r"\.log(\.before)?$")


def errors_in(logs: Path) -> tuple[tuple[str, str], ...]:
    """Return the node and the line of text of every traceback and failed assertion in the files
    NAME.log below a folder."""
    found: list[tuple[str, str]] = []
    for path in sorted(logs.glob("*.log*")) if logs.is_dir() else ():
        node = SUFFIX.sub("", path.name)
        lines = path.read_text(errors="replace").splitlines()
        found += [(node, line) for line in _errors(lines)][:ERRORS_KEPT_MAX]
    return tuple(found)


def _errors(lines: list[str]) -> Iterator[str]:
    is_inside = False
    for line in lines:
        text = MARGIN.sub("", line)
        if any(beginning in text for beginning in BEGINNINGS):
            is_inside = True
        elif is_inside and text and not text.startswith(" "):
            # The stack is indented; the next line has the exception.
            yield text
            is_inside = False
        elif not is_inside and BROKEN.search(text):
            yield text.strip()


@dataclass(frozen=True, slots=True)
class _Log:
    """The log of one replica of a partition, read completely."""

    batches: Mapping[int, bytes]
    """Bytes of the replica's record batches, by base offset."""
    end_offset: int
    high_watermark: int
    problems: tuple[str, ...]


def check_directories(directories: Mapping[str, Path]) -> tuple[DirectoryCheck, ...]:
    """Check the data directory of every broker, and compare the replicas. `directories` are by
    broker name. Returns the result of each check."""
    logs = {node: dict(_logs(path)) for node, path in directories.items()}
    said: dict[str, list[str]] = {
        node: [f"{name}: {problem}" for name, log in found.items() for problem in log.problems]
        for node, found in logs.items()
    }
    for node, name, problem in _differences(logs):
        said[node].append(f"{name}: {problem}")
    return tuple(
        DirectoryCheck(node, not problems, "; ".join(problems[:ERRORS_KEPT_MAX]))
        for node, problems in said.items()
    )


def _logs(directory: Path) -> Iterator[tuple[str, _Log]]:
    try:
        marks = parse_checkpoint((directory / HIGH_WATERMARK_FILE).read_bytes())
    except FileNotFoundError:
        marks = {}
    except CorruptDataError as error:
        yield HIGH_WATERMARK_FILE, _Log({}, 0, 0, (error.where,))
        marks = {}
    names = {f"{topic}-{partition}": mark for (topic, partition), mark in marks.items()}
    for path in sorted(directory.iterdir()):
        if path.is_dir() and any(path.glob("*.log")) and not path.name.endswith("-delete"):
            yield path.name, _read(path, names.get(path.name, 0))


def _read(path: Path, high_watermark: int) -> _Log:
    batches: dict[int, bytes] = {}
    problems: list[str] = []
    end = -1
    for segment in sorted(path.glob("*.log")):
        data = segment.read_bytes()
        starts: dict[int, BatchRow] = {}
        for row in dump_batches(data):
            if isinstance(row, Problem) and row.is_damage:
                problems.append(f"{segment.name} at {row.position}: {row.problem}")
            if not isinstance(row, BatchRow):
                continue
            if not row.is_crc_valid:
                problems.append(f"{segment.name} at {row.position}: wrong CRC")
            if row.base_offset < end:
                problems.append(f"{segment.name} at {row.position}: offset {row.base_offset} again")
            end = row.last_offset + 1
            starts[row.position] = row
            batches[row.base_offset] = data[row.position : row.position + row.size_bytes]
        problems += _index_problems(segment.with_suffix(".index"), starts)
    return _Log(batches, end, high_watermark, tuple(problems))


def _index_problems(path: Path, starts: Mapping[int, BatchRow]) -> Iterator[str]:
    if not path.exists():
        if starts:  # indexes of a log are created with their first entries, or by a clean shutdown
            yield f"{path.name} is not there"
        return
    for row in dump_offset_index(path.read_bytes(), Offset(int(path.stem))):
        if isinstance(row, OffsetIndexRow):
            batch = starts.get(row.position)
            if batch is None or not batch.base_offset <= row.offset <= batch.last_offset:
                yield f"{path.name}: offset {row.offset} is not at {row.position}"


def _differences(logs: Mapping[str, Mapping[str, _Log]]) -> Iterator[tuple[str, str, str]]:
    """Yield (node, partition, problem) for each replica whose bytes differ from the bytes of
    another replica."""
    for name in sorted({name for found in logs.values() for name in found}):
        holders = [(node, found[name]) for node, found in logs.items() if name in found]
        for (first_node, first), (node, log) in combinations(holders, 2):
            compare = _difference_of_states if is_compacted(name) else _difference
            difference = compare(first, log)
            if difference is not None:
                yield node, name, f"differs from {first_node} at {difference}"


def _difference(first: _Log, second: _Log) -> str | None:
    start = max(min(first.batches, default=0), min(second.batches, default=0))
    end = min(first.end_offset, second.end_offset)
    committed = min(first.high_watermark, second.high_watermark)
    for at in sorted({*first.batches, *second.batches}):
        if not start <= at < end:
            continue
        ours, theirs = first.batches.get(at), second.batches.get(at)
        if ours == theirs:
            continue
        epochs = _epoch_of(ours), _epoch_of(theirs)
        if at < committed or epochs[0] == epochs[1]:
            marks = f"{first.high_watermark} and {second.high_watermark}"
            return f"offset {at} (epochs {epochs[0]} and {epochs[1]}, high watermarks {marks})"
    return None


def _difference_of_states(first: _Log, second: _Log) -> str | None:
    """Return a sentence that names a record key whose last value differs between two replicas of a
    compacted log. Returns None if all last values are equal."""
    end = min(first.high_watermark, second.high_watermark)
    key = differing_key(first.batches, second.batches, end)
    if key is None:
        return None
    return f"key {key!r} (high watermarks {first.high_watermark}, {second.high_watermark})"


def _epoch_of(batch: bytes | None) -> int | None:
    return None if batch is None else parse_header(batch).partition_leader_epoch
