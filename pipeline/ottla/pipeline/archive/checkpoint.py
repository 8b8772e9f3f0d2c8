"""The position of a streaming query, read from its checkpoint on this machine.

Spark writes `offsets/<n>` before batch n and `commits/<n>` after it. The position is the end of the
last committed batch. The stream will write all records after this position itself, even if it has
not yet planned a batch with them.
"""

import json
from pathlib import Path

from ottla.model.errors import CorruptDataError
from ottla.model.ids import TopicPartition
from ottla.pipeline.archive.archive_directory import local_path
from ottla.pipeline.read.offsets import StreamPosition

VERSION = "v1"
NONE = -1
"""Batch number of a streaming query that has no batch yet."""


def last_batch(checkpoint: Path, log: str) -> int:
    """Return the number of the last batch in the directory `log` of a query's checkpoint (`offsets`
    or `commits`), or NONE if it has no batch."""
    folder = checkpoint / log
    if not folder.is_dir():
        return NONE
    return max((int(name.name) for name in folder.iterdir() if name.name.isdecimal()), default=NONE)


def has_begun(checkpoint: str) -> bool | None:
    """Return whether a streaming query with this checkpoint has planned a batch, or None if the
    checkpoint is remote."""
    path = local_path(checkpoint)
    return None if path is None else last_batch(path, "offsets") != NONE


def committed_position(checkpoint: Path) -> dict[TopicPartition, int]:
    """Return the position after a streaming query's committed batches: the next offset by
    partition.

    If a partition is missing in the result, the streaming query will write all records of the
    partition itself.
    """
    batch = last_batch(checkpoint, "commits")
    if batch == NONE:
        return {}
    path = checkpoint / "offsets" / str(batch)
    try:
        return parse_offsets(path.read_text())
    except (OSError, ValueError) as error:
        raise CorruptDataError(f"{path}: {error}") from None


def parse_offsets(text: str) -> dict[TopicPartition, int]:
    """Parse a file in the directory `offsets` of a query's checkpoint. Returns the offset of each
    partition."""
    return dict(parse_stream_position(text).offsets)


def parse_stream_position(text: str) -> StreamPosition:
    """Parse a file in the directory `offsets` of a query's checkpoint. Returns the position of the
    query.

    Raises ValueError unless the file has exactly one source, which reads topics.
    """
    version, *lines = text.splitlines() or [""]
    if version != VERSION:
        raise ValueError(f"begins with {version[:40]!r}, not {VERSION!r}")
    sources = lines[1:]  # The query's settings are the first line.
    if len(sources) != 1:
        raise ValueError(f"tells of {len(sources)} sources; a stream of an archive has one")
    found = json.loads(sources[0])
    if not isinstance(found, dict):
        raise ValueError(f"{sources[0][:40]!r} is no offset of topics")
    return StreamPosition.from_json(found)
