"""Where a producer stands in its transactions, and what an answer means for that.

Pure.  Two protocols, chosen at each begin.  EXPLICIT (transaction.version 0 and 1): each partition
and group is added at the coordinator before the first write to it, and the epoch stays the same
from one transaction to the next.  IMPLICIT (KIP-890): the write itself adds, and the answer to
EndTxn gives the identity of the next transaction.  Invariants:

AddedBeforeSent     by EXPLICIT no batch leaves for a partition that the coordinator has not added
EndedIfBegun        what may have begun at the coordinator is ended there; nothing else is
OneOutcome          after the first request to commit a transaction is never aborted by a guess
NoLateRequests      where a request of EXPLICIT may still arrive later, the next transaction has a
                    new epoch
FencedForGood       a fenced producer begins nothing again
"""

from collections.abc import Iterable
from enum import Enum, auto

from ottla.client.produce.accumulator import ProducerIdentity
from ottla.model.errors import ErrorCode, RefusedError, row_of
from ottla.model.ids import TopicPartition

IMPLICIT_FROM_LEVEL = 2
"""The level of the feature transaction.version from which brokers add by the write (KIP-890)."""
PRODUCE_ADDS_FROM = 12
TXN_OFFSET_COMMIT_ADDS_FROM = 5
END_TXN_BUMPS_FROM = 5
ADD_PARTITIONS_VERSION_MAX = 3
"""Later versions are between brokers."""


class ProducerFencedError(RefusedError):
    """Another producer has this transactional id now, or the coordinator ended the transaction.

    Final: this producer sends nothing more.
    """


class TransactionAbortedError(RefusedError):
    """The transaction could not be committed and was aborted: the same may be done in a new one."""


class TransactionOutcomeUnknownError(RefusedError):
    """The transaction was to be committed and no answer says if it is; final for this producer.

    The next producer of the transactional id, once it is open, stands after either outcome: what
    the group has committed tells which one it was.
    """


class TransactionProtocol(Enum):
    """How partitions get into a transaction."""

    EXPLICIT = auto()
    IMPLICIT = auto()


class TransactionStage(Enum):
    """Where a producer stands."""

    UNIDENTIFIED = auto()
    """It needs an id and epoch, or a new epoch, from the coordinator."""
    READY = auto()
    OPEN = auto()
    DOOMED = auto()
    """Something of the transaction failed: it can only be aborted."""
    PREPARED = auto()
    """All of it is at the brokers; it is ended elsewhere, or aborted here."""
    COMMITTING = auto()
    ABORTING = auto()
    FINAL = auto()


class TransactionCall(Enum):
    """What is asked of a coordinator."""

    INITIALISE = auto()
    ADD = auto()
    COMMIT_OFFSETS = auto()
    COMMIT = auto()
    ABORT = auto()


class AnswerMeaning(Enum):
    """What an answer means; of several the highest counts."""

    DONE = 0
    RETRY = 1
    ABORT = 2
    """The transaction can not be committed."""
    IDENTIFY = 3
    """Nothing of the transaction is open at the coordinator, or a new epoch closes it."""
    UNKNOWN = 4
    """Nothing says if the transaction is committed."""
    FENCED = 5
    FATAL = 6


S = TransactionStage
NEXT_STAGES: dict[TransactionStage, frozenset[TransactionStage]] = {
    S.UNIDENTIFIED: frozenset({S.READY, S.FINAL}),
    S.READY: frozenset({S.OPEN, S.UNIDENTIFIED, S.FINAL}),
    S.OPEN: frozenset({S.DOOMED, S.PREPARED, S.COMMITTING, S.ABORTING, S.FINAL}),
    S.PREPARED: frozenset({S.COMMITTING, S.ABORTING, S.FINAL}),
    S.DOOMED: frozenset({S.ABORTING, S.FINAL}),
    S.COMMITTING: frozenset({S.READY, S.UNIDENTIFIED, S.ABORTING, S.FINAL}),
    S.ABORTING: frozenset({S.READY, S.UNIDENTIFIED, S.FINAL}),
    S.FINAL: frozenset(),
}

