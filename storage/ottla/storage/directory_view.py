"""What a partition's directory holds, as far as it is known without asking the disk again.

A start surveys many directories in one call, for each call to a worker costs more than what it
does.  A log that was closed cleanly is then opened from its survey alone.
"""

import errno
import posixpath
from collections.abc import Sequence

from ottla.storage.abort_digests import ABORT_DIGESTS
from ottla.storage.disk_seam import DirectorySurvey, Disk
from ottla.storage.files import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    PRODUCER_BATCHES,
    SNAPSHOT,
    file_name,
    offsets_of,
)
from ottla.storage.segment_list import CLOSED_SEGMENTS


def small_files(names: Sequence[str]) -> list[str]:
    """Return the names of the files that a clean start reads whole."""
    found = [name for name in (PARTITION_METADATA, LEADER_EPOCH_CHECKPOINT) if name in names]
    found += [name for name in (ABORT_DIGESTS, CLOSED_SEGMENTS) if name in names]
    snapshots = offsets_of(list(names), SNAPSHOT)
    if snapshots:
        found.append(file_name(snapshots[-1], SNAPSHOT))
        found += [name for name in (PRODUCER_BATCHES,) if name in names]
    return found


class DirectoryView:
    """One directory; `forget` is called before anything in it is changed."""

    def __init__(self, disk: Disk, path: str, survey: DirectorySurvey | None = None) -> None:
        self.path = path
        self._disk = disk
        self._survey = survey

    @property
    def survey(self) -> DirectorySurvey:
        """What the directory held when it was surveyed."""
        assert self._survey is not None
        return self._survey

    def forget(self) -> None:
        """Ask the disk from now on."""
        self._survey = None

    async def names(self) -> list[str]:
        """Return the sorted names in the directory."""
        if self._survey is None:
            return await self._disk.listdir(self.path)
        return sorted(self._survey.sizes)

    async def read_file(self, name: str) -> bytes:
        """Return the whole file; FileNotFoundError when there is none."""
        survey = self._survey
        if survey is not None:
            if name in survey.contents:
                return survey.contents[name]
            if name not in survey.sizes:
                raise FileNotFoundError(errno.ENOENT, "no such file", f"{self.path}/{name}")
        return await self._disk.read_file(f"{self.path}/{name}")

    def size_of(self, path: str) -> int | None:
        """Return the size of a file, by its path; None where it is not known."""
        return None if self._survey is None else self._survey.sizes.get(posixpath.basename(path))

    def has(self, path: str) -> bool:
        """Return whether a file is there, by its path."""
        if self._survey is None:
            return self._disk.exists(path)
        return posixpath.basename(path) in self._survey.sizes
