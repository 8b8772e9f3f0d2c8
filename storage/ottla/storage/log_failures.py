"""Whether a log serves, and what an error of its files does to it.

A full disk refuses what was asked and passes by itself; any other error takes the log offline with
its reason, and is reported once as a failure of the disk.
"""

from collections.abc import Callable
from typing import NoReturn

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Offset
from ottla.storage.disk_errors import in_words, is_disk_failure, is_disk_full

NO_ROOM = (
    "the disk of log directory {} is full; retry, for the partition takes records again as soon as "
    "there is room; to make room, shorten retention, delete topics or enlarge the volume "
    "('ottla status' has the numbers)"
)


class NoRoomError(RefusedError):
    """A refusal for want of room; the room of the directory has told it to the operator."""


class LogFailures:
    """The reason for which a log is offline, if it is, and the hole in it that is to be filled."""

    end_offset: Offset

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.failure: str | None = None
        """Why the log is offline; None while it serves."""
        self.hole_offset: Offset | None = None
        """Start of the first hole that lost segments left; None where none is known."""
        self.on_disk_failed: Callable[[LogFailures], None] = lambda log: None
        """Called once when a file of the log failed, with `failure` set: the manager then fails the
        whole directory, for what is on a disk that failed once is not trusted."""
        self.on_disk_full: Callable[[], None] = lambda: None
        """Called each time that the disk had no room."""

    def note_hole(self, offset: Offset | None) -> None:
        """Remember where the first hole begins; one at the end of the log or behind it is none."""
        self.hole_offset = None if offset is None or offset >= self.end_offset else offset

    def _check_online(self) -> None:
        if self.failure is not None:
            raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, self.failure)

    def refuse_slice(self, error: OSError) -> NoReturn:
        """Answer an error that somebody met who read a slice of this log."""
        self._refuse(error)

    def _refuse(self, error: OSError) -> NoReturn:
        """Answer a disk's error; a failure of the disk takes the log offline."""
        if is_disk_full(error):
            self.on_disk_full()
        elif is_disk_failure(error):
            self._fail_disk(f"{self.directory}: {error}")
        raise refusal_of(error, self.directory.rpartition("/")[0], self.directory) from error

    def _fail_by(self, error: OSError, where: str) -> None:
        """Take the log offline for an error that left it half changed, whatever the error was."""
        if is_disk_failure(error):
            self._fail_disk(f"{where}: {error}")
        self._fail(f"{where}: {in_words(error)}")

    def _fail_disk(self, reason: str) -> None:
        """Take the log offline and report that its disk failed; the first reason stays."""
        if self.failure is None:
            self.failure = reason
            self.on_disk_failed(self)

    def _fail(self, reason: str) -> None:
        if self.failure is None:
            self.failure = reason


def refusal_of(error: OSError, log_directory: str, path: str = "") -> RefusedError:
    """Return the refusal of what a disk's error kept from being done, with what to do about it."""
    if is_disk_full(error):
        return NoRoomError(ErrorCode.KAFKA_STORAGE_ERROR, NO_ROOM.format(log_directory))
    return RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path}: {error}" if path else str(error))
