"""Delays a coordinator's responses until the records that they depend on are committed. Pure."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ottla.broker.coordinators.effects import Responder
from ottla.broker.replicas.partition import Partition
from ottla.model.compiled import mypyc_attr
from ottla.model.errors import ErrorCode
from ottla.model.ids import Offset
from ottla.node.network.purgatory import WaitingEntry

CLIENT_CODES = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_LEADER_EPOCH: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""Error codes that a coordinator's client gets, by the error code of the failed append to the
coordinator's log. Any other error becomes COORDINATOR_NOT_AVAILABLE."""

TOO_LARGE = frozenset(
    (
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_FETCH_SIZE,
    )
)


def client_code(
    code: ErrorCode, too_large_code: ErrorCode = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
) -> ErrorCode:
    """Return the error code for a coordinator's client if the append to the coordinator's log
    failed with `code`."""
    if code in TOO_LARGE:
        return too_large_code
    return CLIENT_CODES.get(code, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class CommitWait(WaitingEntry):
    """Responses of a coordinator to the requests of one event-loop iteration. They are sent when
    the high watermark has passed the records of that iteration."""

    __slots__ = ("_answers", "_end_offset", "_partition")
    kind = "GroupCommit"

    def __init__(
        self, partition: Partition, end_offset: Offset, answers: Sequence[tuple[Responder, Any]]
    ) -> None:
        super().__init__()
        self._partition = partition
        self._end_offset = end_offset
        self._answers = deque(answers)

    def try_complete(self) -> bool:
        """Send the coordinator's responses if the records that they depend on are committed or
        lost. Returns True if they were sent."""
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
        """Cost of an attempt to complete this wait in the purgatory: the number of responses that
        it sends."""
        return max(1, len(self._answers))

    def on_expire(self) -> None:
        """Answer every waiting request with REQUEST_TIMED_OUT. The coordinator's records may still
        be committed later."""
        self._give(ErrorCode.REQUEST_TIMED_OUT)

    def on_fault(self, fault: Exception) -> None:
        """Answer the remaining requests with UNKNOWN_SERVER_ERROR, since the outcome of the
        coordinator's writes is unknown."""
        self._give(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _give(self, code: ErrorCode) -> None:
        faults: list[Exception] = []
        refusal = None if code is ErrorCode.NONE else client_code(code)
        while self._answers:
            responder, answer = self._answers.popleft()
            try:
                responder(answer if refusal is None else refusal)
            except Exception as fault:
                faults.append(fault)
        if faults:
            raise ExceptionGroup("answers that could not be given", faults)


@mypyc_attr(allow_interpreted_subclasses=True)
class StateChangeWait(WaitingEntry):
    """Entry in the purgatory that calls `on_change` once: at the first wake-up of its key, or at
    its deadline."""

    __slots__ = ("_on_change",)
    kind = "TransactionLoad"

    def __init__(self, on_change: Callable[[], None]) -> None:
        super().__init__()
        self._on_change = on_change

    def try_complete(self) -> bool:
        """End the wait for a state change and return True: a wake-up means that the state has
        changed."""
        self._on_change()
        return True

    def on_expire(self) -> None:
        """End the wait for a state change at its deadline. The caller then checks the state
        again."""
        self._on_change()

    def on_fault(self, fault: Exception) -> None:
        """End the wait for a state change after an unexpected error, in the same way as at the
        deadline."""
        self._on_change()
