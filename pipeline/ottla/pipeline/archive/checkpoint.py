"""What a streaming query's checkpoint says of how far it is, read from this machine's disks.

Spark writes `offsets/<n>` before a batch and `commits/<n>` after it.  What lies behind the end of
the last committed batch is still the stream's to write: planned or not, it will do so.
"""

import json
from pathlib import Path

from ottla.model.errors import CorruptDataError
from ottla.model.ids import TopicPartition
from ottla.pipeline.archive.archive_directory import local_path
from ottla.pipeline.read.offsets import StreamPosition

VERSION = "v1"
NONE = -1
"""The number of the last batch where there was none."""


def last_batch(checkpoint: Path, log: str) -> int:
    """Return the number of the last batch in `offsets` or `commits`; NONE where there is none."""
    folder = checkpoint / log
    if not folder.is_dir():
        return NONE
    return max((int(name.name) for name in folder.iterdir() if name.name.isdecimal()), default=NONE)


def has_begun(checkpoint: str) -> bool | None:
    """Return whether a query of this checkpoint has planned a batch; None where it is elsewhere."""
    path = local_path(checkpoint)
    return None if path is None else last_batch(path, "offsets") != NONE


def committed_position(checkpoint: Path) -> dict[TopicPartition, int]:
    """Return the offset before which a query's records are written, by partition.

    A partition that it does not name is all the stream's.
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
    """Return the offsets in a file of `offsets`; ValueError where it is not of one topic source."""
    version, *lines = text.splitlines() or [""]
    if version != VERSION:
        raise ValueError(f"begins with {version[:40]!r}, not {VERSION!r}")
    sources = lines[1:]  # behind the query's settings
    if len(sources) != 1:
        raise ValueError(f"tells of {len(sources)} sources; a stream of an archive has one")
    found = json.loads(sources[0])
    if not isinstance(found, dict):
        raise ValueError(f"{sources[0][:40]!r} is no offset of topics")
    return dict(StreamPosition.from_json(found).offsets)
