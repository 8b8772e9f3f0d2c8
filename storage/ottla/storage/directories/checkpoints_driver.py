"""Reader and writer of the offset checkpoints of one log directory. Each line belongs to a topic
id, not only to a topic name.

Recovery points, log start offsets, high watermarks and first dirty offsets are files in Kafka's
format. A side file stores the topic id of each line (`checkpoint_topics`). A line is used only if
the side file shows that it belongs to the directory's own topic id. Ignoring a line is safe: it
only costs recovery work (recovery point), waiting time (high watermark) or space (log start
offset). Invariants:

- LineOfOneTopic: all lines of a partition belong to the topic whose id is in the side file. The
  side file is durable before a line is written; an id is replaced only after the lines are removed.
- NoLineBeforeDirectory: `forget` durably removes the lines of a name before a directory of that
  name is created, so that a new log never starts with the offsets of an older one.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Set
from typing import NamedTuple, TypeVar
from uuid import UUID

import trio

from ottla.model.errors import CorruptDataError
from ottla.model.ids import Offset, TopicPartition
from ottla.storage.directories.checkpoint_file import (
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    format_checkpoint,
    parse_checkpoint,
)
from ottla.storage.directories.checkpoint_topics import (
    CHECKPOINT_TOPICS_FILE,
    format_topic_ids,
    parse_topic_ids,
)
from ottla.storage.disk.disk_seam import Disk

_LOGGER = logging.getLogger(__name__)

V = TypeVar("V")

CHECKPOINT_FILES = (
    RECOVERY_POINT_FILE,
    LOG_START_FILE,
    HIGH_WATERMARK_FILE,
    CLEANER_OFFSET_FILE,
)


class CheckpointLine(NamedTuple):
    """One partition's line in a checkpoint file: an offset, and the topic id of the log to which
    the offset belongs."""

    topic_id: UUID
    offset: Offset


class Checkpoints:
    """The offset checkpoint files of one log directory. Only one write runs at a time."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._lines: dict[str, dict[TopicPartition, Offset]] = {
            name: {} for name in CHECKPOINT_FILES
        }
        """Offset of each partition, by checkpoint file. A failed write may still have replaced the
        file. Until the next successful write, the mapping then contains the partitions of the old
        and the new lines, with the new offset of a partition that is in both."""
        self._durable: dict[str, dict[TopicPartition, Offset]] = {}
        """Offset of each partition in the last successful write, by checkpoint file."""
        self._begun_count = dict.fromkeys(CHECKPOINT_FILES, 0)
        self._done_count = dict.fromkeys(CHECKPOINT_FILES, 0)
        """Number of the last successful write, by checkpoint file. All writes are numbered when
        they begin."""
        self._topic_ids: dict[TopicPartition, UUID] = {}
        self.is_side_file_known = False
        """True if the side file with the topic ids of checkpoint lines was read or written. A
        directory that only Kafka brokers have used has no such file."""
        self.is_whole = False
        """True if three files existed and were readable: the high watermarks, the recovery points,
        and the topic ids of checkpoint lines. A broker that has opened its logs always leaves all
        three files."""
        self._is_closed = False
        self._writing = trio.Lock()

    # ---- the start

    async def load(self) -> None:
        """Read the checkpoint files of the directory and the side file with their topic ids. A file
        that is missing or unreadable counts as empty."""
        found = {name: await self._read(name, parse_checkpoint) for name in CHECKPOINT_FILES}
        self._lines = {name: lines or {} for name, lines in found.items()}
        topic_ids = await self._read(CHECKPOINT_TOPICS_FILE, parse_topic_ids)
        self._topic_ids = topic_ids or {}
        self.is_side_file_known = bool(topic_ids)
        read = (topic_ids, found[HIGH_WATERMARK_FILE], found[RECOVERY_POINT_FILE])
        self.is_whole = None not in read

    async def _read(
        self, name: str, parse: Callable[[bytes], dict[TopicPartition, V]]
    ) -> dict[TopicPartition, V] | None:
        """Return the lines of the file `name`, a checkpoint or the topic ids of checkpoints.
        Returns None if the file is missing or unreadable."""
        path = f"{self._path}/{name}"
        try:
            return parse(await self._disk.read_file(path))
        except FileNotFoundError:
            return None
        except CorruptDataError as error:
            _LOGGER.error("%s is ignored: %s", path, error.where)
            return None

    async def adopt(self, topic_ids: Mapping[TopicPartition, UUID]) -> None:
        """Assign the checkpoint lines to the topic ids of the directory's logs, and write the side
        file with these ids. The directory must have no side file.

        Call this only after a clean shutdown, which wrote all lines from the open logs. A directory
        without a side file was last used by a Kafka broker or by an older version of Ottla.
        """
        named = self._named()
        if named:
            await self._write_topic_ids({key: topic_ids[key] for key in named & topic_ids.keys()})

    def lines(self, name: str) -> Mapping[TopicPartition, Offset]:
        """Return the offset of each partition in the checkpoint file `name`. Topic ids are not
        compared."""
        return self._lines[name]

    def offset_of(self, name: str, partition: TopicPartition, topic_id: UUID) -> Offset | None:
        """Return the offset in the checkpoint file `name` for a partition with this topic id.
        Returns None if the file has no such line."""
        if self._topic_ids.get(partition) != topic_id:
            return None
        return self._lines[name].get(partition)

    def topic_id_of(self, partition: TopicPartition) -> UUID | None:
        """Return the topic id to which a partition's checkpoint lines belong, or None if the
        partition has no lines."""
        return self._topic_ids.get(partition) if self._has_line(partition) else None

    def lines_of(
        self, name: str, partitions: Set[TopicPartition]
    ) -> dict[TopicPartition, CheckpointLine]:
        """Return the lines of some partitions in the checkpoint file `name`. The caller uses them
        to preserve the lines of logs that could not be opened."""
        known = self._lines[name].keys() & self._topic_ids.keys() & partitions
        return {at: CheckpointLine(self._topic_ids[at], self._lines[name][at]) for at in known}

    def durable_offset_of(
        self, name: str, partition: TopicPartition, topic_id: UUID
    ) -> Offset | None:
        """Return the offset that the checkpoint file `name` is certain to contain for a partition
        with this topic id, even if the machine crashes now. Returns None if the file may lack such
        a line."""
        if self._topic_ids.get(partition) != topic_id:
            return None
        return self._durable.get(name, {}).get(partition)

    # ---- writing

    async def write(
        self, name: str, current: Callable[[], Mapping[TopicPartition, CheckpointLine]]
    ) -> None:
        """Replace the lines of a checkpoint file by the lines that `current` returns when the write
        begins.

        While a write of a file runs, all further calls for this file share the next write.
        """
        begun_before = self._begun_count[name]
        async with self._writing:
            if self._is_closed or self._done_count[name] > begun_before:
                return
            self._begun_count[name] += 1
            await self._replace(name, current())
            self._done_count[name] = self._begun_count[name]

    async def complete(self) -> None:
        """Write the side file with the topic ids even if it has no lines, and drop checkpoint lines
        without a topic id.

        Raises OSError if the write fails.
        """
        async with self._writing:
            await self._drop_all_but(self._topic_ids.keys())
            await self._write_topic_ids(self._topic_ids_for({}))
            self.is_whole = True

    def close(self) -> None:
        """Make later calls of `write` have no effect, for a shutdown. Only `write_last` may be
        called afterwards."""
        self._is_closed = True

    async def write_last(
        self, lines: Mapping[str, Mapping[TopicPartition, CheckpointLine]]
    ) -> None:
        """Replace the lines of all checkpoint files by `lines`, the offsets of the closed logs, at
        a shutdown."""
        assert self._is_closed
        async with self._writing:
            for name, of_partition in lines.items():
                await self._replace(name, of_partition)

    async def forget(
        self, partition: TopicPartition, kept: Callable[[], Collection[TopicPartition]]
    ) -> None:
        """Durably remove the checkpoint lines of a partition name, because a directory with that
        name will be created.

        Lines of other partitions are also removed, except those of the partitions that `kept`
        returns. Creating a thousand topics again therefore needs only one write.
        """
        if not self._writing.locked() and not self._has_line(partition):
            return
        async with self._writing:
            if self._has_line(partition):
                await self._drop_all_but(kept())

    def _has_line(self, partition: TopicPartition) -> bool:
        return any(partition in lines for lines in self._lines.values())

    async def _drop_all_but(self, kept: Collection[TopicPartition]) -> None:
        for name, lines in self._lines.items():
            if not lines.keys() <= set(kept):
                await self._write_lines(
                    name, {key: offset for key, offset in lines.items() if key in kept}
                )

    async def _replace(self, name: str, lines: Mapping[TopicPartition, CheckpointLine]) -> None:
        strange = {
            key
            for key, line in lines.items()
            if self._topic_ids.get(key, line.topic_id) != line.topic_id
        }
        if strange:
            await self._drop_all_but(self._topic_ids.keys() - strange)
        if any(key not in self._topic_ids or key in strange for key in lines):
            await self._write_topic_ids(self._topic_ids_for(lines))
        await self._write_lines(name, {key: line.offset for key, line in lines.items()})

    def _topic_ids_for(
        self, lines: Mapping[TopicPartition, CheckpointLine]
    ) -> dict[TopicPartition, UUID]:
        """Return the topic ids for the side file: the ids of all current checkpoint lines, and the
        ids of `lines`, which the caller is about to write."""
        used = self._named()
        found = {key: topic_id for key, topic_id in self._topic_ids.items() if key in used}
        # Added one by one, because the union of two dicts takes twice the memory of its entries.
        for key, line in lines.items():
            found[key] = line.topic_id
        return found

    def _named(self) -> set[TopicPartition]:
        return {partition for lines in self._lines.values() for partition in lines}

    async def _write_topic_ids(self, topic_ids: dict[TopicPartition, UUID]) -> None:
        path = f"{self._path}/{CHECKPOINT_TOPICS_FILE}"
        await self._disk.write_atomically(path, format_topic_ids(topic_ids))
        self._topic_ids = topic_ids
        self.is_side_file_known = True

    async def _write_lines(self, name: str, lines: dict[TopicPartition, Offset]) -> None:
        before = self._lines[name]
        self._lines[name] = before | lines
        await self._disk.write_atomically(f"{self._path}/{name}", format_checkpoint(lines))
        # Files with equal lines share them, such as those of logs without records.
        lines = next((each for each in self._durable.values() if each == lines), lines)
        self._lines[name] = self._durable[name] = lines