C = TransactionCall
E = ErrorCode
FENCING = frozenset({E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH})
"""The second is the first's name in answers of old versions."""
OTHERWISE: dict[TransactionCall, AnswerMeaning] = {
    C.INITIALISE: AnswerMeaning.FATAL,
    C.ADD: AnswerMeaning.ABORT,
    C.COMMIT_OFFSETS: AnswerMeaning.ABORT,
    C.COMMIT: AnswerMeaning.UNKNOWN,
    C.ABORT: AnswerMeaning.IDENTIFY,
}
"""What a code means that is neither retriable nor in `VERDICTS`."""
VERDICTS: dict[tuple[TransactionCall, ErrorCode], AnswerMeaning] = {
    # A group's partition names the epoch stale: the coordinator says at the abort if it is fenced.
    (C.COMMIT_OFFSETS, E.INVALID_PRODUCER_EPOCH): AnswerMeaning.ABORT,
    # Codes by which a coordinator refuses to commit before it has written anything.
    (C.COMMIT, E.INVALID_TXN_STATE): AnswerMeaning.ABORT,
    (C.COMMIT, E.INVALID_PRODUCER_ID_MAPPING): AnswerMeaning.ABORT,
    (C.COMMIT, E.TRANSACTION_ABORTABLE): AnswerMeaning.ABORT,
    (C.COMMIT, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED): AnswerMeaning.ABORT,
    # An abort that must be aborted: the coordinator and this producer do not agree at all.
    (C.ABORT, E.TRANSACTION_ABORTABLE): AnswerMeaning.FATAL,
    (C.ABORT, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED): AnswerMeaning.FATAL,
    (C.ADD, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED): AnswerMeaning.FATAL,
    (C.COMMIT_OFFSETS, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED): AnswerMeaning.FATAL,
}


def verdict_of(call: TransactionCall, code: int) -> AnswerMeaning:
    """Return what an error code means as the answer to this call."""
    row = row_of(code)
    if code == E.NONE:
        return AnswerMeaning.DONE
    known = VERDICTS.get((call, ErrorCode(row.code)))
    if known is not None:
        return known
    if code in FENCING:
        return AnswerMeaning.FENCED
    return AnswerMeaning.RETRY if row.is_retriable else OTHERWISE[call]


def deciding_code(call: TransactionCall, codes: Iterable[int]) -> ErrorCode:
    """Return the code that decides, of those of several partitions.

    OPERATION_NOT_ATTEMPTED only says that another partition has the reason.
    """
    found = {row_of(code).code for code in codes}
    reasons = found - {E.OPERATION_NOT_ATTEMPTED} or found
    if not reasons:
        return E.NONE
    return ErrorCode(max(reasons, key=lambda code: (verdict_of(call, code).value, code)))


def protocol_for(
    feature_level: int, *, produce: int, txn_offset_commit: int, end_txn: int
) -> TransactionProtocol:
    """Return the protocol of the next transaction, by the feature and the versions both speak.

    A client that is held to older versions of one of them must not use newer ones of another.
    """
    is_implicit = (
        feature_level >= IMPLICIT_FROM_LEVEL
        and produce >= PRODUCE_ADDS_FROM
        and txn_offset_commit >= TXN_OFFSET_COMMIT_ADDS_FROM
        and end_txn >= END_TXN_BUMPS_FROM
    )
    return TransactionProtocol.IMPLICIT if is_implicit else TransactionProtocol.EXPLICIT


