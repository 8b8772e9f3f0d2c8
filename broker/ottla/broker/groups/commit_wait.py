"""Answers that wait until what they say is committed.  Pure."""

from collections import deque
from collections.abc import Sequence
from typing import Any

from ottla.broker.groups.effects import Asker
from ottla.broker.network.purgatory import WaitingEntry
from ottla.broker.replicas.partition import Partition
from ottla.model.errors import ErrorCode
from ottla.model.ids import Offset

TOLD_AS = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_LEADER_EPOCH: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""What clients are told when the log of their coordinator fails; else it is not available."""

TOO_LARGE = frozenset(
    (
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_FETCH_SIZE,
    )
)


def told_as(
    code: ErrorCode, too_large_code: ErrorCode = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
) -> ErrorCode:
    """Return what a client is told when appending ended in `code`."""
    if code in TOO_LARGE:
        return too_large_code
    return TOLD_AS.get(code, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class CommitWait(WaitingEntry):
    """The answers of one turn, to be given when the high watermark has passed its records."""

    __slots__ = ("_answers", "_end_offset", "_partition")
    kind = "GroupCommit"

    def __init__(
        self, partition: Partition, end_offset: Offset, answers: Sequence[tuple[Asker, Any]]
    ) -> None:
        super().__init__()
        self._partition = partition
        self._end_offset = end_offset
        self._answers = deque(answers)

    def try_complete(self) -> bool:
        """Answer once it is known what became of the records."""
        log = self._partition.log
        if log is None or not self._partition.is_leader:
            self._give(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif log.high_watermark >= self._end_offset:
            self._give(ErrorCode.NONE)
        elif log.failure is not None:
            self._give(ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            return False
        return True

    @property
    def cost(self) -> int:
        """How many answers wait."""
        return max(1, len(self._answers))

    def on_expire(self) -> None:
        """Say that it is not known: they may be committed yet."""
        self._give(ErrorCode.REQUEST_TIMED_OUT)

    def on_fault(self, fault: Exception) -> None:
        """Say that it is not known to all who have no answer yet."""
        self._give(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _give(self, code: ErrorCode) -> None:
        faults: list[Exception] = []
        while self._answers:
            asker, answer = self._answers.popleft()
            try:
                asker(answer if code is ErrorCode.NONE else told_as(code))
            except Exception as fault:
                faults.append(fault)
        if faults:
            raise ExceptionGroup("answers that could not be given", faults)
