"""Health of a log: its state after an error in its files, and the requests that are refused in this
state.

While the disk is full, or the process lacks descriptors or memory, requests are refused. A failure
of the disk takes the log offline with its reason, and is reported once.
"""

from typing import NoReturn

from ottla.model.errors import ErrorCode, RefusedError
from ottla.storage.disk.disk_errors import in_words, is_disk_failure, is_disk_full
from ottla.storage.log.log_state import LogState

NO_ROOM = (
    "the disk of log directory {} is full; retry later: the partition accepts records again as "
    "soon as there is room; to make room, shorten retention, delete topics or enlarge the volume "
    "('ottla status' shows the free space)"
)


class NoSpaceError(RefusedError):
    """Refusal of a request because the disk is full. The log directory has already reported this to
    the operator."""


class LogHealth:
    """The health of one log: online, or offline with a reason."""

    __slots__ = ("_state", "failure")

    def __init__(self, state: LogState) -> None:
        self._state = state
        self.failure: str | None = None
        """Reason why the log is offline, for example a failed disk. None if the log is online."""

    def check_online(self) -> None:
        """Raise RefusedError(KAFKA_STORAGE_ERROR) if the log is offline."""
        if self.failure is not None:
            raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, self.failure)

    def refuse(self, error: OSError) -> NoReturn:
        """Raise the RefusedError for an OSError of the log's disk. A failure of the disk takes the
        log offline. A full disk, or a lack of descriptors or memory, does not."""
        directory = self._state.directory
        if is_disk_full(error):
            self._state.owner.on_disk_full()
        elif is_disk_failure(error):
            self.fail_disk(f"{directory}: {error}")
        raise refusal_of(error, directory.rpartition("/")[0], directory) from error

    def fail_by(self, error: OSError, where: str) -> None:
        """Take the log offline after an error that interrupted a change of its files. Even a full
        disk has this effect."""
        if is_disk_failure(error):
            self.fail_disk(f"{where}: {error}")
        self.fail(f"{where}: {in_words(error)}")

    def fail_disk(self, reason: str) -> None:
        """Take the log offline and report the failure of its disk. After several failures, the
        first reason is stored."""
        if self.failure is None:
            self.failure = reason
            self._state.owner.on_disk_failed(reason)

    def fail(self, reason: str) -> None:
        """Take the log offline for a reason. After several failures, the first reason is stored."""
        if self.failure is None:
            self.failure = reason


def refusal_of(error: OSError, log_directory: str, path: str = "") -> RefusedError:
    """Return the RefusedError for an OSError of a log directory's disk, with advice to the
    operator. `path` is the file that caused the error, or empty if it is unknown."""
    if is_disk_full(error):
        return NoSpaceError(ErrorCode.KAFKA_STORAGE_ERROR, NO_ROOM.format(log_directory))
    return RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path}: {error}" if path else str(error))