class TransactionFlow:
    """One producer's way through its transactions."""

    def __init__(self) -> None:
        self.stage = TransactionStage.UNIDENTIFIED
        self.identity: ProducerIdentity | None = None
        self.protocol = TransactionProtocol.EXPLICIT
        self.final: RefusedError | None = None
        """Why there is no transaction any more."""
        self.must_end = False
        """Whether the coordinator may know of the transaction."""
        self.number = 0
        """How many transactions were begun."""
        self._has_used_identity = False
        """Whether a transaction was begun under the present epoch."""
        self._has_late_requests = False
        self._has_lost_commit = False
        self._wanted: dict[TopicPartition, None] = {}
        self._added: set[TopicPartition] = set()
        self._groups: set[str] = set()

    # Between transactions.

    def must_identify(self, protocol: TransactionProtocol) -> bool:
        """Return whether a transaction of this protocol needs a new epoch first."""
        if self.stage is TransactionStage.UNIDENTIFIED:
            return True
        assert self.stage is TransactionStage.READY
        return self._has_used_identity and protocol is not self.protocol

    def identify(self, identity: ProducerIdentity) -> None:
        """Continue under this id and epoch."""
        if self.stage is TransactionStage.READY:
            self._move(TransactionStage.UNIDENTIFIED)
        self._move(TransactionStage.READY)
        self.identity = identity
        self._has_used_identity = False

    def begin(self, protocol: TransactionProtocol) -> None:
        """Open a transaction."""
        assert not self.must_identify(protocol)
        self._move(TransactionStage.OPEN)
        self.number += 1
        self.protocol = protocol
        self.must_end = self._has_late_requests = self._has_lost_commit = False
        self._has_used_identity = True
        self._wanted.clear()
        self._added.clear()
        self._groups.clear()

    # In a transaction.

    def want(self, at: TopicPartition) -> bool:
        """Take note of records for a partition; return whether it must be added first."""
        if self.protocol is TransactionProtocol.IMPLICIT or at in self._added:
            return False
        self._wanted[at] = None
        return True

    def wanted(self) -> tuple[TopicPartition, ...]:
        """Return the partitions to add now."""
        return tuple(self._wanted) if self.stage is TransactionStage.OPEN else ()

    def admits(self, at: TopicPartition) -> bool:
        """Return whether batches may leave for a partition."""
        return self.protocol is TransactionProtocol.IMPLICIT or at in self._added

    def on_sent(self) -> None:
        """Take note of a request that may begin the transaction at the coordinator."""
        self.must_end = True

    def on_lost(self) -> None:
        """Take note of a request without an answer: it may arrive later."""
        self._has_late_requests = True
        self._has_lost_commit |= self.stage is TransactionStage.COMMITTING

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Take note of partitions that the coordinator has added."""
        for at in partitions:
            self._wanted.pop(at, None)
            self._added.add(at)

    def must_add_group(self, group_id: str) -> bool:
        """Return whether a group must be added before its offsets are sent."""
        return self.protocol is TransactionProtocol.EXPLICIT and group_id not in self._groups

    def add_group(self, group_id: str) -> None:
        """Take note of a group that the coordinator has added."""
        self._groups.add(group_id)

    def doom(self) -> None:
        """Make a commit impossible."""
        if self.stage is TransactionStage.OPEN:
            self._move(TransactionStage.DOOMED)

    # The end.

    def prepare(self) -> None:
        """Accept nothing more, and leave the end to somebody else."""
        self._move(TransactionStage.PREPARED)

    def take_over(self, identity: ProducerIdentity, protocol: TransactionProtocol) -> None:
        """Stand where the producer stood that prepared the transaction."""
        self.identify(identity)
        self.begin(protocol)
        self.prepare()
        self.must_end = True

    def begin_commit(self) -> None:
        """Accept nothing more, and commit."""
        self._move(TransactionStage.COMMITTING)

    def commit_verdict(self, verdict: AnswerMeaning) -> AnswerMeaning:
        """Return what an answer to the commit means after all attempts.

        After one that was lost, a refusal may be of a transaction that is committed already.
        """
        is_refused = verdict is not AnswerMeaning.DONE
        return AnswerMeaning.UNKNOWN if is_refused and self._has_lost_commit else verdict

    def begin_abort(self) -> None:
        """Accept nothing more, and abort."""
        self._move(TransactionStage.ABORTING)

    def on_ended(self, identity: ProducerIdentity | None) -> bool:
        """Take the end of the transaction; return whether the identity is a new one.

        `identity` is what the answer to EndTxn gives; None where it gives none, or none was sent.
        """
        is_abort = self.stage is TransactionStage.ABORTING
        is_explicit = self.protocol is TransactionProtocol.EXPLICIT
        if self.must_end and is_explicit and (is_abort or self._has_late_requests):
            # A batch, an add or an offset on its way would count for the next transaction.
            self._move(TransactionStage.UNIDENTIFIED)
            return False
        if self.must_end and not is_explicit and identity is None:
            self._move(TransactionStage.UNIDENTIFIED)
            return False
        self._move(TransactionStage.READY)
        if identity is None:
            return False
        self.identity = identity
        self._has_used_identity = False
        return True

    def give_up(self) -> None:
        """Leave an abort to the next epoch: its coordinator did not answer, or knows nothing."""
        assert self.stage is TransactionStage.ABORTING
        self._move(TransactionStage.UNIDENTIFIED)

    def end_for_good(self, why: RefusedError) -> None:
        """Begin nothing again."""
        if self.stage is not TransactionStage.FINAL:
            self._move(TransactionStage.FINAL)
            self.final = why

    def _move(self, stage: TransactionStage) -> None:
        assert stage in NEXT_STAGES[self.stage], f"{self.stage.name} -> {stage.name}"
        self.stage = stage
