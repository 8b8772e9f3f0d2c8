"""Contents of a partition's directory, looked up in a survey without further calls to the disk. A
survey contains the names and sizes of all files and the contents of small ones.

Startup surveys many directories in one call, because each call to the disk's worker thread costs
more than its work. A log that was closed cleanly is then opened from its survey alone.
"""

import errno
import posixpath
from collections.abc import Sequence

from ottla.storage.disk.disk_seam import DirectorySurvey, Disk
from ottla.storage.segments.abort_digests import ABORT_DIGESTS
from ottla.storage.segments.files import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    PRODUCER_BATCHES,
    SNAPSHOT,
    file_name,
    offsets_of,
)
from ottla.storage.segments.segment_list import CLOSED_SEGMENTS


def small_files(names: Sequence[str]) -> list[str]:
    """Return the subset of the file names in a partition's directory whose contents a clean startup
    reads completely."""
    found = [name for name in (PARTITION_METADATA, LEADER_EPOCH_CHECKPOINT) if name in names]
    found += [name for name in (ABORT_DIGESTS, CLOSED_SEGMENTS) if name in names]
    snapshots = offsets_of(list(names), SNAPSHOT)
    if snapshots:
        found.append(file_name(snapshots[-1], SNAPSHOT))
        found += [name for name in (PRODUCER_BATCHES,) if name in names]
    return found


class DirectoryView:
    """Contents of a partition's directory at the time of a survey, which reads names, sizes and
    small files at once. `forget` must be called before a file in the directory is changed."""

    def __init__(self, disk: Disk, path: str, survey: DirectorySurvey | None = None) -> None:
        self.path = path
        self._disk = disk
        self._survey = survey

    @property
    def survey(self) -> DirectorySurvey:
        """Names, sizes and small files of the directory, as the disk returned them at the time of
        the survey."""
        assert self._survey is not None
        return self._survey

    def forget(self) -> None:
        """Drop the surveyed contents of the directory. Later calls query the disk."""
        self._survey = None

    async def names(self) -> list[str]:
        """Return the sorted names of the files in the directory."""
        if self._survey is None:
            return await self._disk.listdir(self.path)
        return sorted(self._survey.sizes)

    async def read_file(self, name: str) -> bytes:
        """Return the contents of a file in the directory. Raises FileNotFoundError if the file does
        not exist."""
        survey = self._survey
        if survey is not None:
            if name in survey.contents:
                return survey.contents[name]
            if name not in survey.sizes:
                raise FileNotFoundError(errno.ENOENT, "no such file", f"{self.path}/{name}")
        return await self._disk.read_file(f"{self.path}/{name}")

    def size_of(self, path: str) -> int | None:
        """Return the size in bytes of the file at a path. Returns None if the survey was dropped or
        does not contain the file."""
        return None if self._survey is None else self._survey.sizes.get(posixpath.basename(path))

    def has(self, path: str) -> bool:
        """Return whether a file exists at a path, according to the survey. Without a survey, the
        disk is queried."""
        if self._survey is None:
            return self._disk.exists(path)
        return posixpath.basename(path) in self._survey.sizes
